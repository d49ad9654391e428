package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/node"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/tracer"
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

// TestKilledInstall kills an upgrade from another file system, as from an image, before a change
// that it makes, and in short mode before every eighth. The node always has a complete plugin and a
// complete configuration, of the old or the new version, and the next installation leaves nothing of
// the killed one.
func TestKilledInstall(t *testing.T) {
	t.Parallel()
	testnet.Require(t, tracer.Supported)
	old, current := version(t, "old"), version(t, "")
	oldPlugin, plugin := content(t, old), content(t, current)
	oldConf, conf := []byte(network("pods", 1500)), []byte(network("pods", 1400))
	dir, _ := disk(t, 4)
	h := newHostIn(t, dir)
	h.foreign("bridge")
	run(t, old, h.root)
	h.save()
	h.write(h.Source, "10-pods.conflist", string(conf))
	step := 1
	if testing.Short() {
		step = 8
	}
	for n := 0; ; n += step {
		h.reset()
		result := h.kill(current, n)
		h.has("bin/bridge", oldPlugin, plugin)
		h.executable()
		h.has("net.d/10-pods.conflist", oldConf, conf)
		if err := runInstaller(h.root, false); err != nil {
			t.Fatal(err)
		}
		h.expect(h.files(h.Plugins.Dir), "bridge", "bridge.before-tenon")
		h.expect(h.files(h.NetDir), ".tenon-node", "10-pods.conflist")
		h.has("bin/bridge", plugin)
		h.executable()
		h.has("net.d/10-pods.conflist", conf)
		h.isForeign("bridge.before-tenon")
		if t.Failed() {
			t.Fatalf("killed before change %d: %+v", n, result.Changes)
		}
		if !result.Hit {
			t.Logf("%d changes", len(result.Changes))
			return
		}
	}
}

// save makes links to the files of the node, which reset restores.
func (h *host) save() {
	h.t.Helper()
	for _, dir := range []string{"bin", "net.d"} {
		h.link(dir, filepath.Join("saved", dir))
	}
}

func (h *host) reset() {
	h.t.Helper()
	for _, dir := range []string{"bin", "net.d"} {
		h.link(filepath.Join("saved", dir), dir)
	}
}

// link replaces a directory by one with links to the files of another.
func (h *host) link(from, to string) {
	h.t.Helper()
	from, to = filepath.Join(h.root, from), filepath.Join(h.root, to)
	err := errors.Join(os.RemoveAll(to), os.MkdirAll(to, 0o755))
	for _, name := range h.files(from) {
		err = errors.Join(err, os.Link(filepath.Join(from, name), filepath.Join(to, name)))
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// has fails the test unless a file below the root of the node has one of the contents.
func (h *host) has(path string, contents ...[]byte) {
	h.t.Helper()
	now := content(h.t, h.root, path)
	if !slices.ContainsFunc(contents, func(c []byte) bool { return bytes.Equal(c, now) }) {
		h.t.Errorf("%s: %d bytes that are in no version", path, len(now))
	}
}

// executable fails the test unless everybody may execute the plugin.
func (h *host) executable() {
	h.t.Helper()
	info, err := os.Lstat(filepath.Join(h.Plugins.Dir, "bridge"))
	if err != nil || info.Mode() != 0o755 {
		h.t.Errorf("plugin: %v, %v", info, err)
	}
}

// killer is the name of the test binary as a process that runs a command and kills it before the
// change with the number in its first argument. A process of its own waits for no other children.
const killer = "killer"

func runKiller(number string, command []string) error {
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	result, err := tracer.Trace(exec.Command(command[0], command[1:]...), nil,
		tracer.Fault{Effect: tracer.Kill, N: n, First: true})
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// kill runs an installer and kills it before a change.
func (h *host) kill(installerPath string, change int) (result tracer.Run) {
	h.t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{killer, strconv.Itoa(change), installerPath, h.root}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err = errors.Join(err, json.Unmarshal(out, &result)); err != nil {
		h.t.Fatal(err)
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
			h.upgradesOn(mounted, old, current, func() { h.fill(mounted) }, func() { h.free(mounted) })
			h.upgradesOn(mounted, old, current, func() { remount("ro") }, func() { remount("rw") })
		})
	}
}

// upgradesOn upgrades from the old to the current version while a disk is broken, and again when it
// is repaired.
func (h *host) upgradesOn(mounted, old, current string, spoil, repair func()) {
	h.t.Helper()
	h.write(h.Source, "10-pods.conflist", network("pods", 1500))
	run(h.t, old, h.root)
	h.write(h.Source, "10-pods.conflist", network("pods", 1400))
	before := h.files(mounted)
	spoil()
	if out, err := exec.Command(current, h.root).CombinedOutput(); err == nil {
		h.t.Errorf("the installation succeeds: %s", out)
	}
	h.works()
	h.has("net.d/10-pods.conflist", []byte(network("pods", 1500)))
	repair()
	h.expect(h.files(mounted), before...)
	run(h.t, current, h.root)
	h.expect(h.files(h.Plugins.Dir), "bridge")
	h.expect(h.files(h.NetDir), ".tenon-node", "10-pods.conflist")
	h.has("bin/bridge", content(h.t, current))
	h.has("net.d/10-pods.conflist", []byte(network("pods", 1400)))
}

// ballast is the name of the file that fills a disk.
const ballast = "ballast"

func (h *host) fill(dir string) {
	h.t.Helper()
	if err := fill(filepath.Join(dir, ballast)); !errors.Is(err, syscall.ENOSPC) {
		h.t.Fatal(err)
	}
}

func (h *host) free(dir string) {
	h.t.Helper()
	if err := os.Remove(filepath.Join(dir, ballast)); err != nil {
		h.t.Fatal(err)
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
			out, err := exec.Command(filepath.Join(h.Plugins.Dir, "bridge")).CombinedOutput()
			if err != nil {
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
