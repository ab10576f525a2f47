package ledger

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
)

// Status is the state of a row.
type Status string

// The states of a row, as the column status holds them.
const (
	Processing      Status = "processing"
	Completed       Status = "completed"
	FailedRetryable Status = "failed_retryable"
	FailedPermanent Status = "failed_permanent"
)

// Finished reports whether the status may be replayed.
func (s Status) Finished() bool { return s == Completed || s == FailedPermanent }

// Outcome is what an execution leaves behind: bytes in an encoding that its
// owner names. It prints redacted under every format verb.
type Outcome struct {
	// Encoding names how Data is to be read. Printable ASCII without quotes and
	// backslashes, at most 64 bytes.
	Encoding string
	// Data is the encoded result. nil means that there is no result at all,
	// which is kept apart from an empty one.
	Data []byte
}

// Format implements fmt.Formatter: it prints the encoding and the size, never
// the data.
func (o Outcome) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "ledger.Outcome{Encoding: %q, Data: %d bytes (redacted)}", o.Encoding, len(o.Data))
}

// LogValue implements slog.LogValuer: the encoding and the size.
func (o Outcome) LogValue() slog.Value {
	return slog.GroupValue(slog.String("encoding", o.Encoding), slog.Int("bytes", len(o.Data)))
}

// maxInline is how long the rendered outcome may be in the key's own row
// (CHECK T_outcome_check); what is longer goes to the side table.
const maxInline = 4096

// wire is the outcome column. Its members are in the order in which jsonb
// renders them, and its text is rendered here exactly as jsonb would, so that
// its length is known before the server sees it.
type wire struct {
	Data     *string `json:"d"`           // base64; absent: no result, or it stands in the side table
	Encoding string  `json:"e"`           // the outcome's encoding
	Side     *int    `json:"n,omitempty"` // bytes in the side table
	Version  int     `json:"v"`           // of this form
	Barred   bool    `json:"x"`           // never run again, whatever the policy
}

// markerEncoding is the encoding of an outcome whose data was not kept.
const markerEncoding = "effectonce/marker"

// kept is what the row gets of an outcome.
func (r *Request) kept(o Outcome) Outcome {
	if r.Marker && o.Data != nil {
		return Outcome{Encoding: markerEncoding}
	}
	return o
}

// encode renders the outcome column, and the side table's payload where the
// outcome doesn't fit its row.
func (o Outcome) encode(barred bool) (column string, payload []byte) {
	column = o.render(barred, false)
	if len(column) <= maxInline {
		return column, nil
	}
	return o.render(barred, true), o.Data
}

func (o Outcome) render(barred, side bool) string {
	n := len(o.Encoding) + 48
	if !side {
		n += base64.StdEncoding.EncodedLen(len(o.Data))
	}
	b := make([]byte, 0, n)
	b = append(b, '{')
	if o.Data != nil && !side {
		b = append(b, `"d": "`...)
		b = base64.StdEncoding.AppendEncode(b, o.Data)
		b = append(b, `", `...)
	}
	b = append(b, `"e": "`...)
	b = append(b, o.Encoding...)
	b = append(b, '"')
	if side {
		b = append(b, `, "n": `...)
		b = strconv.AppendInt(b, int64(len(o.Data)), 10)
	}
	b = append(b, `, "v": 1`...)
	if barred {
		b = append(b, `, "x": true`...)
	}
	return string(append(b, '}'))
}

// decodeOutcome reads what encode rendered; barred says that the row is never
// to run again.
func decodeOutcome(column string, payload []byte) (o Outcome, barred bool, err error) {
	var w wire
	if err := json.Unmarshal([]byte(column), &w); err != nil {
		return Outcome{}, false, corrupt(fmt.Errorf("ledger: decode outcome: %w", err))
	}
	if w.Version != 1 || validEncoding(w.Encoding) != nil {
		return Outcome{}, false, corrupt(fmt.Errorf("ledger: decode outcome: version %d is unknown or the encoding is not named", w.Version))
	}
	o = Outcome{Encoding: w.Encoding}
	switch {
	case w.Side != nil:
		if len(payload) != *w.Side {
			return Outcome{}, false, corrupt(fmt.Errorf("ledger: decode outcome: %d bytes in the side table, want %d", len(payload), *w.Side))
		}
		o.Data = payload
	case w.Data != nil:
		data, err := base64.StdEncoding.AppendDecode(make([]byte, 0, base64.StdEncoding.DecodedLen(len(*w.Data))), []byte(*w.Data))
		if err != nil {
			return Outcome{}, false, corrupt(fmt.Errorf("ledger: decode outcome: %w", err))
		}
		o.Data = data
	}
	return o, w.Barred, nil
}

func corrupt(cause error) *Error {
	return NewError(CodeUnavailable, "the recorded outcome can't be read: it was written by a newer version or changed by hand; the effect has happened and isn't run again", cause)
}

func validEncoding(s string) error {
	if s == "" || len(s) > 64 {
		return fmt.Errorf("encoding of %d bytes: name it in 1 to 64 bytes", len(s))
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return fmt.Errorf("encoding with the byte 0x%02x: use printable ASCII without quotes and backslashes", c)
		}
	}
	return nil
}
