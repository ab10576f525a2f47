// Package migrations makes the ledger's tables, indexes and functions in a
// PostgreSQL schema, and proves that they are there.
//
// The steps are plain numbered SQL files with unqualified names, run with
// search_path set to the one schema: [Migrator.Up] applies them under a lock,
// [Migrator.Print] writes them for a DBA, and [Migrator.FS] hands them to
// another tool. Steps 0001 to 0099 make the platform's objects, 0101 to 0199 those
// that belong to tenants; the latter are applied only where [Options.TenantsTable]
// names the table that holds the tenants.
//
// Nothing here is called by the library's constructors. Once the steps are
// applied, the library needs rights to the rows only: [Migrator.Grants].
//
// It needs PostgreSQL 14 or newer. It may import nothing of this module.
package migrations
