package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Look reads a key's row outside any transaction; false when there is none.
// One round trip.
func (s *Store) Look(ctx context.Context, ref Ref) (Row, bool, error) {
	if err := s.enter(); err != nil {
		return Row{}, false, err
	}
	defer s.active.Done()
	return s.look(ctx, ref)
}

func (s *Store) look(ctx context.Context, ref Ref) (Row, bool, error) {
	for try := 0; ; try++ {
		row, ok, err := s.lookOnce(ctx, ref)
		if err == nil {
			return row, ok, nil
		}
		if ctx.Err() != nil {
			return Row{}, false, fmt.Errorf("ledger: look: %w", ctx.Err())
		}
		if CodeOf(err) != "" {
			return Row{}, false, err
		}
		if !lost(err) || try+1 == maxTries || s.pause(ctx, try) != nil {
			return Row{}, false, unavailable("look", err)
		}
	}
}

func (s *Store) lookOnce(ctx context.Context, ref Ref) (Row, bool, error) {
	conn, err := s.acquire(ctx)
	if err != nil {
		return Row{}, false, err
	}
	defer conn.Release()
	var (
		row         = Row{Identity: conn.identity}
		fingerprint []byte
		column      string
		payload     []byte
		left        int64
	)
	err = conn.QueryRow(ctx, s.statements(ref.Owner).look, ownerArgs(ref.Owner, ref.Key[:])...).
		Scan(&row.ID, &row.Attempt, &row.Status, &fingerprint, &column, &payload, &left)
	if errors.Is(err, pgx.ErrNoRows) {
		return Row{}, false, nil
	}
	if err != nil {
		return Row{}, false, err
	}
	copy(row.Fingerprint[:], fingerprint)
	row.Left = time.Duration(left) * time.Millisecond
	if row.Status != Processing {
		if row.Outcome, row.barred, err = decodeOutcome(column, payload); err != nil {
			return Row{}, false, err
		}
	}
	return row, true, nil
}
