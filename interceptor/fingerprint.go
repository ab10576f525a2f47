package interceptor

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/gowebpki/jcs"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// canonical renders an activity's arguments so that equal requests are equal
// bytes: JSON in the form of RFC 8785, with the order of members and the
// spelling of numbers settled. RFC 8785 has numbers as IEEE doubles, so that
// integers beyond 2^53 are kept apart as tagged texts.
func canonical(args []any) ([]byte, error) {
	documents := make([]any, len(args))
	for i, arg := range args {
		raw, err := document(arg)
		if err != nil {
			return nil, fmt.Errorf("argument %d of type %T has no JSON form: set Policy.Fingerprint: %w", i+1, arg, err)
		}
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err := d.Decode(&documents[i]); err != nil {
			return nil, fmt.Errorf("argument %d of type %T has no JSON form: set Policy.Fingerprint: %w", i+1, arg, err)
		}
		documents[i] = keepApart(documents[i])
	}
	raw, err := json.Marshal(documents)
	if err != nil {
		return nil, err
	}
	return jcs.Transform(raw)
}

func document(arg any) ([]byte, error) {
	switch v := arg.(type) {
	case proto.Message:
		return protojson.Marshal(v)
	case converter.EncodedValues: // a dynamic activity's
		return encodedDocument(v)
	default:
		return json.Marshal(v)
	}
}

// encodedDocument is the document of values that were never decoded.
func encodedDocument(v converter.EncodedValues) ([]byte, error) {
	if !v.HasValues() {
		return []byte("[]"), nil
	}
	values := make([]converter.RawValue, maxDetails)
	pointers := make([]any, len(values))
	for i := range values {
		pointers[i] = &values[i]
	}
	if err := v.Get(pointers...); err != nil {
		return nil, err
	}
	var all []any
	for _, value := range values {
		p := value.Payload()
		if p == nil {
			break
		}
		encoding := string(p.GetMetadata()[converter.MetadataEncoding])
		if strings.HasPrefix(encoding, "json/") && json.Valid(p.GetData()) {
			all = append(all, json.RawMessage(p.GetData()))
			continue
		}
		all = append(all, []string{encoding, base64.StdEncoding.EncodeToString(p.GetData())})
	}
	return json.Marshal(all)
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
