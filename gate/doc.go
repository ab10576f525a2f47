// Package gate puts Valkey in front of the ledger: a gate that bars a
// concurrent duplicate without opening a transaction, and a cache that answers
// a late one without touching PostgreSQL. It is a hint and a cache, never the
// truth: whatever it says or fails to say, the ledger decides.
//
// # The protocol
//
// [Runner.Execute] is the one path that every entry takes. Around the ledger's
// own steps (see package ledger) it adds:
//
//  1. Gate. One round trip, SET key token NX PX lease GET with PTTL behind it.
//     Set, or our own token (an earlier reply was lost): we hold the gate.
//     A finished entry: fingerprint checked, then replayed. Another's token: a
//     lower attempt of a derived key doesn't bar; else wait in place, bounded,
//     holding nothing, and before "in flight" is answered ask the ledger once,
//     because the token's owner may have committed and died. No answer in time,
//     an error, or the breaker open: degraded, on to the ledger. A fresh
//     execution doesn't wait for the gate: its mark is set beside the work.
//  2. The ledger: look, claim, effect, outcome.
//  3. Copy. After the commit the outcome goes to the gate, off the caller's
//     path; an entry replaces only a smaller one and never outlives its row.
//  4. Release. After a failure the token is taken away if it is still ours;
//     never while a commit is in doubt.
//
// # How far Valkey may go
//
// A question runs beside its caller, who leaves it at Config.Timeout or when its
// own context ends: a caller in a hurry neither breaks the connection that others
// use nor speaks against the server. One failure opens the breaker; then nobody
// asks, and copies are dropped, until one question after Config.Probe is the
// probe. Tokens end with their lease. An entry's end is reckoned by Valkey's own
// clock as its newest answer showed it, so that a copy that was long on its way
// lives no longer for it. What isn't ours at a key, or would never end, is no
// answer: the ledger decides, and its outcome takes the place.
//
// This package may import ledger, internal packages, valkey-go, the circuit
// breaker and the OpenTelemetry API; never interceptor, purge or Temporal.
package gate
