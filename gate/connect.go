package gate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/valkey-io/valkey-go"
)

var (
	errNotConnected = errors.New("gate: not connected")
	errClosed       = errors.New("gate: it is closed")
	errRefused      = errors.New("gate: Valkey answers and refuses")
)

// connect makes the client, unless there is one, and makes sure of the rights
// that the gate needs. It may take as long as the dialer's timeout, and so never
// runs on a caller's own goroutine.
func (g *Gate) connect() (valkey.Client, error) {
	if c := g.client.Load(); c != nil {
		return *c, nil
	}
	if !g.dialing.TryLock() {
		return nil, errNotConnected
	}
	defer g.dialing.Unlock()
	if c := g.client.Load(); c != nil {
		return *c, nil
	}
	client, err := valkey.NewClient(g.config.Valkey)
	if err == nil {
		if err = g.check(client); err != nil {
			client.Close()
		}
	}
	if err == nil {
		g.refusal = ""
		g.client.Store(&client)
		return client, nil
	}
	if cure := g.cure(err); cure != "" {
		err = fmt.Errorf("%w: %s: %w", errRefused, cure, err)
		if g.refusal != err.Error() { // said once, not at each probe
			g.refusal = err.Error()
			g.config.Logger.Error("gate can't be used", "error", err)
		}
		return nil, err
	}
	return nil, fmt.Errorf("gate: connect: %w", err)
}

// check uses each right that the gate needs, and reads the server's clock.
func (g *Gate) check(client valkey.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
	defer cancel()
	key := g.config.Prefix + "start/" + rand.Text()
	replies := client.DoMulti(ctx,
		client.B().Set().Key(key).Value("1").Nx().Get().PxMilliseconds(StartTimeout.Milliseconds()).Build(),
		client.B().Pttl().Key(key).Build(),
		client.B().Eval().Script(releaseScript).Numkeys(1).Key(key).Arg("1").Build(),
		client.B().Eval().Script(publishScript).Numkeys(1).Key(key).Arg("1", "1").Build(), // ended long ago
	)
	for _, r := range replies {
		if err := r.Error(); err != nil && !valkey.IsValkeyNil(err) {
			return err
		}
	}
	now, err := replies[len(replies)-1].AsInt64()
	if err != nil {
		return err
	}
	g.clock.set(now)
	return nil
}

// cure says what to do about a refusal that doesn't pass by itself; "" of any
// other error. Valkey's errors are told apart by their first word.
func (g *Gate) cure(err error) string {
	refusal, ok := valkey.IsValkeyErr(err)
	if !ok {
		return ""
	}
	switch word, _, _ := strings.Cut(refusal.Error(), " "); word {
	case "LOADING", "BUSY", "MISCONF", "OOM", "READONLY", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK":
		return ""
	case "max": // number of clients reached
		return ""
	case "WRONGPASS", "NOAUTH":
		return "correct Config.Valkey.Username and Config.Valkey.Password, or what AuthCredentialsFn returns"
	case "DENIED":
		return "give the server a password, and set Config.Valkey.Password"
	default:
		return fmt.Sprintf("Config.Valkey must name a Valkey of 7.2 and up or a Redis of 7.0 and up, and its Username be allowed +set +get +pttl +del +eval +time ~%s*", g.config.Prefix)
	}
}
