// Package servers starts private PostgreSQL, Valkey and Temporal servers for
// tests, demos and benchmarks, and stops them again.
//
// Every server listens on a free port of the loopback interface, keeps its
// files in a folder of its own under [os.TempDir], and runs in a process group
// of its own. Where the system allows it, the server dies with the program
// that started it. A server that somebody else runs is never signalled: the
// Use functions return a handle on the server named by DATABASE_URL,
// VALKEY_ADDR or TEMPORAL_ADDRESS when the variable is set, and such a handle
// answers [ErrNotOwned] to everything that would stop it.
//
// The package may import the standard library and the clients it asks whether
// a server is ready. Nothing but tests, samples and benchmarks imports it.
package servers

// The environment variables that name servers to use instead of private ones.
const (
	DatabaseURL     = "DATABASE_URL"     // a postgres:// URL
	ValkeyAddr      = "VALKEY_ADDR"      // host:port
	TemporalAddress = "TEMPORAL_ADDRESS" // host:port
)
