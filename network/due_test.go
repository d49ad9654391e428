package network_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/network"
)

// Recover deletes nothing because of a damaged file about unfinished operations, and logs a
// warning. The next Setup of the container ignores the file.
func TestDueIsUnreadable(t *testing.T) {
	t.Parallel()
	for name, content := range map[string][]byte{
		"empty": nil, "damaged": []byte(`{"kind":"tenonDueV1"}`),
		"another container's": seal("tenonDueV1",
			[]byte(`{"container":"c2","state":"adding"}`)),
		"another state": seal("tenonDueV1", []byte(`{"container":"c1","state":"attached"}`)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			joins := r.networks(3)
			m := r.manager(nil)
			if _, err := m.Setup(t.Context(), sandbox("c1", joins[:1])); err != nil {
				t.Fatal(err)
			}
			path := r.DuePath("c1")
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			r.wantRecorded("n0/c1/eth0 attached")
			if err := m.Recover(t.Context(), nil); err != nil ||
				!strings.Contains(r.log.String(), path) {
				t.Errorf("Recover: %s, log:\n%s", describe(err), r.log)
			}
			if _, err := m.Setup(t.Context(), network.SandboxRequest{ID: "c1",
				Parameters: request("c1").Parameters, Networks: []network.Join{
					{Network: joins[1].Network, IfName: "eth1"},
					{Network: joins[2].Network, IfName: "eth2"},
				}}); err != nil {
				t.Error(err)
			}
			r.wantRecorded("n0/c1/eth0 attached", "n1/c1/eth1 attached", "n2/c1/eth2 attached")
			if err := m.Recover(t.Context(), nil); err != nil {
				t.Error(err)
			}
			r.wantCalls("ADD p0, ADD p1, ADD p2")
		})
	}
}

// Recover removes the draft that a killed process left behind.
func TestDueDraft(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	path := r.DuePath("c1")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)), nil,
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.manager(nil).Recover(t.Context(), nil); err != nil {
		t.Error(err)
	}
	r.wantNothing()
}
