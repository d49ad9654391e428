package about_test

import (
	"fmt"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/about"
)

func TestArgs(t *testing.T) {
	t.Parallel()
	a := cni.Attachment{Network: "pods", Container: "c1", IfName: "eth0"}
	for name, row := range map[string]struct {
		a    cni.Attachment
		more []string
		want string
	}{
		"an attachment": {a, []string{"verb", "ADD"}, "[attachment " + string(a.Owner()) + " network pods container c1 ifname eth0 verb ADD]"},
		"a network":     {cni.Attachment{Network: "pods"}, nil, "[network pods]"},
		"a container":   {cni.Attachment{Container: "c1"}, []string{"plugin", "", "verb", "DEL"}, "[container c1 verb DEL]"},
		"nothing":       {cni.Attachment{}, nil, "[]"},
	} {
		if got := fmt.Sprint(about.Args(row.a, row.more...)); got != row.want {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
	}
}
