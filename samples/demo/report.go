package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/ledger"
)

// figures are the demo's last line.
type figures struct {
	// Executions are the activity executions that have finished with the plugin,
	// Effects the rows that they have left.
	Executions int `json:"executions"`
	Effects    int `json:"effects"`
	// DoubledWithout are the transfers that happened more than once without it.
	DoubledWithout int `json:"doubled_without"`
	// KilledAfterCommit are the workers killed after a COMMIT, with the plugin.
	KilledAfterCommit int `json:"killed_after_commit"`
	// Doubled and Lost are the transfers that happened more than once, and never,
	// with the plugin.
	Doubled int `json:"doubled"`
	Lost    int `json:"lost"`
	// GateHits and LedgerReplays are the deliveries that Valkey and PostgreSQL
	// have answered, Degraded those for which Valkey was asked in vain.
	GateHits      int `json:"gate_hits"`
	LedgerReplays int `json:"ledger_replays"`
	Degraded      int `json:"degraded"`
	// WrongReceipts are the transfers, with the plugin, whose workflow was told
	// of another row than the one that is there.
	WrongReceipts int `json:"wrong_receipts"`
}

// verdict is an error unless each figure is what it has to be.
func (f figures) verdict() error {
	var wrong []string
	for name, n := range map[string]int{"doubled": f.Doubled, "lost": f.Lost, "wrong_receipts": f.WrongReceipts} {
		if n != 0 {
			wrong = append(wrong, name)
		}
	}
	for name, n := range map[string]int{
		"executions": f.Executions, "effects": f.Effects, "doubled_without": f.DoubledWithout,
		"killed_after_commit": f.KilledAfterCommit, "gate_hits": f.GateHits,
		"ledger_replays": f.LedgerReplays, "degraded": f.Degraded,
	} {
		if n < 1 {
			wrong = append(wrong, name)
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("not as it should be: %s", strings.Join(wrong, ", "))
	}
	return nil
}

// effects are what one half's transfers have left in the database.
type effects struct {
	rows      int
	transfers int // that have a row
	doubled   int // that have more than one
	example   string
	entries   map[string]int64 // the first row of each transfer
}

func (d *demo) effects(ctx context.Context, half string) (e effects, err error) {
	rows, err := d.pool.Query(ctx, `SELECT transfer, count(*), min(entry) FROM transfers
WHERE starts_with(transfer, $1) GROUP BY transfer ORDER BY transfer`, half+"-")
	if err != nil {
		return e, err
	}
	defer rows.Close()
	e.entries = map[string]int64{}
	for rows.Next() {
		var transfer string
		var count int
		var entry int64
		if err := rows.Scan(&transfer, &count, &entry); err != nil {
			return e, err
		}
		e.rows += count
		e.transfers++
		if count > 1 {
			e.doubled++
			e.example = transfer
		}
		e.entries[transfer] = entry
	}
	return e, rows.Err()
}

// report looks at what has happened, and shows it. Nobody works any more.
func (d *demo) report(ctx context.Context) (f figures, err error) {
	d.tracing.close(ctx)
	spans, err := d.spans.all()
	if err != nil {
		return f, err
	}
	bare, err := d.effects(ctx, without)
	if err != nil {
		return f, err
	}
	once, err := d.effects(ctx, with)
	if err != nil {
		return f, err
	}
	f = figures{
		Executions: d.started[with], Effects: once.rows, DoubledWithout: bare.doubled, KilledAfterCommit: len(d.killed[with]),
		Doubled: once.doubled, Lost: d.started[with] - once.transfers,
	}
	for id, entry := range once.entries {
		if d.receipts[id].Entry != entry {
			f.WrongReceipts++
		}
	}
	for _, s := range spans {
		if s.Name != gate.SpanName || !s.ended() {
			continue
		}
		switch ledger.Source(s.Attributes.get(gate.AttrOutcome)) {
		case ledger.GateReplay:
			f.GateHits++
		case ledger.LedgerReplay:
			f.LedgerReplays++
		}
		if s.Attributes.get(gate.AttrDegraded) != "" {
			f.Degraded++
		}
	}
	d.tree(spans)
	d.table(f, bare)
	return f, nil
}

func (d *demo) table(f figures, bare effects) {
	d.title(fmt.Sprintf("%-44s %12s %12s", "", "without", "with"))
	row := func(name string, left, right any) { d.print(fmt.Sprintf("%-44s %12v %12v", name, left, right)) }
	row("transfers asked for", d.started[without], f.Executions)
	row("workers killed after a COMMIT", len(d.killed[without]), f.KilledAfterCommit)
	row("transfers in the database", bare.rows, f.Effects)
	row("happened twice", f.DoubledWithout, f.Doubled)
	row("lost", d.started[without]-bare.transfers, f.Lost)
	row("told of another row than the one there is", "", f.WrongReceipts)
	row("answered from Valkey, not run again", "", f.GateHits)
	row("answered from PostgreSQL, not run again", "", f.LedgerReplays)
	row("decided while Valkey was away", "", f.Degraded)
}

// last is the last line.
func (d *demo) last(f figures) {
	line, err := json.Marshal(f)
	if err != nil {
		panic(err) // numbers can be written
	}
	d.print("\n" + string(line))
}

func (d *demo) remember(half, worker string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.killed[half] = append(d.killed[half], worker)
}
