// Package canonical renders JSON so that equal documents are equal bytes: the
// form of RFC 8785, with the order of members and the spelling of numbers
// settled. RFC 8785 has numbers as IEEE doubles, so that integers beyond 2^53
// are kept apart as tagged texts.
//
// It may import the standard library and the RFC's implementation.
package canonical

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/gowebpki/jcs"
)

// JSON returns the canonical form of one document.
func JSON(document []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one document")
	}
	raw, err := json.Marshal(keepApart(v))
	if err != nil {
		return nil, err
	}
	return jcs.Transform(raw)
}

// exact is the greatest integer up to which all are doubles.
const exact = 1 << 53

// keepApart replaces the integers that doubles can't tell apart.
func keepApart(v any) any {
	switch v := v.(type) {
	case json.Number:
		n, err := strconv.ParseInt(v.String(), 10, 64)
		if err == nil && n >= -exact && n <= exact || strings.ContainsAny(v.String(), ".eE") {
			return v
		}
		return map[string]any{"effectonce:integer": v.String()}
	case []any:
		for i := range v {
			v[i] = keepApart(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = keepApart(v[k])
		}
	}
	return v
}
