// Package payment charges a card by an outside HTTP service. An effect outside
// PostgreSQL can't join its transaction: the activity runs under a lease, and
// hands its key to a service that knows idempotency keys.
//
// The package may import effectonce's public packages, pgx and the Temporal SDK.
package payment

// TaskQueue is where the sample's worker listens.
const TaskQueue = "payment"

// Order says what to charge.
type Order struct {
	ID     string
	Card   string
	Amount int64 // cents
}

// Receipt is what the service answers.
type Receipt struct {
	Charge string // the service's own number
}
