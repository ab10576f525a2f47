package interceptor

import (
	"context"
	"reflect"
	"runtime"
	"strings"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/activity"

	"github.com/effectonce/effectonce/ledger"
)

// Func is an activity that is handed its transaction: it can't forget to ask.
type Func[I, O any] func(ctx context.Context, tx pgx.Tx, in I) (O, error)

// Activity is a Func as the SDK runs it. [Register] makes one.
type Activity[I, O any] func(ctx context.Context, in I) (O, error)

type beginsAtOnce interface{ beginsAtOnce() }

func (Activity[I, O]) beginsAtOnce() {}

// Registry is what [Register] needs of a worker, or of a test environment.
type Registry interface {
	RegisterActivityWithOptions(activity any, options activity.RegisterOptions)
}

// Register registers an activity whose transaction begins before its body, with
// no look before it. Without a name in the options it is called as the function
// is, which workflows may pass to workflow.ExecuteActivity by that name.
func Register[I, O any](r Registry, f Func[I, O], options activity.RegisterOptions) {
	if options.Name == "" {
		options.Name = functionName(f)
	}
	r.RegisterActivityWithOptions(Activity[I, O](func(ctx context.Context, in I) (O, error) {
		tx, err := ledger.Tx(ctx)
		if err != nil {
			var none O
			return none, err
		}
		return f(ctx, tx, in)
	}), options)
}

// functionName is the last part of the function's name, as the SDK's own rule
// for activities has it.
func functionName(f any) string {
	full := runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
	return strings.TrimSuffix(full[strings.LastIndex(full, ".")+1:], "-fm")
}
