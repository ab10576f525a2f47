// Package interceptor is the Temporal side: a plugin that routes every activity
// execution through the gate and the ledger, so that what the activity writes
// to PostgreSQL happens once though Temporal runs it at least once.
//
// A key is derived for each execution (see [DeriveKey]). The activity asks for
// its transaction with [ledger.Tx]; the key, what it writes and its result
// commit together or not at all. A second delivery gets the first one's result
// back, byte for byte, without running the activity. An activity that never
// asks for the transaction holds no connection; its result is kept by one
// INSERT afterwards, so that a lost answer is replayed.
//
// Effects outside PostgreSQL can't join its transaction. Hand [Key] to outside
// APIs that know idempotency keys.
//
// This package may import gate, ledger, internal packages and the Temporal SDK.
package interceptor
