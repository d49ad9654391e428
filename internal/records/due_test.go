package records_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/records"
)

// The format on disk must never change, because another version of this program may read it
// after an interruption.
const dueV1 = `{"container":"c1","state":"adding","attachments":[` +
	`{"network":"red","ifname":"eth0","created":"2026-01-02T03:04:05.000000006Z"},` +
	`{"network":"blue","ifname":"eth1","created":"2026-01-02T03:04:05.000000007Z"}]}`

func TestDueFormat(t *testing.T) {
	t.Parallel()
	sealed := records.SealDue([]byte(dueV1))
	if !bytes.HasPrefix(sealed, []byte(`{"kind":"tenonDueV1","sha256":"`)) {
		t.Errorf("%s", sealed)
	}
	again, err := records.ReencodeDue(sealed)
	if diff := cmp.Diff(string(sealed), string(again)); diff != "" || err != nil {
		t.Error(err, diff)
	}
	// CACHE-08, SEC-05: decoding a damaged file is an error.
	for i := range sealed {
		flipped := bytes.Clone(sealed)
		flipped[i] ^= 1
		for _, b := range [][]byte{sealed[:i], flipped} {
			if _, err := records.ReencodeDue(b); err == nil {
				t.Errorf("accepted: %s", b)
			}
		}
	}
}

func FuzzDecodeDue(f *testing.F) {
	f.Add([]byte(dueV1))
	f.Add(records.SealDue([]byte(dueV1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = records.ReencodeDue(b)
		once, err := records.ReencodeDue(records.SealDue(b)) // with a valid seal
		if err != nil {
			return
		}
		if twice, err := records.ReencodeDue(once); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%v\n%s\n%s", err, once, twice)
		}
	})
}
