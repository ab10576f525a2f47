package interceptor

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/ledger"
)

type declaredKey struct{}

type declaredOwner struct{}

// WithKey returns a workflow context in which activities are executed under
// this business key, such as an order's number, in place of the derived one: a
// new run of the workflow, or another workflow, that uses the same key for the
// same operation replays instead of running again. Any text works, except the
// empty one, which counts as none. The text stays in the worker: only its digest
// goes into the activity's header.
//
// It needs the plugin on the worker that runs the workflow.
func WithKey(ctx workflow.Context, key string) workflow.Context {
	return workflow.WithValue(ctx, declaredKey{}, key)
}

// WithTenant returns a workflow context in which activities' keys belong to that
// tenant, so that their rows stand in idempotency_keys. It needs Options.Tenants.
func WithTenant(ctx workflow.Context, id int64) workflow.Context {
	return workflow.WithValue(ctx, declaredOwner{}, ledger.Tenant(id))
}

// KeyOf makes a [Policy.Key] of a function of the activity's first argument.
func KeyOf[I any](f func(in I) string) func(args []any) (string, error) {
	return func(args []any) (string, error) {
		in, err := first[I](args)
		if err != nil {
			return "", err
		}
		return f(in), nil
	}
}

// TenantOf makes a [Policy.Owner] of a function of the activity's first argument.
func TenantOf[I any](f func(in I) int64) func(args []any) (ledger.Owner, error) {
	return func(args []any) (ledger.Owner, error) {
		in, err := first[I](args)
		if err != nil {
			return ledger.Owner{}, err
		}
		return ledger.Tenant(f(in)), nil
	}
}

func first[I any](args []any) (in I, err error) {
	if len(args) == 0 {
		return in, fmt.Errorf("the activity has no argument, want one of type %T", in)
	}
	switch v := args[0].(type) {
	case I:
		return v, nil
	case *I:
		if v != nil {
			return *v, nil
		}
	}
	return in, fmt.Errorf("the activity's first argument has the type %T, want %T", args[0], in)
}
