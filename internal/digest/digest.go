// Package digest hashes lists of texts, for keys and fingerprints.
//
// It may import the standard library only.
package digest

import (
	"crypto/sha256"
	"encoding/binary"
)

// Of returns the SHA-256 digest of the parts. No two lists of parts meet: each
// part is preceded by its length.
func Of(parts ...string) [32]byte {
	n := 0
	for _, p := range parts {
		n += 8 + len(p)
	}
	b := make([]byte, 0, n)
	for _, p := range parts {
		b = binary.BigEndian.AppendUint64(b, uint64(len(p)))
		b = append(b, p...)
	}
	return sha256.Sum256(b)
}
