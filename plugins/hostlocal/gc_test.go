package hostlocal_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
)

const pool = `"subnet": "10.1.2.0/24"`

// mustAdd attaches containers.
func (h *host) mustAdd(containers ...string) {
	h.t.Helper()
	for _, c := range containers {
		if got := h.add(c, pool, ""); !strings.HasPrefix(got, "10.1.2.") {
			h.t.Fatal(got)
		}
	}
}

// holders lists the containers that have an address.
func (h *host) holders() string {
	h.t.Helper()
	var list []string
	for line := range strings.Lines(h.files()) {
		if strings.HasPrefix(line, "10.") {
			_, content, _ := strings.Cut(strings.TrimSpace(line), " ")
			list = append(list, strings.TrimSuffix(strings.Trim(content, `"`), `\r\neth0`))
		}
	}
	return strings.Join(list, " ")
}

// write writes a file into the directory of the network.
func (h *host) write(name, content string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, "mynet", name), []byte(content),
		0o600); err != nil {
		h.t.Fatal(err)
	}
}

// GC frees the reservations of all attachments outside the list (PL-GC-01) and no others
// (PL-GC-02), prints nothing (PL-GC-09), and does nothing without a list (PL-GC-06). Old
// reservations name only a container and stay with any of its interfaces.
func TestGC(t *testing.T) {
	t.Parallel()
	const (
		all     = "a b c old gone"
		missing = "7 cni.dev/valid-attachments is missing"
		onlyA   = `[{"containerID": "a", "ifname": "eth0"}]`
	)
	for _, row := range []struct{ name, more, want, left string }{
		{"one is valid", `"cni.dev/valid-attachments": ` + onlyA, "", "a"},
		{"old format, by its container",
			`"cni.dev/valid-attachments": [{"containerID": "old", "ifname": "net7"}]`, "", "old"},
		{"another interface of a container",
			`"cni.dev/valid-attachments": [{"containerID": "b", "ifname": "eth1"}]`, "", ""},
		{"none is valid", `"cni.dev/valid-attachments": []`, "", ""},
		{"the old spelling", `"cni.dev/attachments": ` + onlyA, "", "a"},
		{"null, and a list in the old spelling",
			`"cni.dev/valid-attachments": null, "cni.dev/attachments": ` + onlyA, "", "a"},
		{"both spellings: the new one counts",
			`"cni.dev/valid-attachments": [{"containerID": "c", "ifname": "eth0"}], "cni.dev/attachments": ` + onlyA, "", "c"},
		{"no list", `"x": 1`, missing, all},
		{"null", `"cni.dev/valid-attachments": null`, "", ""},
		{"null as libcni sends it",
			`"cni.dev/valid-attachments": null, "cni.dev/attachments": null`, "", ""},
		{"an entry without interface", `"cni.dev/valid-attachments": [{"containerID": "a"}]`,
			"7 cni.dev/valid-attachments[0] lacks containerID or ifname", all},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHost(t)
			h.mustAdd("a", "b", "c")
			h.write("10.1.2.77", "old")
			h.write("10.1.2.78", "gone")
			elsewhere := filepath.Join(h.dir, "elsewhere", "10.1.2.9")
			if err := os.Mkdir(filepath.Dir(elsewhere), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(elsewhere, []byte("gone\r\neth0"), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := h.outcome(cni.GC, "", `"subnet": "nonsense"`,
				", "+row.more); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
			if got := h.holders(); got != row.left {
				t.Errorf("left %q, want %q", got, row.left)
			}
			if _, err := os.Stat(elsewhere); err != nil {
				t.Errorf("the other network: %v", err)
			}
		})
	}
}

// GC requires version 1.1.0 (PL-GC-07), and works without reservations.
func TestGCOfNothing(t *testing.T) {
	h := newHost(t)
	if _, err := h.serve(cni.GC, "1.0.0", "", pool,
		`, "cni.dev/valid-attachments": []`); cni.CodeOf(err) != cni.CodeIncompatibleVersion {
		t.Errorf("in 1.0.0: %v", err)
	}
	if got := h.outcome(cni.GC, "", pool, `, "cni.dev/valid-attachments": []`); got != "" ||
		h.files() != "" {
		t.Errorf("a network without reservations: %s", got)
	}
}

// GC continues after a file that it cannot delete, and reports it (PL-GC-04). DEL of that
// reservation fails, too, and both succeed when the file can be deleted again.
func TestGCGoesOn(t *testing.T) {
	testnet.Require(t, testnet.Root, testnet.Tool("chattr"))
	h := newHost(t)
	h.mustAdd("a", "b", "c", "d")
	stuck := filepath.Join(h.dir, "mynet", "10.1.2.3")
	chattr(t, "+i", stuck)
	t.Cleanup(func() { _ = exec.Command("chattr", "-i", stuck).Run() })
	want := fmt.Sprintf("5 reclaim %s: remove %[1]s: operation not permitted", stuck)
	const one = `, "cni.dev/valid-attachments": [{"containerID": "a", "ifname": "eth0"}]`
	for range 2 {
		if diff := cmp.Diff(want, h.outcome(cni.GC, "", pool, one)); diff != "" {
			t.Error(diff)
		}
		if got := h.holders(); got != "a b" {
			t.Errorf("left %q", got)
		}
	}
	if got := h.outcome(cni.Del, "b", pool, ""); !strings.HasPrefix(got, "5 release "+stuck) {
		t.Errorf("DEL: %s", got)
	}
	chattr(t, "-i", stuck)
	if got := h.outcome(cni.GC, "", pool, one); got != "" || h.holders() != "a" {
		t.Errorf("left %q: %s", h.holders(), got)
	}
}

func chattr(t *testing.T, flag, path string) {
	t.Helper()
	if out, err := exec.Command("chattr", flag, path).CombinedOutput(); err != nil {
		t.Fatalf("chattr: %v: %s", err, out)
	}
}
