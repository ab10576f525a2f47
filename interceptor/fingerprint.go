package interceptor

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/effectonce/effectonce/internal/canonical"
)

// canonicalArguments renders an activity's arguments so that equal requests are
// equal bytes.
func canonicalArguments(args []any) ([]byte, error) {
	documents := make([]json.RawMessage, len(args))
	for i, arg := range args {
		raw, err := document(arg)
		if err != nil {
			return nil, fmt.Errorf("argument %d of type %T has no JSON form: set Policy.Fingerprint: %w", i+1, arg, err)
		}
		documents[i] = raw
	}
	raw, err := json.Marshal(documents)
	if err != nil {
		return nil, err
	}
	return canonical.JSON(raw)
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
