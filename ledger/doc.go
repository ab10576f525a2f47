// Package ledger makes an effect in PostgreSQL happen once: the key that names
// an execution, the effect and its result commit in one transaction or vanish
// together, and whoever comes again with the same key gets the first result.
//
// # The protocol
//
// [Store.Execute] follows these steps (a gate in front of them, in package
// gate, adds its own before and after):
//
//  1. Look. Where the transaction begins late, one SELECT before the body:
//     finished is replayed and the body doesn't run. Skipped for a fresh key.
//  2. Claim. Always, unconditionally, the first step of the effect's
//     transaction, in one pipeline with BEGIN. Inserted or taken over: ours.
//     Finished: replayed. A live lease or a rival's open transaction: in
//     flight, waited for without a connection, bounded.
//  3. Effect. The body has the transaction and can't end it.
//  4. Outcome, in the same transaction, and COMMIT behind it, in one pipeline.
//     An outcome that doesn't match exactly our claim raises, so that the
//     COMMIT is never executed.
//  5. Failure. The transaction is rolled back whole and the failure recorded
//     on its own, never over another's row.
//  6. Commit in doubt. When the connection dies during COMMIT, the row and the
//     transaction's fate are asked for on a new one until they are sure.
//
// Time is the database's: leases and retention are computed by PostgreSQL's
// clock.
//
// # Typed operations
//
// Programs without Temporal define an [Operation] once and [Operation.Run] it
// with a [Scope] that they vouch for and a [ClientKey]. It makes requests for the
// same protocol; [Limits] bound what the store takes on. Code for database/sql
// joins the transaction by package sqltx.
//
// # Imports
//
// This package may import internal packages, pgx and the OpenTelemetry API;
// never gate, interceptor, purge, Valkey or Temporal.
package ledger
