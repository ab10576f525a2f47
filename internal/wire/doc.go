// Package wire is a TCP proxy for tests, the demo and the benchmarks. It
// understands PostgreSQL's frontend/backend protocol (version 3) and RESP,
// counts the round trips and the statements that pass, and injects faults at
// an exact message.
//
// A test listens in front of a server, points its client at [Proxy.Addr], and
// arms a rule:
//
//	proxy, err := wire.Listen(ctx, "127.0.0.1:5432", wire.Postgres)
//	...
//	defer proxy.Close()
//	lost := proxy.Arm(wire.Rule{Match: wire.Commit(), Action: wire.CutAfter})
//	err = tx.Commit(ctx) // a connection error: the answer never came
//	<-lost.Settled()     // and yet the server has executed the COMMIT
//	fmt.Println(proxy.Stats().RoundTrips)
//
// # What a rule sees
//
// A client's messages are collected up to the one that asks for an answer
// (Sync, Flush, a simple Query; in RESP: all the commands that came together)
// and judged as one burst. A prepared statement is known by its SQL. A simple
// Query is split into its statements, and each is matched, counted and
// recorded by itself, but the Query is one message: it passes whole or not at
// all. A cached statement that is only parsed has not been executed, and
// matches nothing.
//
// Answers ([KindAnswer]) are seen when they come from the server, before they
// go on to the client: the place to kill a process that must not hear of its
// COMMIT, by [Proxy.Observe] or [Rule].Do.
//
// A driver that loses its connection sends a CancelRequest for it, pgx among
// them. For a connection that a rule's fault has struck it is swallowed, or it
// would cancel the very COMMIT that was to be executed unheard.
//
// # Round trips
//
// A round trip begins with the first burst after the server has answered
// everything, and ends when it has answered everything again: a pipeline with
// one Sync is one, and so are a COPY and a pipeline of commands written
// together. The start of a connection isn't counted; RESP's set-up commands
// (HELLO, AUTH, CLIENT, SELECT, PING and their like) are counted apart.
// Commands of several goroutines that share a connection can share a round
// trip. CLIENT REPLY OFF and SKIP are not followed.
//
// # Limits
//
// TLS and GSS encryption are declined: the client needs sslmode=disable or
// prefer. A message is held in memory whole; bursts over 64 MiB are judged in
// parts. A delay holds what is sent, not the opening of connections.
//
// The package may import the standard library, golang.org/x/sys, clock and
// sqltext. Nothing but tests, samples and benchmarks imports it.
package wire
