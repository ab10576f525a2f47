// Package purge deletes the ledger's expired rows on a Temporal schedule.
//
// The workflow maintenance.purge sweeps both tables, the oldest rows first,
// until nothing is left or its time is spent. Where one sweep doesn't keep up it
// cuts what is left into stretches and works on several side by side, on as many
// workers as poll the queue; where batches run into their time it takes fewer.
// What it deletes, and what it never does, is [ledger.Store.PruneBatch]'s.
//
// [EnsureSchedule] makes its schedule, or brings it up to date; call it from
// every process that likes to. The plugin in package interceptor registers the
// workflow and its activities; without the plugin, [Register] does.
//
// This package may import ledger, internal packages and the Temporal SDK.
package purge
