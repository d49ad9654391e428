package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/node"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/tracer"
	"github.com/tenon-cni/tenon/network/config"
)

// installer is the name of the test binary as a process that installs on the node in its argument
// and, if there is a second argument, repeats that until it is killed.
const installer = "installer"

func runInstaller(root string, stay bool) error {
	n := newNode(root, func(context.Context, *config.Network) error { return nil })
	unlock, err := node.Lock(n.Plugins.Dir)
	for ; stay && cni.CodeOf(err) == cni.CodeTryAgainLater; unlock, err = node.Lock(n.Plugins.Dir) {
		time.Sleep(5 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	defer unlock()
	for {
		if _, err := n.Install(context.Background()); err != nil || !stay {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// version returns a directory with a version of this program, which is the test binary with a
// suffix.
func version(t *testing.T, suffix string) (installerPath string) {
	t.Helper()
	content := append(program(t), suffix...)
	path := filepath.Join(t.TempDir(), installer)
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func program(t *testing.T) []byte {
	t.Helper()
	content, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// disk mounts a file system in memory, as large as this program multiplied by size, and returns its
// directory. Only the command that remounts it, and this process by that path, see it.
func disk(t *testing.T, size float64) (dir string, remount func(options string)) {
	t.Helper()
	testnet.Require(t, testnet.Root, testnet.Tool("unshare"), testnet.Tool("nsenter"))
	mountpoint := t.TempDir()
	cmd := exec.Command("unshare", "--mount", "sh", "-ec",
		`mount -t tmpfs -o "size=$1" tenon "$0"; echo ready; exec cat`,
		mountpoint, fmt.Sprint(int(size*float64(len(program(t))))))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err = errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			t.Error(err)
		}
	})
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	remount = func(options string) {
		t.Helper()
		text, err := exec.Command("nsenter", "--mount", "--target", fmt.Sprint(cmd.Process.Pid),
			"mount", "-o", "remount,"+options, mountpoint).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	return fmt.Sprintf("/proc/%d/root%s", cmd.Process.Pid, mountpoint), remount
}

// run runs a command that must succeed.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
}

// works fails the test unless the plugin runs.
func (h *host) works() {
	h.t.Helper()
	out, err := exec.Command(filepath.Join(h.Plugins.Dir, "bridge")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "supportedVersions") {
		h.t.Fatalf("the plugin: %v: %s", err, out)
	}
}

// content returns the content of a file of the node.
func content(t *testing.T, path ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestKilledInstall kills an installation before a change that it makes: before each with
// TENON_FAULTS=all, otherwise before every second one. The node always has a complete plugin and a
// complete configuration, of the old or the new version, and the next installation leaves nothing
// of the killed one.
func TestKilledInstall(t *testing.T) {
	t.Parallel()
	testnet.Require(t, tracer.Supported)
	old, current := version(t, "old"), version(t, "")
	step := 2
	if os.Getenv("TENON_FAULTS") == "all" {
		step = 1
	}
	for i, row := range []struct {
		name string
		root func(*testing.T) string
	}{
		{"upgrade on the file system of the program", (*testing.T).TempDir},
		{"upgrade on another file system", func(t *testing.T) string {
			dir, _ := disk(t, 4)
			return dir
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := newHostIn(t, row.root(t))
			oldProgram, newProgram := content(t, old), content(t, current)
			for n := i % step; ; n += step {
				h.write(h.Source, "10-pods.conflist", network("pods", 1500))
				h.foreign("bridge")
				run(t, old, h.root)
				h.write(h.Source, "10-pods.conflist", network("pods", 1400))
				result := trace(t, exec.Command(current, h.root),
					tracer.Fault{Effect: tracer.Kill, N: n, First: true})
				h.works()
				if now := content(t, h.Plugins.Dir, "bridge"); !bytes.Equal(now, oldProgram) &&
					!bytes.Equal(now, newProgram) {
					t.Fatalf("killed before change %d: a plugin of %d bytes", n, len(now))
				}
				if now := string(content(t, h.NetDir, "10-pods.conflist")); now !=
					network("pods", 1500) && now != network("pods", 1400) {
					t.Fatalf("killed before change %d: configuration %q", n, now)
				}
				run(t, current, h.root)
				h.expect(h.files(h.Plugins.Dir), "bridge", "bridge.before-tenon")
				h.expect(h.files(h.NetDir), ".tenon-node", "10-pods.conflist")
				h.isForeign("bridge.before-tenon")
				if t.Failed() {
					t.Fatalf("killed before change %d, %+v", n, result.Changes)
				}
				if !result.Hit {
					t.Logf("%d changes", len(result.Changes))
					return
				}
			}
		})
	}
}

// trace runs a program under a fault.
func trace(t *testing.T, cmd *exec.Cmd, f tracer.Fault) *tracer.Run {
	t.Helper()
	var result *tracer.Run
	err := errors.New("the test ended")
	done := make(chan struct{})
	go func() { // the thread ends with the goroutine
		defer close(done)
		runtime.LockOSThread()
		result, err = tracer.Trace(cmd, nil, f)
	}()
	<-done
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// foreign writes a plugin of another program, with unusual mode and owner.
func (h *host) foreign(name string) {
	h.t.Helper()
	path := filepath.Join(h.Plugins.Dir, name)
	err := errors.Join(os.RemoveAll(h.Plugins.Dir), os.MkdirAll(h.Plugins.Dir, 0o755),
		os.WriteFile(path, []byte("foreign"), 0o710), os.Chown(path, 1234, 4321))
	if err != nil {
		h.t.Fatal(err)
	}
}

// isForeign fails the test unless a file is the one of foreign.
func (h *host) isForeign(name string) {
	h.t.Helper()
	path := filepath.Join(h.Plugins.Dir, name)
	info, err := os.Lstat(path)
	if err != nil {
		h.t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	got := fmt.Sprintf("%s %v %d:%d", content(h.t, path), info.Mode(), owner.Uid, owner.Gid)
	if want := "foreign -rwx--x--- 1234:4321"; got != want {
		h.t.Errorf("%s is %s, want %s", name, got, want)
	}
}

// TestInstallOnBrokenDisk: an installation that fails for lack of space, or because a directory is
// read-only, leaves a plugin and a configuration that work. It succeeds when the disk is repaired.
func TestInstallOnBrokenDisk(t *testing.T) {
	t.Parallel()
	old, current := version(t, "old"), version(t, "")
	for _, dir := range []string{"bin", "net.d"} {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			mounted, remount := disk(t, 2.5)
			if err := os.Symlink(mounted, filepath.Join(h.root, dir)); err != nil {
				t.Fatal(err)
			}
			full := func() func() {
				ballast := filepath.Join(mounted, "ballast")
				if err := fill(ballast); !errors.Is(err, syscall.ENOSPC) {
					t.Fatal(err)
				}
				return func() {
					if err := os.Remove(ballast); err != nil {
						t.Fatal(err)
					}
				}
			}
			readOnly := func() func() {
				remount("ro")
				return func() { remount("rw") }
			}
			for i, spoil := range []func() func(){full, readOnly} {
				h.write(h.Source, "10-pods.conflist", network("pods", 1500+i))
				run(t, old, h.root)
				h.write(h.Source, "10-pods.conflist", network("pods", 1400+i))
				before := h.files(mounted)
				repair := spoil()
				if out, err := exec.Command(current, h.root).CombinedOutput(); err == nil {
					t.Errorf("the installation succeeds: %s", out)
				}
				h.works()
				if now := string(content(t, h.NetDir, "10-pods.conflist")); now !=
					network("pods", 1500+i) {
					t.Errorf("configuration %q", now)
				}
				repair()
				h.expect(h.files(mounted), before...)
				run(t, current, h.root)
				h.expect(h.files(h.Plugins.Dir), "bridge")
				h.expect(h.files(h.NetDir), ".tenon-node", "10-pods.conflist")
				if now := content(t, h.Plugins.Dir, "bridge"); !bytes.Equal(now, content(t, current)) {
					t.Error("the repaired installation has not replaced the plugin")
				}
			}
		})
	}
}

// fill writes a file until the file system is full.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1<<16)
	for len(block) > 0 {
		for err = nil; err == nil; {
			_, err = f.Write(block)
		}
		block = block[:len(block)/2] // also the last page
	}
	return err
}

// TestRollingUpdate runs an installer of the old and one of the new version at once, as in the
// rolling update of a DaemonSet, and kills the old one: the new version replaces the plugin, and at
// no time it is missing or cannot be executed.
func TestRollingUpdate(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	old, current := version(t, "old"), version(t, "")
	run(t, old, h.root)
	ended, failed := make(chan struct{}), make(chan error, 1)
	calls := 0
	go func() {
		defer close(failed)
		for ; ; calls++ {
			select {
			case <-ended:
				return
			default:
			}
			if out, err := exec.Command(filepath.Join(h.Plugins.Dir, "bridge")).CombinedOutput(); err != nil {
				failed <- fmt.Errorf("call %d: %w: %s", calls, err, out)
				return
			}
		}
	}()
	running := exec.Command(old, h.root, "stay")
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	versions := []string{current, old, current, old, current}
	for _, next := range versions {
		waiting := exec.Command(next, h.root, "stay")
		if err := waiting.Start(); err != nil {
			t.Fatal(err)
		}
		if err := running.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = running.Wait() // killed
		running = waiting
		want := content(t, next)
		testnet.Eventually(t, func() error {
			if now := content(t, h.Plugins.Dir, "bridge"); !bytes.Equal(now, want) {
				return errors.New("the plugin is from the other version")
			}
			return nil
		})
	}
	close(ended)
	if err := <-failed; err != nil {
		t.Error(err)
	}
	t.Logf("%d calls during %d updates", calls, len(versions))
	if err := running.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = running.Wait()
}
