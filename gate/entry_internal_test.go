package gate

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/ledger"
)

// samples are entries at the edges of what may be written.
func samples() []Entry {
	text := ledger.Outcome{Encoding: "x", Data: []byte("result")}
	return []Entry{
		{RowID: 1, Attempt: 1, Status: ledger.Completed, Outcome: text},
		{RowID: 1, Attempt: 1, Status: ledger.FailedPermanent, Outcome: text},
		{RowID: math.MaxInt64, Attempt: math.MaxInt32, Status: ledger.Completed, Outcome: text, Fingerprint: ledger.Fingerprint{1, 255}},
		{RowID: 2, Attempt: 3, Status: ledger.Completed, Outcome: ledger.Outcome{Encoding: strings.Repeat("~", 64)}},
		{RowID: 2, Attempt: 3, Status: ledger.Completed, Outcome: ledger.Outcome{Encoding: "no data is apart from none", Data: []byte{}}},
		{RowID: 2, Attempt: 3, Status: ledger.Completed, Outcome: ledger.Outcome{Encoding: "x", Data: []byte{0, 1, 255, 'e', '1'}}},
	}
}

func TestEntriesAndTokensComeBack(t *testing.T) {
	t.Parallel()
	for _, e := range samples() {
		token, entry, err := decode([]byte(e.encode()))
		require.NoError(t, err)
		require.Nil(t, token)
		require.Equal(t, &e, entry)
	}
	for _, mine := range []Token{newToken(true, 1), newToken(false, math.MaxInt32), newToken(true, 0), {}} {
		token, entry, err := decode([]byte(mine.encode()))
		require.NoError(t, err)
		require.Nil(t, entry)
		require.Equal(t, &mine, token)
	}
}

// TestTheWireForms are frozen: another version of this library meets them.
func TestTheWireForms(t *testing.T) {
	t.Parallel()
	fingerprint := ledger.Fingerprint(bytes.Repeat([]byte{'f'}, 32))
	e := Entry{RowID: 255, Attempt: 16, Status: ledger.Completed, Fingerprint: fingerprint, Outcome: ledger.Outcome{Encoding: "enc", Data: []byte("data")}}
	require.Equal(t, "e1"+"00000000000000ff"+"00000010"+"2"+strings.Repeat("f", 32)+"\x03enc"+"\x01data", e.encode())
	e.Status, e.Outcome.Data = ledger.FailedPermanent, nil
	require.Equal(t, "e1"+"00000000000000ff"+"00000010"+"1"+strings.Repeat("f", 32)+"\x03enc"+"\x00", e.encode())
	require.Equal(t, "t1\x01\x00\x00\x00\x07"+strings.Repeat("i", 16), Token{Derived: true, Delivery: 7, ID: [16]byte(bytes.Repeat([]byte{'i'}, 16))}.encode())
}

// TestWhatIsCutOrLongerIsRefused: no prefix of an entry or token is one.
func TestWhatIsCutOrLongerIsRefused(t *testing.T) {
	t.Parallel()
	whole := samples()[3].encode() // without data: nothing may follow it
	token := newToken(true, 1).encode()
	for _, b := range []string{whole, token} {
		for n := range len(b) {
			_, _, err := decode([]byte(b[:n]))
			require.ErrorIs(t, err, errForeign, n)
		}
		_, _, err := decode([]byte(b + "x"))
		require.ErrorIs(t, err, errForeign)
	}
}

// FuzzDecode: it never panics, and takes exactly what encode writes.
func FuzzDecode(f *testing.F) {
	for _, e := range samples() {
		f.Add([]byte(e.encode()))
	}
	f.Add([]byte(newToken(true, 1).encode()))
	f.Add([]byte{})
	f.Add([]byte("e1" + strings.Repeat("0", 100)))
	f.Add([]byte("e1" + "00000000000000FF" + "00000010" + "2" + strings.Repeat("f", 32) + "\x03enc\x01"))
	f.Add([]byte("e1" + "+0000000000000ff" + "00000010" + "2" + strings.Repeat("f", 32) + "\x03enc\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		token, entry, err := decode(b)
		switch {
		case err != nil:
			require.ErrorIs(t, err, errForeign)
			require.Nil(t, token)
			require.Nil(t, entry)
		case token != nil:
			require.Nil(t, entry)
			require.Equal(t, string(b), token.encode())
		default:
			require.Equal(t, string(b), entry.encode())
			require.Positive(t, entry.RowID)
			require.Positive(t, entry.Attempt)
			require.True(t, entry.Status.Finished())
		}
	})
}

// TestEntriesSortAsTheirOrders: as texts, which is how the script compares them.
func TestEntriesSortAsTheirOrders(t *testing.T) {
	t.Parallel()
	rows, attempts := []int64{1, 9, 10, 255, 256, math.MaxInt64}, []int32{1, 9, 10, 16, math.MaxInt32}
	last := ""
	for _, row := range rows {
		for _, attempt := range attempts {
			for _, status := range []ledger.Status{ledger.FailedPermanent, ledger.Completed} {
				order := Entry{RowID: row, Attempt: attempt, Status: status}.order()
				require.Greater(t, order, last)
				require.Len(t, order, orderBytes)
				last = order
			}
		}
	}
}
