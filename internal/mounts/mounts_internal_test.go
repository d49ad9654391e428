package mounts

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/testnet"
)

func TestRead(t *testing.T) {
	t.Parallel()
	const text = `22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 22 0:5 / /a\040b rw shared:1 - tmpfs conform rw
24 23 0:4 net:[1] /a\040b/ns rw - nsfs nsfs rw
25 22 0:6 / /a rw - tmpfs x rw
`
	for path, want := range map[string][]Mount{
		"/":    {{"/a", "tmpfs"}, {"/a b/ns", "nsfs"}, {"/a b", "tmpfs"}, {"/", "ext4"}},
		"/a b": {{"/a b/ns", "nsfs"}, {"/a b", "tmpfs"}},
		"/a":   {{"/a", "tmpfs"}},
	} {
		got, err := read(strings.NewReader(text), path)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v", path, got, err)
		}
	}
}

// TestReadOnly checks both ways to make mounts read-only, and that they keep flags of the mounts.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Root)
	for name, change := range map[string]func(string, uint64) error{"mount_setattr": ReadOnly, "mount": each} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			inNamespace(t, func() error { return readOnly(t, dir, change) })
		})
	}
}

// inNamespace calls f in a mount namespace of its own.
func inNamespace(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with its mount namespace
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = Private()
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestDetachNamespaces has a reference that a path leads to, and one below another mount.
func TestDetachNamespaces(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Root)
	dir := t.TempDir()
	inNamespace(t, func() error {
		for _, path := range []string{dir + "/hidden/ns", dir + "/ns"} {
			if err := os.MkdirAll(path[:strings.LastIndex(path, "/")], 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				return err
			}
			if err := unix.Mount("/proc/self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
				return err
			}
		}
		if err := unix.Mount("x", dir+"/hidden", "tmpfs", 0, ""); err != nil {
			return err
		}
		if err := DetachNamespaces(dir); err != nil {
			return err
		}
		list, err := Below(dir)
		if want := []Mount{{dir + "/hidden", "tmpfs"}, {dir + "/hidden/ns", "nsfs"}}; !slices.Equal(list, want) {
			t.Errorf("mounts %v, expected %v", list, want)
		}
		return err
	})
}

func readOnly(t *testing.T, dir string, change func(string, uint64) error) error {
	if err := unix.Mount("x", dir, "tmpfs", unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	if err := os.Mkdir(dir+"/inner", 0o755); err != nil {
		return err
	}
	if err := unix.Mount("x", dir+"/inner", "tmpfs", unix.MS_NOATIME, ""); err != nil {
		return err
	}
	if err := change(dir, unix.MOUNT_ATTR_NODEV); err != nil {
		return err
	}
	for path, kept := range map[string]int64{dir: unix.ST_NOEXEC, dir + "/inner": unix.ST_NOATIME} {
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); err != nil {
			return err
		}
		if want := unix.ST_RDONLY | unix.ST_NODEV | kept; int64(st.Flags)&want != want {
			t.Errorf("%s: flags %#x lack some of %#x", path, st.Flags, want)
		}
	}
	return nil
}
