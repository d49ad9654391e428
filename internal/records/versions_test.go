package records_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
)

func FuzzDecodeVersions(f *testing.F) {
	f.Add([]byte(`{"kind":"tenonVersionsV1","executables":{"/opt/cni/bin/bridge":{"identity":{"device":1,"inode":2,"size":3,` +
		`"mtime":1767322800000000000,"ctime":1767322800000000001},"versions":["0.4.0","1.0.0"]}}}`))
	f.Add([]byte(`{"kind":"tenonVersionsV1","executables":{"x":{"versions":["0.4"]}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		known, err := records.DecodeVersions(b)
		if err != nil {
			if cni.CodeOf(err) != cni.CodeDecodingFailure {
				t.Error(describe(err))
			}
			return
		}
		for path, versions := range known {
			if len(versions) == 0 {
				t.Errorf("%s supports nothing", path)
			}
		}
		again, err := records.DecodeVersions(records.EncodeVersions(b))
		if diff := cmp.Diff(known, again); diff != "" || err != nil {
			t.Error(fmt.Sprint(diff, err))
		}
	})
}
