// Package mounts builds a private view of the host's files in a mount namespace: it lists mounts, and
// makes them read-only. It knows nothing of the processes that use the view.
package mounts

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount is a mount of this process.
type Mount struct {
	Path string
	Type string // of the file system: "ext4"
}

// Below lists the mounts at a path and below it, the last one first.
func Below(path string) ([]Mount, error) {
	f, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return read(f, path)
}

// read reads the format of proc_pid_mountinfo(5).
func read(from io.Reader, path string) (list []Mount, err error) {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		const point = 4 // field with the mount point
		before, after, _ := strings.Cut(lines.Text(), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if len(fields) <= point || len(kind) == 0 {
			continue
		}
		at := unescape.Replace(fields[point])
		if at == path || strings.HasPrefix(at, strings.TrimSuffix(path, "/")+"/") {
			list = append(list, Mount{at, kind[0]})
		}
	}
	slices.Reverse(list)
	return list, lines.Err()
}

// Private keeps later mounts of this process from other mount namespaces.
func Private() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }

// DetachNamespaces unmounts the references to network namespaces below a path, which lead out of the
// view. In a user namespace, mounts of the host cannot be unmounted one by one; there, the kernel
// does not let the references be used either. References below another mount stay: no path leads to
// them.
func DetachNamespaces(path string) error {
	list, err := Below(path)
	if err != nil {
		return err
	}
	for _, m := range list {
		if m.Type != "nsfs" {
			continue
		}
		switch err := unix.Unmount(m.Path, unix.MNT_DETACH); err {
		case nil, unix.EINVAL, unix.ENOENT:
		default:
			return fmt.Errorf("%s: %w", m.Path, err)
		}
	}
	return nil
}

// ReadOnly makes the mount at a path and all mounts below it read-only, and sets the other flags,
// for example [unix.MOUNT_ATTR_NODEV]. Before Linux 5.12, it takes a call for each mount.
func ReadOnly(path string, flags uint64) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | flags}
	err := unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE, &attr)
	if !errors.Is(err, unix.ENOSYS) {
		return err
	}
	return each(path, flags)
}

// each is ReadOnly with mount(2), which replaces all flags of a mount.
func each(path string, flags uint64) error {
	list, err := Below(path)
	for _, m := range list {
		var st unix.Statfs_t
		if unix.Statfs(m.Path, &st) != nil {
			continue // hidden by another mount
		}
		// The flags of statfs(2) and of mount_setattr(2) have the values of mount(2).
		const kept = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME
		now := uintptr(st.Flags)&kept | uintptr(flags) | unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY
		if st.Flags&unix.ST_RELATIME != 0 {
			now |= unix.MS_RELATIME
		}
		if err := unix.Mount("", m.Path, "", now, ""); err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
	}
	return err
}
