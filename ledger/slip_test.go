package ledger_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/wire"
	"github.com/effectonce/effectonce/ledger"
)

// slips are the ways round the guard: through the connection below.
var slips = map[string][]string{
	"committed":                      {"commit"},
	"committed and begun again":      {"commit", "begin", "insert into effects (name) values ('later')"},
	"committed with chain":           {"commit and chain"},
	"rolled back":                    {"rollback"},
	"rolled back and begun again":    {"rollback", "begin", "insert into effects (name) values ('later')"},
	"rolled back, then autocommited": {"rollback", "insert into effects (name) values ('later')"},
}

func slip(ctx context.Context, t *testing.T, sql []string) error {
	t.Helper()
	tx, err := ledger.Tx(ctx)
	if err != nil {
		return err
	}
	for _, s := range sql {
		_, err := tx.Conn().Exec(ctx, s)
		assert.NoError(t, err)
	}
	return nil
}

// TestWhatSlipsThroughConnIsFoundOutAndBarred: however the body ends.
func TestWhatSlipsThroughConnIsFoundOutAndBarred(t *testing.T) {
	t.Parallel()
	for name, sql := range slips {
		for _, end := range []string{"returns", "fails", "fails unrecorded", "panics"} {
			for _, taken := range []bool{false, true} {
				t.Run(name+", "+end+map[bool]string{true: ", taken over", false: ""}[taken], func(t *testing.T) {
					t.Parallel()
					b := setup(t)
					req := request("a")
					if end != "fails unrecorded" {
						req = records(req)
					}
					req.RerunPermanent = true // even this policy must not run it again
					if taken {
						b.leased(t, req, -1)
					}
					execute := func() (_ ledger.Result, err error) {
						defer func() {
							if r := recover(); r != nil {
								assert.Equal(t, "slipped", r)
								err = errors.New("panicked")
							}
						}()
						return b.execute(t, req, func(ctx context.Context) (ledger.Outcome, error) {
							if err := slip(ctx, t, sql); err != nil {
								return ledger.Outcome{}, err
							}
							switch end {
							case "returns":
								return outcome("did a"), nil
							case "panics":
								panic("slipped")
							default:
								return ledger.Outcome{}, errBody
							}
						})
					}
					_, err := execute()
					if name == "rolled back and begun again" && end != "returns" {
						// Nothing of it stands: as if it had only failed.
						require.Error(t, err)
						require.Empty(t, ledger.CodeOf(err))
						require.Zero(t, b.effects(t, "later"))
						return
					}
					if end != "panics" {
						require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err), "%v", err)
						require.False(t, ledger.CodeOf(err).Retryable())
						require.ErrorContains(t, err, "ended the ledger's transaction itself")
					}

					r, err := b.execute(t, req, never(t))
					require.NoError(t, err)
					require.Equal(t, ledger.FailedPermanent, r.Status)
					require.Equal(t, ledger.BarredEncoding, r.Outcome.Encoding)
				})
			}
		}
	}
}

// TestSlippedAndThenInDoubt: the body has committed by itself, and then the
// connection dies at the ledger's own COMMIT.
func TestSlippedAndThenInDoubt(t *testing.T) {
	t.Parallel()
	w := setupWired(t)
	req := records(request("a"))
	_, err := w.execute(t, req, func(ctx context.Context) (ledger.Outcome, error) {
		if err := slip(ctx, t, slips["committed and begun again"]); err != nil {
			return ledger.Outcome{}, err
		}
		w.proxy.Arm(wire.Rule{Match: wire.Commit(), Action: wire.CutBefore})
		return outcome("did a"), nil
	})
	require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err), "%v", err)
	require.False(t, ledger.InDoubt(err))
	r, err := w.execute(t, req, never(t))
	require.NoError(t, err)
	require.Equal(t, ledger.BarredEncoding, r.Outcome.Encoding)
}

// TestTheBarsOwnConnectionDies: the key is barred on another one.
func TestTheBarsOwnConnectionDies(t *testing.T) {
	t.Parallel()
	w := setupWired(t)
	req := records(request("a"))
	lost := w.proxy.Arm(wire.Rule{Match: wire.Contains("idempotency_bar"), Action: wire.CutBefore})
	_, err := w.execute(t, req, func(ctx context.Context) (ledger.Outcome, error) {
		return outcome("did a"), slip(ctx, t, slips["committed"])
	})
	<-lost.Fired()
	require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err), "%v", err)
	r, err := w.execute(t, req, never(t))
	require.NoError(t, err)
	require.Equal(t, ledger.BarredEncoding, r.Outcome.Encoding)
}
