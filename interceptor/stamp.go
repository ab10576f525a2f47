package interceptor

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"

	"github.com/effectonce/effectonce/ledger"
)

// headerField is where an activity's stamp stands in its header.
const headerField = "effectonce"

// stamp is what the workflow's side decided when it scheduled an activity, and
// every attempt obeys: a deploy between two attempts can't change the address.
// Headers don't go through the codec, so that it holds digests, never a raw key.
type stamp struct {
	Version     int    `json:"v"`
	Mode        Mode   `json:"m"`
	Tenant      *int64 `json:"t,omitempty"`
	Key         string `json:"k,omitempty"` // hex; none: the derived key
	Fingerprint string `json:"f,omitempty"` // hex
	Business    bool   `json:"b,omitempty"`
}

const stampVersion = 1

func newStamp(id identity) stamp {
	s := stamp{Version: stampVersion, Mode: id.mode, Business: id.business}
	if t, ok := id.owner.TenantID(); ok {
		s.Tenant = &t
	}
	if !id.key.IsZero() {
		s.Key, s.Fingerprint = id.key.String(), id.fingerprint.String()
	}
	return s
}

func (s stamp) payload() (*commonpb.Payload, error) {
	return converter.GetDefaultDataConverter().ToPayload(s)
}

// readStamp returns the activity's stamp, and false without one.
func readStamp(ctx context.Context) (identity, bool, error) {
	p, ok := interceptor.Header(ctx)[headerField]
	if !ok {
		return identity{}, false, nil
	}
	var s stamp
	if err := json.Unmarshal(p.GetData(), &s); err != nil {
		return identity{}, false, fmt.Errorf("the header field %q isn't the plugin's: %w", headerField, err)
	}
	if s.Version != stampVersion {
		return identity{}, false, fmt.Errorf("the header field %q has version %d, this worker knows %d: deploy the plugin's new version to activity workers first", headerField, s.Version, stampVersion)
	}
	id := identity{mode: s.Mode, business: s.Business}
	if s.Tenant != nil {
		id.owner = ledger.Tenant(*s.Tenant)
	}
	if s.Key == "" {
		return id, true, nil
	}
	if err := unhex(id.key[:], s.Key); err != nil {
		return identity{}, false, err
	}
	if err := unhex(id.fingerprint[:], s.Fingerprint); err != nil {
		return identity{}, false, err
	}
	return id, true, nil
}

func unhex(to []byte, text string) error {
	if len(text) != hex.EncodedLen(len(to)) {
		return fmt.Errorf("the header field %q holds a digest of %d characters", headerField, len(text))
	}
	if _, err := hex.Decode(to, []byte(text)); err != nil {
		return fmt.Errorf("the header field %q holds no digest: %w", headerField, err)
	}
	return nil
}
