package ledger_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
)

type order struct {
	Item  string `json:"item"`
	Count int64  `json:"count"`
}

type receipt struct {
	Number int64  `json:"number"`
	Note   string `json:"note,omitempty"`
}

func newOperation[I, O any](t testing.TB, o ledger.OperationOptions[I, O]) *ledger.Operation[I, O] {
	t.Helper()
	if o.ID == "" {
		o.ID = "orders.place"
	}
	if o.Wait == 0 {
		o.Wait = -1
	}
	op, err := ledger.NewOperation(o)
	require.NoError(t, err)
	return op
}

func placing(t testing.TB) *ledger.Operation[order, receipt] {
	t.Helper()
	return newOperation(t, ledger.OperationOptions[order, receipt]{})
}

func scope(t testing.TB, owner ledger.Owner, caller string) ledger.Scope {
	t.Helper()
	s, err := ledger.NewScope(owner, caller)
	require.NoError(t, err)
	return s
}

// clientKey pads a name to a key of the form that clients submit.
func clientKey(t testing.TB, name string) ledger.ClientKey {
	t.Helper()
	k, err := ledger.ParseClientKey(strings.ReplaceAll(name, " ", "_") + strings.Repeat("-", max(0, 16-len(name))))
	require.NoError(t, err)
	return k
}

// places is a handler with one effect, named by its item.
func places(ctx context.Context, tx pgx.Tx, o order) (receipt, error) {
	return receipt{Number: o.Count}, ledgertest.Write(ctx, tx, o.Item)
}

// unplaced is a handler that must not run.
func unplaced(t testing.TB) ledger.Handler[order, receipt] {
	return func(context.Context, pgx.Tx, order) (receipt, error) {
		t.Error("the handler ran")
		return receipt{}, errors.New("the handler ran")
	}
}

func TestRunOnceThenReplay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, owner := range map[string]ledger.Owner{"platform": ledger.Platform(), "tenant": ledger.Tenant(ledgertest.TenantA)} {
		op, s, key := placing(t), scope(t, owner, "alice"), clientKey(t, "k")
		first, err := op.Run(t.Context(), b.store, s, key, order{Item: name, Count: 7}, places)
		require.NoError(t, err)
		require.Equal(t, receipt{Number: 7}, first.Value())
		require.True(t, first.Committed())
		require.True(t, first.Readable())
		require.False(t, first.Replayed())

		again, err := op.Run(t.Context(), b.store, s, key, order{Item: name, Count: 7}, unplaced(t))
		require.NoError(t, err)
		require.Equal(t, first.Value(), again.Value())
		require.True(t, again.Committed())
		require.True(t, again.Readable())
		require.True(t, again.Replayed())
		require.Equal(t, 1, b.effects(t, name))
	}
}

// TestAddressesAreApart: whatever is a part of the address makes another effect.
func TestAddressesAreApart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	plain, a := ledger.OperationOptions[order, receipt]{ID: "a"}, ledger.Platform()
	for _, one := range []struct {
		options ledger.OperationOptions[order, receipt]
		scope   ledger.Scope
		key     string
	}{
		{plain, scope(t, a, "alice"), "k"},
		{plain, scope(t, a, "alice"), "another"},
		{plain, scope(t, a, "bob"), "k"},
		{plain, scope(t, ledger.Tenant(ledgertest.TenantA), "alice"), "k"},
		{plain, scope(t, ledger.Tenant(ledgertest.TenantB), "alice"), "k"},
		{ledger.OperationOptions[order, receipt]{ID: "b"}, scope(t, a, "alice"), "k"},
		{ledger.OperationOptions[order, receipt]{ID: "a", Version: 1}, scope(t, a, "alice"), "k"},
	} {
		got, err := newOperation(t, one.options).Run(t.Context(), b.store, one.scope, clientKey(t, one.key), order{Item: "apart"}, places)
		require.NoError(t, err)
		require.False(t, got.Replayed())
	}
	require.Equal(t, 7, b.effects(t, "apart"))
}

// TestOperationKeysAreFrozen: a key that drifts runs everything again.
func TestOperationKeysAreFrozen(t *testing.T) {
	t.Parallel()
	op := newOperation(t, ledger.OperationOptions[order, receipt]{Version: 3})
	s := &seen{}
	_, err := op.Run(t.Context(), s, scope(t, ledger.Tenant(5), "alice"), clientKey(t, "golden"), order{Item: "x", Count: 1}, places)
	require.NoError(t, err)
	assert.Equal(t, "d3a438d593688812c30be439f09e04524e6b5510706f6a97d8d2df26ab16007f", s.req.Key.String())
	assert.Equal(t, "b5ff29ad0c49a41449ae490f8f2947655bc15a6011aea6e9cc35300f9c896292", s.req.Fingerprint.String())
	assert.Equal(t, ledger.Tenant(5), s.req.Owner)
	assert.Equal(t, "orders.place", s.req.Operation)
}

// seen is an executor that only looks.
type seen struct{ req ledger.Request }

func (s *seen) Config() ledger.Config { return ledger.Config{} }

func (s *seen) Execute(_ context.Context, req ledger.Request, _ ledger.Body) (ledger.Result, error) {
	s.req = req
	return ledger.Result{
		Outcome: ledger.Outcome{Encoding: ledger.JSON[receipt]().Identity(), Data: []byte(`{"number":1}`)},
		Status:  ledger.Completed, Source: ledger.LedgerReplay,
	}, nil
}

func TestAnotherInputIsAMismatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	op, s, key := placing(t), scope(t, ledger.Platform(), "alice"), clientKey(t, "k")
	_, err := op.Run(t.Context(), b.store, s, key, order{Item: "a", Count: 1}, places)
	require.NoError(t, err)
	got, err := op.Run(t.Context(), b.store, s, key, order{Item: "a", Count: 2}, unplaced(t))
	require.Equal(t, ledger.CodeMismatch, ledger.CodeOf(err))
	require.False(t, got.Committed())
}

// TestInputIsComparedInItsCanonicalForm: another order of members is the same
// request, another order of elements is not.
func TestInputIsComparedInItsCanonicalForm(t *testing.T) {
	t.Parallel()
	b := setup(t)
	op := newOperation(t, ledger.OperationOptions[any, string]{})
	s, key := scope(t, ledger.Platform(), "alice"), clientKey(t, "k")
	done := func(context.Context, pgx.Tx, any) (string, error) { return "done", nil }
	type ab struct{ A, B []int }
	type ba struct{ B, A []int }
	_, err := op.Run(t.Context(), b.store, s, key, ab{A: []int{1, 2}, B: []int{3}}, done)
	require.NoError(t, err)
	again, err := op.Run(t.Context(), b.store, s, key, ba{A: []int{1, 2}, B: []int{3}}, done)
	require.NoError(t, err)
	require.True(t, again.Replayed())
	_, err = op.Run(t.Context(), b.store, s, key, ba{A: []int{2, 1}, B: []int{3}}, done)
	require.Equal(t, ledger.CodeMismatch, ledger.CodeOf(err))
}

// TestInputIsNeverStored looks through all that the ledger keeps.
func TestInputIsNeverStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const secret = "4111-1111-1111-1111"
	quiet := func(context.Context, pgx.Tx, order) (receipt, error) { return receipt{Number: 1}, nil }
	_, err := placing(t).Run(t.Context(), b.store, scope(t, ledger.Platform(), "alice@example.org"), clientKey(t, "raw-key-of-the-client"), order{Item: secret}, quiet)
	require.NoError(t, err)
	var kept string
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT (SELECT string_agg(k::text, '') FROM platform_idempotency_keys k)
		|| coalesce((SELECT string_agg(p::text, '') FROM platform_idempotency_payloads p), '')`).Scan(&kept))
	require.NotEmpty(t, kept)
	for _, text := range []string{secret, "alice", "raw-key"} {
		require.NotContains(t, kept, text)
	}
}

func TestHandlersErrorComesOutAsItIs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	op, s, key := placing(t), scope(t, ledger.Platform(), "alice"), clientKey(t, "k")
	broken := errors.New("out of stock")
	got, err := op.Run(t.Context(), b.store, s, key, order{Item: "a"}, func(ctx context.Context, tx pgx.Tx, o order) (receipt, error) {
		require.NoError(t, ledgertest.Write(ctx, tx, o.Item))
		return receipt{}, broken
	})
	require.Equal(t, broken, err)
	require.False(t, got.Committed())
	require.Zero(t, b.effects(t, "a"))
	_, err = op.Run(t.Context(), b.store, s, key, order{Item: "a"}, places)
	require.NoError(t, err)
	require.Equal(t, 1, b.effects(t, "a"))
}

func TestResultThatCanNotBeReplayedIsRolledBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	op := newOperation(t, ledger.OperationOptions[string, any]{})
	for name, result := range map[string]any{
		"a function":       func() {},
		"too exact":        int64(1)<<53 + 1,
		"not a number":     map[string]any{"x": nan()},
		"a nested channel": []any{make(chan int)},
	} {
		_, err := op.Run(t.Context(), b.store, scope(t, ledger.Platform(), "alice"), clientKey(t, name), name, func(ctx context.Context, tx pgx.Tx, name string) (any, error) {
			return result, ledgertest.Write(ctx, tx, name)
		})
		require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err), name)
		require.ErrorContains(t, err, "nothing was committed", name)
		require.Zero(t, b.effects(t, name), name)
	}
}

func nan() float64 { zero := 0.0; return zero / zero }

func TestRunRefusesWhatWasNeverMade(t *testing.T) {
	t.Parallel()
	_, err := (&ledger.Operation[order, receipt]{}).Run(t.Context(), nil, ledger.Scope{}, ledger.ClientKey{}, order{}, nil)
	require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err))
	for _, text := range []string{"use NewOperation", "the executor is nil", "use NewScope", "use ParseClientKey", "the handler is nil"} {
		require.ErrorContains(t, err, text)
	}
	var op *ledger.Operation[order, receipt]
	_, err = op.Run(t.Context(), nil, ledger.Scope{}, ledger.ClientKey{}, order{}, nil)
	require.ErrorContains(t, err, "use NewOperation")
}

func TestNewOperationNamesAllFaults(t *testing.T) {
	t.Parallel()
	_, err := ledger.NewOperation(ledger.OperationOptions[order, chan int]{ID: "a b", Isolation: "chaos", Retention: 1})
	for _, text := range []string{
		"OperationOptions.ID has the byte 0x20", "OperationOptions.Encoding: the type chan int has no JSON form",
		"OperationOptions.Isolation is unknown", "OperationOptions.Retention is 1ns: use at least 1s",
	} {
		require.ErrorContains(t, err, text)
	}
	_, err = ledger.NewOperation(ledger.OperationOptions[order, receipt]{})
	require.ErrorContains(t, err, "OperationOptions.ID has 0 bytes: use 1 to 128")
}

func TestInputWithoutAFormIsRefused(t *testing.T) {
	t.Parallel()
	op := newOperation(t, ledger.OperationOptions[func(), receipt]{})
	_, err := op.Run(t.Context(), &seen{}, scope(t, ledger.Platform(), "alice"), clientKey(t, "k"), func() {}, func(context.Context, pgx.Tx, func()) (receipt, error) {
		return receipt{}, nil
	})
	require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err))
	require.ErrorContains(t, err, "the input of type func() has no canonical form: set OperationOptions.Fingerprint")
	require.Error(t, errors.Unwrap(err))
}
