package hostlocal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
)

// Every verb that needs an unusable directory fails with code 5, names the directory, and changes
// nothing.
func TestDataDir(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ name, dir, named string }{
		{"a device", "/dev/null", "/dev/null"},
		{"a file", file, file},
		{"below a file", file + "/x", file + "/x"},
		{"in proc", "/proc/nowhere", "/proc/nowhere"},
		{"a name of 5000 bytes", "/" + strings.Repeat("x", 5000), "/xxx"},
		{"with a zero byte", "/tmp/\x00", "/tmp/"},
		{"odd letters", file + "/\xff\x01\n", file},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHost(t)
			h.dir = row.dir
			if got := h.add("c1", pool, ""); !strings.HasPrefix(got, "5 dataDir: ") ||
				!strings.Contains(got, row.named) {
				t.Errorf("ADD: %s", got)
			}
			for _, verb := range []cni.Command{cni.Del, cni.Check, cni.GC} {
				// CHECK and DEL find no reservation in a directory that does not exist.
				if got := h.outcome(verb, "c1", pool,
					`, "cni.dev/valid-attachments": []`); got != "" &&
					!strings.HasPrefix(got, "5 dataDir: ") &&
					!strings.Contains(got, "Failed to find address") {
					t.Errorf("%s: %s", verb, got)
				}
			}
		})
	}
}

// Names never lead out of the data directory.
func TestNamesAreNoPaths(t *testing.T) {
	h := newHost(t)
	for _, name := range []string{
		"", ".", "..", "../elsewhere", "a/b", "a\x00b", "a\nb", "\xff", "-a",
	} {
		conf, err := json.Marshal(map[string]any{"cniVersion": "1.1.0", "name": name, "type": "x",
			"ipam": map[string]any{
				"type": "host-local", "dataDir": h.dir, "subnet": "10.1.2.0/24",
			}})
		if err != nil {
			t.Fatal(err)
		}
		for _, verb := range []cni.Command{cni.Add, cni.Del, cni.GC} {
			env := cni.Env{
				Command: verb, ContainerID: "c1", IfName: "eth0", Netns: "/no/such/namespace",
			}
			if _, err := hostlocal.Plugin.Serve(t.Context(), env, conf,
				nil); cni.CodeOf(err) != cni.CodeInvalidConfig {
				t.Errorf("%s of network %q: %v", verb, name, err)
			}
		}
	}
	if left, err := os.ReadDir(h.dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// ownMounts is set in the process that TestDisks starts in a mount namespace.
const ownMounts = "HOSTLOCAL_TEST_OWN_MOUNTS"

// On a disk that is not writable, ADD fails with code 5 and leaves nothing behind, CHECK works, DEL
// frees what it can and otherwise fails, and no reservation is lost. STATUS fails with code 50
// (PL-STA-03) unless the disk is full, because that state ends when containers do.
func TestDisks(t *testing.T) {
	testnet.Require(t, testnet.Root)
	if os.Getenv(ownMounts) == "" {
		t.Parallel()
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestDisks$", "-test.v")
		cmd.Env = append(os.Environ(), ownMounts+"=1", "TMPDIR="+openDir(t))
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL,
		}
		runtime.LockOSThread() // Pdeathsig kills the child if the thread that started it ends
		defer runtime.UnlockOSThread()
		if out, err := cmd.CombinedOutput(); err != nil ||
			strings.Count(string(out), "--- PASS: TestDisks/") != len(disks) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	for _, d := range disks {
		t.Run(d.name, d.test)
	}
}

// openDir returns a directory that every user can enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// disk is a file system that becomes unusable, and the way to repair it.
type disk struct {
	name, options string
	spoil, repair func(dir string) error
	cause         string // text of the errors
	frees         bool   // DEL works nevertheless
}

var disks = []disk{
	{"read-only", "", remount(unix.MS_RDONLY), remount(0), "read-only file system", false},
	{"no block left", "size=128k", fill, unfill, "no space left on device", true},
	{"no inode left", "nr_inodes=16", crowd, unfill, "no space left on device", true},
	{"no permission", "mode=0755", become(65534), become(0), "permission denied", false},
}

func (d disk) test(t *testing.T) {
	h := &host{t: t, dir: openDir(t)}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(unix.Mount("tenon-test", h.dir, "tmpfs", 0, d.options))
	t.Cleanup(func() { do(unix.Unmount(h.dir, unix.MNT_DETACH)) })
	h.mustAdd("a", "b")
	do(d.spoil(h.dir))
	before := tree(t, h.dir)
	h.wantFailure(cni.Add, cni.CodeIOFailure, d.cause)
	if !d.frees {
		h.wantFailure(cni.Status, cni.CodeNotAvailable, d.cause)
	} else if got, log := h.status(pool); got != "" || !strings.Contains(log, "level=WARN") ||
		!strings.Contains(log, d.cause) {
		t.Errorf("STATUS: %q, logged %q", got, log)
	} else if got, _ := h.status(pool + `, "statusWhenFull": "error"`); !strings.HasPrefix(got,
		"50 ") || !strings.Contains(got, d.cause) {
		t.Errorf("STATUS must fail, got %q", got)
	}
	if after := tree(t, h.dir); after != before {
		t.Errorf("ADD and STATUS changed\n%sto\n%s", before, after)
	}
	if d.frees {
		if got := h.outcome(cni.Check, "a", pool, ""); got != "" {
			t.Errorf("CHECK: %s", got)
		}
		if got := h.outcome(cni.Del, "b", pool, ""); got != "" {
			t.Errorf("DEL: %s", got)
		}
	} else {
		h.wantFailure(cni.Del, cni.CodeIOFailure, d.cause)
	}
	do(d.repair(h.dir))
	if got := h.outcome(cni.Del, "b", pool, ""); got != "" || h.holders() != "a" {
		t.Errorf("left %q: %s", h.holders(), got)
	}
	for verb, container := range map[cni.Command]string{cni.Status: "", cni.Check: "a"} {
		if got := h.outcome(verb, container, pool, ""); got != "" {
			t.Errorf("%s on a repaired disk: %s", verb, got)
		}
	}
	h.mustAdd("b")
}

// wantFailure runs a verb for container b, or for a new container if the verb is ADD.
func (h *host) wantFailure(verb cni.Command, code cni.Code, cause string) {
	h.t.Helper()
	container := map[cni.Command]string{cni.Add: "late", cni.Del: "b"}[verb]
	got := h.outcome(verb, container, pool, "")
	if !strings.HasPrefix(got, fmt.Sprint(code, " ")) || !strings.Contains(got, cause) ||
		!strings.Contains(got, h.dir) {
		h.t.Errorf("%s: got %q, want code %d, %q and %s", verb, got, code, cause, h.dir)
	}
}

func remount(flags uintptr) func(string) error {
	return func(dir string) error { return unix.Mount("", dir, "", unix.MS_REMOUNT|flags, "") }
}

// fill writes files until the disk is full; unfill removes them.
func fill(dir string) error {
	f, err := os.Create(filepath.Join(dir, "filler"))
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	return full(err)
}

// crowd creates files until no inode is left.
func crowd(dir string) error {
	for i := 0; ; i++ {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint("filler", i)))
		if err != nil {
			return full(err)
		}
		f.Close()
	}
}

// full returns nil for the error of a full disk.
func full(err error) error {
	if errors.Is(err, unix.ENOSPC) {
		return nil
	}
	return err
}

func unfill(dir string) error {
	fillers, err := filepath.Glob(filepath.Join(dir, "filler*"))
	for _, f := range fillers {
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	return err
}

// become changes user and group of the process in a way that it can undo.
func become(id int) func(string) error {
	return func(string) error {
		set := []func(int, int, int) error{syscall.Setresgid, syscall.Setresuid}
		if id == 0 {
			slices.Reverse(set)
		}
		return errors.Join(set[0](id, id, 0), set[1](id, id, 0))
	}
}
