package interceptor_test

import (
	commonpb "go.temporal.io/api/common/v1"
	"google.golang.org/protobuf/proto"
)

// rot is a codec that stands for an encrypting one: nothing it has encoded can
// be read as it was.
type rot struct{}

const rotated = "binary/rotated"

func (rot) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	out := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		b, err := proto.Marshal(p)
		if err != nil {
			return nil, err
		}
		out[i] = &commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte(rotated)}, Data: flip(b)}
	}
	return out, nil
}

func (rot) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	out := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		if string(p.Metadata["encoding"]) != rotated {
			out[i] = p
			continue
		}
		out[i] = &commonpb.Payload{}
		if err := proto.Unmarshal(flip(p.Data), out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func flip(b []byte) []byte {
	out := make([]byte, len(b))
	for i, c := range b {
		out[i] = ^c
	}
	return out
}
