package records_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
)

// SEC-05: any program can write a file in the cache of libcni.
func FuzzDecodeCached(f *testing.F) {
	files, err := filepath.Glob("../../conformance/examples/cache-*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := records.DecodeCached(b)
		if err != nil {
			return
		}
		if err := r.Attachment.Validate(); err != nil {
			t.Error(err)
		}
		if r.List == nil || r.List.Name != r.Attachment.Network {
			t.Errorf("list %v", r.List)
		}
		if _, err := cni.ParseArgs(r.Args.String()); err != nil {
			t.Error(err)
		}
	})
}
