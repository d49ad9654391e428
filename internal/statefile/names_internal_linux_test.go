package statefile

import (
	"bytes"
	"testing"
)

// TestEntriesInParts reads a directory of which each call returns one entry, as a server of FUSE may do, and
// which is larger than the first buffer.
func TestEntriesInParts(t *testing.T) {
	t.Parallel()
	entry := bytes.Repeat([]byte("e"), 40)
	const n = firstListing/40 + 100
	at := 0
	b, err := entries(func() error { at = 0; return nil }, func(b []byte) (int, error) {
		if at == n {
			return 0, nil
		}
		at++
		return copy(b, entry), nil
	})
	if err != nil || !bytes.Equal(b, bytes.Repeat(entry, n)) {
		t.Errorf("%d bytes, want %d: %v", len(b), n*len(entry), err)
	}
}
