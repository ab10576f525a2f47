package ledger_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/ledger"
)

// The second versions of receipt: what the next deploy may make of it.
type (
	withOptional struct {
		Number int64  `json:"number"`
		Note   string `json:"note,omitempty"`
		Place  string `json:"place,omitempty"`
	}
	reordered struct {
		Note   string `json:"note,omitempty"`
		Number int64  `json:"number"`
	}
	withRequired struct {
		Number int64  `json:"number"`
		Note   string `json:"note,omitempty"`
		Place  string `json:"place"`
	}
	withoutNote struct {
		Number int64 `json:"number"`
	}
	respelled struct {
		Number int64  `json:"Number"`
		Note   string `json:"note,omitempty"`
	}
	retyped struct {
		Number string `json:"number"`
		Note   string `json:"note,omitempty"`
	}
	narrowed struct {
		Number int8   `json:"number"`
		Note   string `json:"note,omitempty"`
	}
)

// replays runs an operation once with one type of result, and again, after a
// deploy, with another.
func replays[O any](t *testing.T, b *bundle, name string) (ledger.Answer[O], error) {
	t.Helper()
	s, key := scope(t, ledger.Platform(), "alice"), clientKey(t, name)
	before := newOperation(t, ledger.OperationOptions[string, receipt]{})
	_, err := before.Run(t.Context(), b.store, s, key, "in", func(context.Context, pgx.Tx, string) (receipt, error) {
		return receipt{Number: 1000, Note: "n"}, nil
	})
	require.NoError(t, err)
	after := newOperation(t, ledger.OperationOptions[string, O]{})
	return after.Run(t.Context(), b.store, s, key, "in", func(context.Context, pgx.Tx, string) (O, error) {
		t.Error("the handler ran")
		var none O
		return none, errors.New("the handler ran")
	})
}

func TestOutcomeOfAnotherIdentityIsReplayedIfItIsHeldExactly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	optional, err := replays[withOptional](t, b, "optional")
	require.NoError(t, err)
	require.Equal(t, withOptional{Number: 1000, Note: "n"}, optional.Value())
	require.NotEqual(t, ledger.JSON[receipt]().Identity(), ledger.JSON[withOptional]().Identity())
	other, err := replays[reordered](t, b, "reordered")
	require.NoError(t, err)
	require.Equal(t, reordered{Number: 1000, Note: "n"}, other.Value())
	require.Equal(t, ledger.JSON[receipt]().Identity(), ledger.JSON[reordered]().Identity())
}

func TestOutcomeOfAnotherIdentityIsElseUnavailable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	refused[withRequired](t, b, "required")
	refused[withoutNote](t, b, "without note")
	refused[respelled](t, b, "respelled")
	refused[retyped](t, b, "retyped")
	refused[narrowed](t, b, "narrowed")
	refused[[]receipt](t, b, "another kind")
	refused[*string](t, b, "a pointer")
}

func refused[O any](t *testing.T, b *bundle, name string) {
	t.Helper()
	got, err := replays[O](t, b, name)
	assert.Equal(t, ledger.CodeUnavailable, ledger.CodeOf(err), name)
	assert.ErrorContains(t, err, "the effect has happened and isn't run again", name)
	assert.NotContains(t, err.Error(), "1000", name)
	assert.NotContains(t, fmt.Sprint(errors.Unwrap(err)), "1000", name)
	assert.True(t, got.Committed(), name)
	assert.True(t, got.Replayed(), name)
	assert.False(t, got.Readable(), name)
	assert.Zero(t, got.Value(), name)
}

func TestOutcomeOfAnUnknownVersionIsUnavailable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	op, s, key := placing(t), scope(t, ledger.Platform(), "alice"), clientKey(t, "k")
	_, err := op.Run(t.Context(), b.store, s, key, order{Item: "a"}, places)
	require.NoError(t, err)
	for _, outcome := range []string{
		`{"d": "e30=", "e": "json/1", "v": 2}`,                                  // of the row's form
		`{"d": "e30=", "e": "json/9:00000000000000000000000000000000", "v": 1}`, // of the encoding
		`{"e": "json/1:00000000000000000000000000000000", "v": 1}`,              // no result
	} {
		b.exec(t, "UPDATE platform_idempotency_keys SET outcome = $1::text::jsonb", outcome)
		_, err = op.Run(t.Context(), b.store, s, key, order{Item: "a"}, unplaced(t))
		require.Equal(t, ledger.CodeUnavailable, ledger.CodeOf(err), outcome)
		require.ErrorContains(t, err, "the effect has happened and isn't run again")
	}
	require.Equal(t, 1, b.effects(t, "a"))
}

// big writes an int64 as eight bytes.
func big(version uint32, limit int) ledger.EncodingOptions[int64] {
	return ledger.EncodingOptions[int64]{
		Form: "big-endian", Contract: "int64, eight bytes", Version: version, MaxBytes: limit,
		Encode: func(v int64) ([]byte, error) { return binary.BigEndian.AppendUint64(nil, uint64(v)), nil }, //nolint:gosec // the bits are kept
		Decode: func(b []byte) (int64, error) {
			if len(b) != 8 {
				return 0, errors.New("not eight bytes")
			}
			return int64(binary.BigEndian.Uint64(b)), nil //nolint:gosec // the bits are kept
		},
	}
}

func TestEncodingByExplicitFunctions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, key := scope(t, ledger.Platform(), "alice"), clientKey(t, "k")
	run := func(o ledger.EncodingOptions[int64], key ledger.ClientKey) (ledger.Answer[int64], error) {
		e, err := ledger.NewEncoding(o)
		require.NoError(t, err)
		op := newOperation(t, ledger.OperationOptions[string, int64]{Encoding: e})
		return op.Run(t.Context(), b.store, s, key, "in", func(context.Context, pgx.Tx, string) (int64, error) { return -7, nil })
	}
	first, err := run(big(1, 0), key)
	require.NoError(t, err)
	require.EqualValues(t, -7, first.Value())
	again, err := run(big(2, 0), key) // another identity, exactly the same bytes
	require.NoError(t, err)
	require.True(t, again.Replayed())
	require.EqualValues(t, -7, again.Value())

	short := big(1, 0)
	short.Decode = func([]byte) (int64, error) { return 3, nil } // reads anything, and not exactly
	_, err = run(short, key)
	require.NoError(t, err, "its own identity is trusted")
	short.Version = 2
	_, err = run(short, key)
	require.Equal(t, ledger.CodeUnavailable, ledger.CodeOf(err))

	_, err = run(big(1, 7), clientKey(t, "too large"))
	require.Equal(t, ledger.CodeResultTooLarge, ledger.CodeOf(err))
	require.ErrorContains(t, err, "the result has 8 bytes, the limit of its encoding is 7; nothing was committed")
	_, err = run(big(1, 7), key)
	require.Equal(t, ledger.CodeUnavailable, ledger.CodeOf(err), "a recorded one over the limit")
	none := big(3, 0)
	none.Decode = func([]byte) (int64, error) { return 0, errors.New("never") }
	_, err = run(none, clientKey(t, "unreadable"))
	require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err), "it could never be replayed")
}

func TestNewEncodingNamesAllFaults(t *testing.T) {
	t.Parallel()
	_, err := ledger.NewEncoding(ledger.EncodingOptions[int]{Form: "Pro to", MaxBytes: -1})
	for _, text := range []string{"Form has the byte 0x50", "Contract is empty", "Encode is nil", "Decode is nil", "MaxBytes is -1"} {
		require.ErrorContains(t, err, text)
	}
	_, err = ledger.NewEncoding(ledger.EncodingOptions[int]{})
	require.ErrorContains(t, err, "Form has 0 bytes")
}

// tree is a type within itself.
type tree struct {
	Leaves []tree          `json:"leaves,omitempty"`
	At     time.Time       `json:"at"`
	Raw    json.RawMessage `json:"raw,omitempty"`
	Any    map[string]any  `json:"any,omitempty"`
	By     [2]*int         `json:"by"`
	hidden int
}

// TestIdentitiesAreFrozen: one that drifts makes recorded results another's.
func TestIdentitiesAreFrozen(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "json/1:f729e092c301c7c5a75e5bd795703996", ledger.JSON[receipt]().Identity())
	assert.Equal(t, "json/1:f42781cdfcbae62664da1c657f0b6228", ledger.JSON[tree]().Identity())
	e, err := ledger.NewEncoding(big(2, 0))
	require.NoError(t, err)
	assert.Equal(t, "big-endian/2:6491a0df536e70c88ddbd6b0ce4ff3a3", e.Identity())
	_ = tree{}.hidden
}

func TestTypesOfAnotherFormHaveAnotherIdentity(t *testing.T) {
	t.Parallel()
	all := map[string]string{}
	for name, identity := range map[string]string{
		"int":     ledger.JSON[int]().Identity(),
		"int64":   ledger.JSON[int64]().Identity(),
		"string":  ledger.JSON[string]().Identity(),
		"ints":    ledger.JSON[[]int]().Identity(),
		"three":   ledger.JSON[[3]int]().Identity(),
		"pointer": ledger.JSON[*int]().Identity(),
		"map":     ledger.JSON[map[string]int]().Identity(),
		"any":     ledger.JSON[any]().Identity(),
		"time":    ledger.JSON[time.Time]().Identity(),
		"struct":  ledger.JSON[struct{ A int }]().Identity(),
		"omitempty": ledger.JSON[struct {
			A int `json:",omitempty"`
		}]().Identity(),
		"quoted": ledger.JSON[struct {
			A int `json:",string"`
		}]().Identity(),
		"renamed": ledger.JSON[struct {
			A int `json:"a"`
		}]().Identity(),
		"embedded": ledger.JSON[struct{ receipt }]().Identity(),
		"tree":     ledger.JSON[tree]().Identity(),
	} {
		assert.Empty(t, all[identity], name)
		all[identity] = name
	}
}
