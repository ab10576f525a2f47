// Package transfer moves money between two accounts in PostgreSQL. Temporal
// runs the activity at least once; the plugin makes its effect happen once.
//
// The package may import effectonce's public packages, pgx and the Temporal SDK.
package transfer

// TaskQueue is where the sample's worker listens.
const TaskQueue = "transfer"

// Transfer says what to move.
type Transfer struct {
	ID       string
	From, To string
	Amount   int64
}

// Receipt says what was done.
type Receipt struct {
	Entry int64 // the row in table transfers
	Left  int64 // on the account that paid
}
