package interceptor

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/effectonce/effectonce/internal/digest"
	"github.com/effectonce/effectonce/ledger"
)

// identity is how an execution is called in the ledger, and under which mode.
type identity struct {
	owner       ledger.Owner
	key         ledger.Key
	fingerprint ledger.Fingerprint
	business    bool
	mode        Mode
}

// declared is what a workflow said of an activity's key and owner.
type declared struct {
	key   string
	owner *ledger.Owner
}

// errKeyRequired is the cause where a policy requires a business key and there
// is none.
var errKeyRequired = errors.New("the policy requires a business key, and there is none: declare one with interceptor.WithKey in the workflow, or with Policy.Key")

// business finds the business key, if there is one: the workflow's own word
// before the policy's function.
func (p Policy) business(d declared, args []any) (key string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("Policy.Key panicked: %v", r)
		}
	}()
	if d.key != "" {
		return d.key, nil
	}
	if p.Key == nil {
		return "", nil
	}
	key, err = p.Key(args)
	if err != nil {
		return "", fmt.Errorf("Policy.Key: %w", err)
	}
	return key, nil
}

func (p Policy) ownerOf(d declared, args []any) (owner ledger.Owner, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("Policy.Owner panicked: %v", r)
		}
	}()
	switch {
	case d.owner != nil:
		return *d.owner, nil
	case p.Owner == nil:
		return ledger.Platform(), nil
	}
	if owner, err = p.Owner(args); err != nil {
		return owner, fmt.Errorf("Policy.Owner: %w", err)
	}
	return owner, nil
}

// identify names an execution by its business key; false when it has none.
func (p Policy) identify(activityType string, d declared, args []any) (identity, bool, error) {
	id := identity{mode: p.Mode}
	var err error
	if id.owner, err = p.ownerOf(d, args); err != nil {
		return id, false, err
	}
	text, err := p.business(d, args)
	if err != nil || text == "" {
		return id, false, err
	}
	operation := p.Operation
	if operation == "" {
		operation = activityType
	}
	id.business = true
	id.key = BusinessKey(operation, p.Version, text)
	id.fingerprint, err = p.fingerprint(args)
	return id, err == nil, err
}

func (p Policy) fingerprint(args []any) (f ledger.Fingerprint, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("Policy.Fingerprint panicked: %v", r)
		}
	}()
	render := p.Fingerprint
	if render == nil {
		render = canonicalArguments
	}
	request, err := render(args)
	if err != nil {
		return f, err
	}
	return ledger.Fingerprint(sha256.Sum256(request)), nil
}

// BusinessKey names an execution by a business key. Its parts never run into
// each other: two lists of parts make the same key only if they are equal.
func BusinessKey(operation string, version uint32, key string) ledger.Key {
	return digest.Of("effectonce/business/1", operation, string(binary.BigEndian.AppendUint32(nil, version)), key)
}

// localKey names one call of a local activity: its place among the calls of its
// run, and what it was called with, because after a failed workflow task another
// call can come to the same place.
func localKey(namespace, run string, call uint64, activityType string, request ledger.Fingerprint) ledger.Key {
	return digest.Of("effectonce/local/1", namespace, run, string(binary.BigEndian.AppendUint64(nil, call)), activityType, string(request[:]))
}
