package attach_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
)

// TestIPAMResult: interface indexes are ours, all else is passed on as received (IPAM-04).
func TestIPAMResult(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, verbs{cni.Add: invoke.Print(`{"cniVersion":"0.4.0",
		"ips":[{"version":"4","address":"10.0.0.2/24","gateway":"10.0.0.1"},{"version":"6","address":"fd00::2/64"}],
		"routes":[{"dst":"192.168.0.0/16"},{"dst":"192.168.7.9/16","gw":"10.0.0.9"}],"dns":{"domain":"pool"}}`)})
	r := b.add()
	r.Interfaces = nil
	got, err := r.Encode(cni.V110)
	if err == nil || cni.CodeOf(err) != cni.CodeInvalidConfig { // the indexes point to interfaces
		t.Fatalf("%s %v", got, err)
	}
	got, err = b.serve(t.Context(), b.env(cni.Add))
	wantError(t, err, cni.CodeInternal, "eth0")
	if got != nil {
		t.Errorf("printed %s", got)
	}
}
