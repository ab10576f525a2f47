package purge

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/effectonce/effectonce/internal/clock"
	"github.com/effectonce/effectonce/ledger"
)

// activities are the workflow's, with the store that they purge.
type activities struct {
	open Open
}

// begin says which tables there are and where their sweeps begin, and measures
// what owners keep.
func (a activities) begin(ctx context.Context, marks []Mark) ([]Mark, error) {
	store, done, err := a.open()
	if err != nil {
		return nil, err
	}
	defer done()
	tables := []Mark{{}}
	if store.Config().Tenants {
		tables = append(tables, Mark{Tenants: true})
	}
	for i, t := range tables {
		for _, m := range marks {
			if m.Tenants == t.Tenants {
				t = m
			}
		}
		if t.PruneMark, err = store.Behind(ctx, t.Tenants, t.PruneMark); err != nil {
			return nil, err
		}
		if err := store.Kept(ctx, t.Tenants); err != nil {
			return nil, err
		}
		tables[i] = t
	}
	return tables, nil
}

// sweepInput says what one activity sweeps, and for how long.
type sweepInput struct {
	Range  ledger.PruneRange `json:"range"`
	Size   int               `json:"size,omitempty"`
	Beside bool              `json:"beside,omitempty"`
	For    time.Duration     `json:"for"`
}

// sweep sweeps until the range is done, its time is spent or the worker stops.
// Each batch is a heartbeat, by which a later attempt resumes.
func (a activities) sweep(ctx context.Context, in sweepInput) (ledger.Swept, error) {
	store, done, err := a.open()
	if err != nil {
		return ledger.Swept{}, err
	}
	defer done()
	var before ledger.Swept
	if activity.HasHeartbeatDetails(ctx) && activity.GetHeartbeatDetails(ctx, &before) == nil {
		in.Range, in.Size = before.Rest, before.Size
	}
	together := func(s ledger.Swept) ledger.Swept {
		s.Rows += before.Rows
		s.Shrunk += before.Shrunk
		return s
	}
	stopping, end := activity.GetWorkerStopChannel(ctx), clock.Now().Add(in.For)
	swept, err := store.Sweep(ctx, ledger.Sweep{Range: in.Range, Size: in.Size, Beside: in.Beside}, func(s ledger.Swept) bool {
		activity.RecordHeartbeat(ctx, together(s))
		select {
		case <-stopping:
			return false
		default:
			return clock.Until(end) > 0
		}
	})
	if err != nil {
		activity.RecordHeartbeat(ctx, together(swept))
		return ledger.Swept{}, err
	}
	return together(swept), nil
}
