package main

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/ledger"
)

// tree shows the spans of one transfer whose activity was replayed.
func (d *demo) tree(spans []span) {
	i := slices.IndexFunc(spans, func(s span) bool {
		return s.Name == gate.SpanName && s.Attributes.get(gate.AttrOutcome) == string(ledger.LedgerReplay)
	})
	if i < 0 {
		return
	}
	trace := spans[i].SpanContext.TraceID
	children := map[string][]span{}
	var workflow string
	for _, s := range spans {
		if s.SpanContext.TraceID == trace {
			children[s.Parent.SpanID] = append(children[s.Parent.SpanID], s)
			workflow = cmp.Or(workflow, s.Attributes.get("temporalWorkflowID"))
		}
	}
	d.title("The spans of " + strings.TrimPrefix(workflow, d.id+"-") + ", whose activity was delivered again")
	var show func(parent, indent string)
	show = func(parent, indent string) {
		slices.SortFunc(children[parent], func(a, b span) int { return a.StartTime.Compare(b.StartTime) })
		for _, s := range children[parent] {
			d.print(fmt.Sprintf("  %-46s %-10s %s", indent+s.Name, s.Resource.get(attrProcess), d.took(s)))
			if s.Name == gate.SpanName && s.ended() {
				d.print(fmt.Sprintf("  %s  delivery %s: %s of row %s, attempt %s", indent, s.Attributes.get(gate.AttrDelivery),
					s.Attributes.get(gate.AttrOutcome), s.Attributes.get(gate.AttrRowID), s.Attributes.get(gate.AttrAttempt)))
			}
			show(s.SpanContext.SpanID, indent+"  ")
		}
	}
	show(noParent, "")
	if ui := d.temporal.UIAddress(); ui != "" {
		d.print("\n  in Temporal's UI, while it runs (KEEP=1 make demo):")
		d.print("  http://" + ui + "/namespaces/" + d.temporal.Namespace() + "/workflows/" + url.PathEscape(workflow))
	}
}

// noParent is a root's parent.
const noParent = "0000000000000000"

func (d *demo) took(s span) string {
	switch {
	case s.ended():
		return s.EndTime.Sub(s.StartTime).Round(10 * time.Microsecond).String()
	case slices.Contains(d.killed[with], s.Resource.get(attrProcess)):
		return "killed"
	default:
		return "never ended"
	}
}
