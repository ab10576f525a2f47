// Package sqltx lets code for database/sql write in an execution's transaction:
// queries that sqlc has generated for it, GORM, ent, bun. [Open] makes a *sql.DB
// whose one connection is the transaction's own: nothing is dialled, no second
// connection is taken, and what is written commits with the claim and the result
// or not at all.
//
// Code for pgx, sqlc's for pgx/v5 included, takes the pgx.Tx as it is.
//
// The package may import pgx and the standard library.
package sqltx
