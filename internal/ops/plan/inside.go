package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/mounts"
	"github.com/tenon-cni/tenon/internal/netns"
)

// The descriptors that the process inside inherits.
const (
	eventsFD = 3
	firstNS  = 4
)

// spec describes the world to the process inside, on its standard input: an environment variable
// cannot be longer than 128 KiB (execve(2)).
type spec struct {
	Dir        string   `json:"dir"`        // working directory
	Writable   []string `json:"writable"`   // directories that get a private copy
	Data       []string `json:"data"`       // directories with files of plugins that name namespaces
	Namespaces []string `json:"namespaces"` // paths that lead to the namespaces from firstNS on
	IDs        []string `json:"ids"`        // numbers of the namespaces that these paths led to
	Firewalld  bool     `json:"firewalld"`  // runs on the host
}

// Inside is the world in which a planned operation runs: a process with namespaces of its own for
// network, mounts and processes.
type Inside struct {
	spec   spec
	mu     sync.Mutex // of events
	events *json.Encoder
	layers []layer
	copies map[string]string // inodes of copies, by the inodes of their sources
}

// layer is a directory that the operation can change.
type layer struct {
	dir          string // as the operation sees it
	lower, upper *os.File
}

// Mount points in the world before it is the root.
const (
	stage = "/sys" // exists everywhere, and gets a new file system in any case
	root  = stage + "/root"
)

// Enter changes the root of this process to a private view of all files, and returns the world. In
// it, all files are read-only, except private copies of directories; the only namespaces that paths
// lead to are copies; and no Unix socket can be created, so that no daemon is reached. Only a
// process that [Run] has started can call Enter.
func Enter() (*Inside, error) {
	if os.Getpid() != 1 {
		return nil, errors.New("not in a process namespace of its own")
	}
	w := &Inside{events: json.NewEncoder(os.NewFile(eventsFD, "events"))}
	if err := json.NewDecoder(os.Stdin).Decode(&w.spec); err != nil {
		return nil, fmt.Errorf("description of the scratch world: %w", err)
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"private mounts", mounts.Private},
		{"stage", w.build},
		{"read-only files", func() error { return mounts.ReadOnly(root, 0) }},
		{"processes", w.processes},
		{"private directories", w.overlays},
		{"change of the root", func() error { return errors.Join(unix.Chroot(root), unix.Chdir("/")) }},
		{"namespaces", w.namespaces},
		{"references to namespaces", w.rewrite},
		{"filter of system calls", refuseUnixSockets},
	} {
		if err := step.do(); err != nil {
			err = fmt.Errorf("%s: %w", step.what, err)
			w.report(event{Broken: err.Error()})
			return nil, err
		}
	}
	_ = os.Chdir(w.spec.Dir) // the operation reports relative paths that do not exist
	return w, nil
}

// build binds all files below the stage, without the mounts that lead to network namespaces.
func (w *Inside) build() error {
	if err := unix.Mount("tenon-plan", stage, "tmpfs", 0, "mode=0700"); err != nil {
		return err
	}
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("/", root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if err := mounts.DetachNamespaces(root); err != nil {
		return err
	}
	// A sysfs of the new network namespace; where none can be mounted, the directory is empty.
	_ = unix.Mount("sysfs", root+stage, "sysfs", unix.MS_RDONLY, "")
	return nil
}

const realProc = ".real"

// processes mounts /proc for the new namespace of processes, which shows no process of the host. It
// is in a directory of links, in which the paths of namespaces have a place: /proc/PID/ns/net.
func (w *Inside) processes() error {
	dir := root + "/proc"
	if err := unix.Mount("tenon-plan", dir, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	proc := filepath.Join(dir, realProc)
	if err := os.Mkdir(proc, 0o555); err != nil {
		return err
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", proc, "proc", flags, ""); err != nil {
		return err
	}
	entries, err := os.ReadDir(proc)
	for _, e := range entries {
		name := e.Name()
		if err := os.Symlink(filepath.Join(realProc, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	// The sysctls outside /proc/sys/net belong to the host.
	sys := filepath.Join(proc, "sys")
	net := filepath.Join(sys, "net")
	for _, m := range []struct {
		from, to string
		flags    uintptr
	}{
		{sys, sys, unix.MS_BIND}, {"", sys, unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY},
		{net, net, unix.MS_BIND}, {"", net, unix.MS_BIND | unix.MS_REMOUNT},
	} {
		if err := unix.Mount(m.from, m.to, "", m.flags, ""); err != nil {
			return fmt.Errorf("%s: %w", m.to, err)
		}
	}
	return nil
}

// existing returns the nearest directory that exists at or above a path, without symbolic links.
func existing(dir string) (string, error) {
	for {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			if info, err := os.Stat(real); err != nil || info.IsDir() {
				return real, err
			}
			return filepath.Dir(real), nil
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == "/" {
			return "", err
		}
		dir = filepath.Dir(dir)
	}
}

// overlays mounts a writable layer over each directory that the operation may change, outer
// directories first.
func (w *Inside) overlays() error {
	var dirs []string
	for _, dir := range w.spec.Writable {
		real, err := existing(dir)
		if err != nil {
			return err
		}
		if real == "/" {
			return fmt.Errorf("%s does not exist: create the directory first", dir)
		}
		dirs = append(dirs, real)
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	for i, dir := range dirs {
		if inside(dir, dirs[:i]) {
			continue
		}
		if err := w.overlay(dir, i); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return nil
}

// inside reports whether a directory is part of one that precedes it, and on the same file system.
func inside(dir string, outer []string) bool {
	var st, of unix.Stat_t
	return slices.ContainsFunc(outer, func(o string) bool {
		return strings.HasPrefix(dir, o+"/") && unix.Stat(dir, &st) == nil &&
			unix.Stat(o, &of) == nil && st.Dev == of.Dev
	})
}

func (w *Inside) overlay(dir string, number int) error {
	base := fmt.Sprintf("%s/layer%d", stage, number)
	upper, work := base+"/upper", base+"/work"
	for _, d := range []string{upper, work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	l := layer{dir: dir}
	var err error
	if l.lower, err = os.Open(dir); err != nil {
		return err
	}
	if l.upper, err = os.Open(upper); err != nil {
		return err
	}
	escape := strings.NewReplacer(`\`, `\\`, ":", `\:`, ",", `\,`)
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", escape.Replace(dir), upper, work)
	if err := unix.Mount("tenon-plan", root+dir, "overlay", 0, options); err != nil {
		return fmt.Errorf("overlay file system: %w", err)
	}
	w.layers = append(w.layers, l)
	return nil
}

// namespaces makes paths lead to the copies of namespaces.
func (w *Inside) namespaces() error {
	for i, path := range w.spec.Namespaces {
		source := fmt.Sprintf("/proc/self/fd/%d", firstNS+i)
		if netns.SamePath(source, path) {
			continue // the namespace of this process: /proc/self/ns/net
		}
		if err := place(path); err != nil {
			return err
		}
		if err := unix.Mount(source, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// place creates the file of a path in the directory of a process below /proc. The only process that
// the world has is this one, the directory of which is a link and gives way.
func place(path string) error {
	rest, ok := strings.CutPrefix(path, "/proc/")
	if !ok {
		return nil
	}
	pid, _, _ := strings.Cut(rest, "/")
	if _, err := strconv.Atoi(pid); err != nil {
		return fmt.Errorf("%s is another namespace for each process", path)
	}
	dir := filepath.Join("/proc", pid)
	if info, err := os.Lstat(dir); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if err := os.Remove(dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, nil, 0o400)
}

// rewrite makes references to namespaces in files of plugins lead to the copies.
func (w *Inside) rewrite() error {
	w.copies = map[string]string{}
	for i, id := range w.spec.IDs {
		var st unix.Stat_t
		if err := unix.Fstat(firstNS+i, &st); err != nil {
			return err
		}
		w.copies[id] = fmt.Sprint(st.Ino)
	}
	for _, dir := range append([]string{"/run/cni/host-device", "/run/cni/tuning"}, w.spec.Data...) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // the plugin was not used
		}
		for _, e := range entries {
			if err := w.rewriteFile(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *Inside) rewriteFile(path string) error {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if now := w.refer(string(text)); now != string(text) {
		return os.WriteFile(path, []byte(now), info.Mode()) // keeps the mark of the boot
	}
	return nil
}

// inode is the part of a [netns.Ref] in JSON that differs between a namespace and its copy.
var inode = regexp.MustCompile(`"Inode": ?[0-9]+`)

// refer makes references in a text lead to the copies.
func (w *Inside) refer(text string) string {
	return inode.ReplaceAllStringFunc(text, func(field string) string {
		at := strings.LastIndexAny(field, ": ") + 1
		if id, ok := w.copies[field[at:]]; ok {
			return field[:at] + id
		}
		return field
	})
}

// refuseUnixSockets makes socket(AF_UNIX) fail for this process and its children. Go programs for
// 386 and s390x use socketcall(2) instead; there, the copies of /run and of the network namespace
// hide the sockets of daemons.
func refuseUnixSockets() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K
		domain = 16 // offset of the first argument in struct seccomp_data
	)
	offset := uint32(domain)
	if one := uint16(1); *(*byte)(unsafe.Pointer(&one)) == 0 { // big-endian: the lower half is second
		offset += 4
	}
	filter := []unix.SockFilter{
		{Code: load}, // the number of the call
		{Code: equal, K: unix.SYS_SOCKET, Jf: 3},
		{Code: load, K: offset},
		{Code: equal, K: unix.AF_UNIX, Jf: 1},
		{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ECONNREFUSED)},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return errno
	}
	return nil
}
