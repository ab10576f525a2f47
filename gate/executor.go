package gate

import (
	"context"

	"github.com/effectonce/effectonce/ledger"
)

// Executor returns the runner as typed operations use it: see
// [ledger.Operation.Run].
func (r *Runner) Executor() ledger.Executor { return executor{r} }

type executor struct{ runner *Runner }

// Execute runs a request that isn't a Temporal execution's.
func (e executor) Execute(ctx context.Context, req ledger.Request, body ledger.Body) (ledger.Result, error) {
	return e.runner.Execute(ctx, Request{Request: req}, body)
}

// Config returns the limits of the ledger behind the runner; a ledger that
// doesn't tell has the defaults.
func (e executor) Config() ledger.Config {
	if l, ok := e.runner.ledger.(interface{ Config() ledger.Config }); ok {
		return l.Config()
	}
	return ledger.Config{}
}
