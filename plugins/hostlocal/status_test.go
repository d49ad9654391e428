package hostlocal_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
)

// If all addresses are in use, the error contains their number and the oldest holders. STATUS
// reports the same, as a warning or, if so configured, as an error (PL-STA-01, PL-STA-02,
// PL-STA-03), and ADD does not depend on it (PL-STA-05). The broadcast address is never allocated.
func TestExhausted(t *testing.T) {
	h := newHost(t)
	const ipam = `"subnet": "10.1.2.0/29"`
	for i := 2; i <= 6; i++ {
		if _, err := h.call(cni.Status, "1.1.0", "", ipam, ""); err != nil {
			t.Fatalf("STATUS with %d of 5 addresses in use: %v", i-2, err)
		}
		if got, want := h.add(fmt.Sprintf("c%d", i), ipam, ""), fmt.Sprintf("10.1.2.%d/29",
			i); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	_, err := h.call(cni.Add, "1.1.0", "late", ipam, "")
	e := cni.AsError(err)
	if e == nil || e.Code != cni.CodeTryAgainLater ||
		e.Msg != "failed to allocate for range 0: no IP addresses available in range set: 10.1.2.1-10.1.2.6" && e.Msg != "no IP addresses available in range set: 10.1.2.1-10.1.2.6" ||
		!strings.HasPrefix(e.Details,
			"5 of 6 addresses are in use, 1 reserved (gateway 10.1.2.1); oldest: 10.1.2.2 held by container c2 interface eth0 ") {
		t.Errorf("ADD: %+v", e)
	}
	for setting, want := range map[string]string{
		``:                            "",
		`, "statusWhenFull": "warn"`:  "",
		`, "statusWhenFull": "error"`: "50 host-local STATUS: no IP addresses available in range set: 10.1.2.1-10.1.2.6: 5 of 6 addresses are in use",
	} {
		got, log := h.status(ipam + setting)
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("STATUS with %q: got %q, want %q", setting, got, want)
		}
		warned := strings.Contains(log, "level=WARN") &&
			strings.Contains(log, "5 of 6 addresses are in use")
		if warned != (want == "") {
			t.Errorf("STATUS with %q logged %q", setting, log)
		}
	}
	if _, err := h.call(cni.Del, "1.1.0", "c4", ipam, ""); err != nil {
		t.Fatal(err)
	}
	if got := h.add("late", ipam, ""); got != "10.1.2.4/29" {
		t.Error(got)
	}
}

// STATUS checks whether a reservation is possible, and creates nothing (PL-STA-03, PL-STA-07).
func TestStatus(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, ipam, want string
		prepare          func(t *testing.T, dir string) string // returns the data directory
	}{
		{"a directory that ADD would create", pool, "", func(_ *testing.T, dir string) string {
			return dir + "/a/b"
		}},
		{"a file", pool, "50 dataDir: stat DIR/file/mynet: not a directory",
			func(t *testing.T, dir string) string {
				if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
					t.Fatal(err)
				}
				return dir + "/file"
			}},
		{"a file in place of the network's directory", pool,
			"50 dataDir: DIR/mynet is not a directory", func(t *testing.T, dir string) string {
				if err := os.WriteFile(dir+"/mynet", nil, 0o600); err != nil {
					t.Fatal(err)
				}
				return dir
			}},
		{"a symbolic link to itself", pool,
			"50 dataDir: stat DIR/loop/mynet: too many levels of symbolic links",
			func(t *testing.T, dir string) string {
				if err := os.Symlink("loop", dir+"/loop"); err != nil {
					t.Fatal(err)
				}
				return dir + "/loop"
			}},
		{"no ranges", `"ranges": []`, "7 no IP ranges specified",
			func(_ *testing.T, dir string) string { return dir }},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHost(t)
			dir := h.dir
			h.dir = row.prepare(t, dir)
			before := tree(t, dir)
			if got := strings.ReplaceAll(h.outcome(cni.Status, "", row.ipam, ""), dir,
				"DIR"); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
			if after := tree(t, dir); after != before {
				t.Errorf("STATUS changed\n%sto\n%s", before, after)
			}
		})
	}
}

// status returns the outcome of STATUS with details, and its log.
func (h *host) status(ipam string) (outcome, log string) {
	h.t.Helper()
	var b bytes.Buffer
	caller := plugin.Linked{
		Plugins: []plugin.Definition{hostlocal.Plugin}, Log: slog.New(slog.NewTextHandler(&b, nil)),
	}
	conf := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "mynet", "type": "x", "ipam": {"type": "host-local", "dataDir": %q, %s}}`,
		h.dir, ipam)
	_, err := caller.Call(h.t.Context(), invoke.Call{
		Path: invoke.LinkedPath("host-local"), Env: cni.Env{Command: cni.Status}, Stdin: []byte(conf),
	})
	if err != nil {
		e := cni.AsError(err)
		outcome = fmt.Sprintf("%d %s: %s", cni.CodeOf(err), e.Msg, e.Details)
	}
	return outcome, b.String()
}

// An unknown value of statusWhenFull is refused.
func TestStatusWhenFullIsValidated(t *testing.T) {
	h := newHost(t)
	const want = `7 statusWhenFull: "never" is neither "warn" nor "error"`
	if got := h.outcome(cni.Add, "c1", pool+`, "statusWhenFull": "never"`, ""); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// STATUS does not wait for an ADD that hangs with the reservations locked, and still detects
// exhausted ranges.
func TestStatusBesideAdd(t *testing.T) {
	const ipam = `"statusWhenFull": "error", "ranges": [[{"subnet": "10.1.2.0/30"}], [{"subnet": "fd00::/64"}]]`
	h := newHost(t)
	for _, want := range []string{
		"", "50 no IP addresses available in range set: 10.1.2.1-10.1.2.2",
	} {
		if want != "" {
			h.add("c1", ipam, "")
		} else if err := os.Mkdir(filepath.Join(h.dir, "mynet"), 0o755); err != nil {
			t.Fatal(err)
		}
		lock, err := os.OpenFile(filepath.Join(h.dir, "mynet", "lock"), os.O_RDONLY|os.O_CREATE,
			0o750)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		before := tree(t, h.dir)
		answer := make(chan string, 1)
		go func() { answer <- h.outcome(cni.Status, "", ipam, "") }()
		select {
		case got := <-answer:
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		case <-time.After(testnet.Patience):
			t.Error("STATUS waits")
		}
		if after := tree(t, h.dir); after != before {
			t.Errorf("STATUS changed\n%sto\n%s", before, after)
		}
		if err := lock.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestStatusExistsFrom110(t *testing.T) { // PL-STA-06
	h := newHost(t)
	if _, err := h.serve(cni.Status, "1.0.0", "", pool,
		""); cni.CodeOf(err) != cni.CodeIncompatibleVersion {
		t.Errorf("in 1.0.0: %v", err)
	}
}

// tree lists all files below a directory, with kind and size.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var text strings.Builder
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if errors.Is(err, fs.ErrPermission) {
			fmt.Fprintf(&text, "%s: %v\n", path, err)
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s %s %d\n", path, info.Mode(), info.Size())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}
