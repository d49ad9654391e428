package cell

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/mounts"
)

// Mount points before the new root is in place. /sys exists everywhere, and gets a new file system.
const (
	stage = "/sys"
	root  = stage + "/root"
)

// writable are the directories of the cell that are empty and writable.
var writable = []string{"/run", "/var", "/tmp"}

// world is the view of a cell's processes.
type world struct {
	layer    *os.File // changes to /etc
	memory   uint64   // limit of the cell in bytes
	settings host.SettingFiles
	skipped  []string
	// unlimited are limits that the host lacks.
	unlimited []string
}

// enter changes the root of this process to the root of the cell.
func (w *world) enter(s *script.Scenario) error {
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"private mounts", mounts.Private},
		{"files of the host", w.bind},
		{"writable directories", w.directories},
		{"programs", func() error { return programs(s.Programs) }},
		{"change of the root", pivot},
		{"network", up},
		{"detection of duplicate addresses", func() error {
			if s.NoDetection {
				return noDetection()
			}
			return nil
		}},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// bind builds the new root: a file system with the directories of the host, read-only, without its
// devices. The directories that hold state of the host are empty, so that a process that unmounts a
// file system of the cell finds nothing below it.
func (w *world) bind() error {
	if err := w.inMemory(stage, 0); err != nil {
		return err
	}
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(root, root, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := w.bindEntry(e); err != nil {
			return fmt.Errorf("/%s: %w", e.Name(), err)
		}
	}
	for _, dir := range append([]string{"/dev", "/proc", "/sys", "/etc"}, writable...) {
		if err := os.MkdirAll(root+dir, 0o755); err != nil {
			return err
		}
	}
	if err := mounts.DetachNamespaces(root); err != nil {
		return err
	}
	return mounts.ReadOnly(root, unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID)
}

// bindEntry makes a file of the host's root visible. Only directories and links matter.
func (w *world) bindEntry(e os.DirEntry) error {
	from, to := "/"+e.Name(), root+"/"+e.Name()
	switch {
	case slices.Contains([]string{"/dev", "/proc", "/sys"}, from), slices.Contains(writable, from):
		return nil
	case e.Type()&os.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case !e.IsDir():
		return nil
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
	if errors.Is(err, unix.EACCES) {
		w.skip("the directory %s is not visible: %v", from, err)
		return nil
	}
	return err
}

// inMemory mounts a file system in memory, which has room for 256 MiB, or for an eighth of what the cell
// may have: the subject can fill all of them, and the judge needs memory too.
func (w *world) inMemory(dir string, flags uintptr) error {
	options := fmt.Sprintf("mode=0755,size=%d,nr_inodes=20000", min(256<<20, w.memory/8))
	return unix.Mount("conform", dir, "tmpfs", flags, options)
}

func (w *world) skip(format string, args ...any) {
	w.skipped = append(w.skipped, fmt.Sprintf(format, args...))
}

func (w *world) directories() error {
	for _, dir := range writable {
		if err := w.inMemory(root+dir, unix.MS_NOSUID|unix.MS_NODEV); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	for _, dir := range []string{"/var/lib", "/var/log", "/var/cache", script.Plugins, script.Outputs, script.Calls, script.Netns} {
		if err := os.MkdirAll(root+dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink("/run", root+"/var/run"); err != nil {
		return err
	}
	if err := shared(root + script.Netns); err != nil {
		return fmt.Errorf("%s: %w", script.Netns, err)
	}
	if err := w.etc(); err != nil {
		return fmt.Errorf("/etc: %w", err)
	}
	if err := w.devices(); err != nil {
		return fmt.Errorf("/dev: %w", err)
	}
	if err := sysfs(); err != nil {
		w.skip("/sys is empty: %v", err)
	}
	return w.processes(root + "/proc")
}

// shared mounts a directory on itself, as ip-netns(8) does for namespaces. If ip(8) did it later, there
// would be two mounts of each namespace that exists by then, and it could delete only one.
func shared(dir string) error {
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.Mount("", dir, "", unix.MS_SHARED, "")
}

// sysfs mounts /sys for the network namespace of the cell. In a user namespace, it mounts another one:
// ip(8) unmounts /sys before it mounts its own, which the kernel permits only where one is visible.
func sysfs() error {
	mount := func(dir string) error {
		if err := unix.Mount("sysfs", root+dir, "sysfs", 0, ""); err != nil {
			return err
		}
		// The mount is read-only, but not the file system: that one is also the one of ip(8).
		return unix.Mount("", root+dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	user, err := inUserNamespace()
	if err == nil {
		err = mount("/sys")
	}
	if err != nil || !user {
		return err
	}
	const other = script.Dir + "/sys"
	if err := os.Mkdir(root+other, 0o755); err != nil {
		return err
	}
	return mount(other)
}

// etc makes /etc writable in a layer of its own.
func (w *world) etc() error {
	upper, work := stage+"/etc", stage+"/work"
	if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
		return err
	}
	var err error
	if w.layer, err = os.Open(upper); err != nil {
		return err
	}
	return unix.Mount("conform", root+"/etc", "overlay", 0,
		fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", root+"/etc", upper, work))
}

// devices mounts a directory with the devices that lead to nothing of the host.
func (w *world) devices() error {
	dir := root + "/dev"
	if err := w.inMemory(dir, unix.MS_NOSUID); err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(dir+"/net", 0o755), os.Mkdir(dir+"/shm", 0o1777)); err != nil {
		return err
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "net/tun"} {
		if _, err := os.Stat("/dev/" + name); err != nil {
			continue
		}
		if err := bindFile("/dev/"+name, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return errors.Join(os.Symlink("/proc/self/fd", dir+"/fd"), os.Symlink("/proc/self/fd/0", dir+"/stdin"),
		os.Symlink("/proc/self/fd/1", dir+"/stdout"), os.Symlink("/proc/self/fd/2", dir+"/stderr"))
}

func bindFile(from, to string) error {
	if err := os.WriteFile(to, nil, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	return nil
}

// processes mounts /proc for the cell, read-only: only the sysctls of the network belong
// to the cell.
func (w *world) processes(proc string) error {
	net := proc + "/sys/net"
	if err := unix.Mount("proc", proc, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	w.limitProcesses(proc)
	if err := unix.Mount(net, net, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("/proc/sys/net: %w", err)
	}
	const readOnly = unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("", proc, "", readOnly, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	return nil
}

// restore mounts /proc again if the subject has unmounted it: the judge needs it too.
func (w *world) restore() error {
	if _, err := os.Stat("/proc/self/ns"); err == nil {
		return nil
	}
	w.skip("the subject unmounted /proc, which was mounted again")
	return w.processes("/proc")
}

// programs binds programs of the host into the directory of plugins. No process can change or delete
// them there.
func programs(paths []string) error {
	for _, path := range paths {
		to := root + script.Plugins + "/" + filepath.Base(path)
		if err := bindFile(path, to); err != nil {
			return err
		}
		if err := unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// pivot makes the copy the root, and unmounts everything else.
func pivot() error {
	if err := unix.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	return errors.Join(unix.Unmount(".", unix.MNT_DETACH), unix.Chdir("/"))
}
