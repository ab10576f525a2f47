package ledger

import (
	"encoding/hex"
	"fmt"
	"strconv"
)

// Key is the 32-byte SHA-256 digest that names one execution.
type Key [32]byte

// String returns the digest in hexadecimal. A digest is no secret: it stands
// on spans and in logs, where the text it was made from never does.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// IsZero reports whether the key was never set.
func (k Key) IsZero() bool { return k == Key{} }

// Fingerprint is the 32-byte SHA-256 digest of a request. The same key with
// another fingerprint is a caller's bug and is refused with [CodeMismatch].
type Fingerprint [32]byte

// String returns the digest in hexadecimal.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// Owner says who a key belongs to: a tenant, whose keys live in
// idempotency_keys with a reference to the tenants table, or the platform,
// whose keys live in platform_idempotency_keys. The zero Owner is the platform.
type Owner struct {
	tenant   int64
	isTenant bool
}

// Platform is the owner of work above the tenants.
func Platform() Owner { return Owner{} }

// Tenant is the owner with that id in the tenants table. An id that isn't
// there is refused by the database and reported with [CodeInvalid].
func Tenant(id int64) Owner { return Owner{tenant: id, isTenant: true} }

// TenantID returns the tenant's id, and false for the platform.
func (o Owner) TenantID() (int64, bool) { return o.tenant, o.isTenant }

// String returns "platform" or "tenant:" and the id.
func (o Owner) String() string {
	if !o.isTenant {
		return "platform"
	}
	return "tenant:" + strconv.FormatInt(o.tenant, 10)
}

// Ref is the address of a row: its owner and its key.
type Ref struct {
	Owner Owner
	Key   Key
}

// String returns the owner and the key's digest.
func (r Ref) String() string { return fmt.Sprintf("%s/%s", r.Owner, r.Key) }
