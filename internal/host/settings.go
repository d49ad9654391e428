package host

import (
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
)

// allSettings is the part of reading for [Options.AllSettings].
func (r *reader) allSettings(n *Namespace, ns *netns.NS, first bool, files *SettingFiles) error {
	n.Settings = make(map[string]string, 600)
	tree := files.tree(ns.ID(), !first)
	defer files.keep(ns.ID(), tree)
	err := ns.Visit(func() error {
		tree.read(n.Settings, "net")
		return nil
	})
	if err != nil || !first {
		return err
	}
	return r.linkSettings(n.Settings)
}

// linkSettings adds the sysctls of links that rtnetlink lists.
func (r *reader) linkSettings(all map[string]string) error {
	mask := []netlink.Attribute{netlink.Uint32(unix.IFLA_EXT_MASK, netlink.SkipStats)}
	_, err := netlink.Dump(r.conn, unix.RTM_GETLINK, unix.IfInfomsg{}, mask, func(_ []Link, m []byte) ([]Link, error) {
		values, err := netlink.ReadBody(m, &unix.IfInfomsg{})
		link := netlink.Text(netlink.Find(values, unix.IFLA_IFNAME))
		for name, value := range netlink.LinkSettings(netlink.Find(values, unix.IFLA_AF_SPEC)) {
			name = strings.Replace(strings.ReplaceAll(name, "/", "."), "*", link, 1)
			all["net."+name] = strconv.Itoa(value)
		}
		return nil, err
	})
	return err
}

const sysctls = "/proc/sys/"

// SettingFiles keep the files of sysctls open between calls of [Read], which spares it a fifth to a
// quarter of the time (go test ./internal/judge/cell -bench snapshot). A namespace with a few links has 500
// files. If they exceed the limit, Read closes the files of a namespace after each call. The zero value
// is ready for use. It is for one caller at a time.
type SettingFiles struct {
	mu    sync.Mutex
	trees map[netns.ID]*settingDir
	open  map[netns.ID]int // files of these trees
}

// maxOpen limits the open files, with half of the limit of the process (RLIMIT_NOFILE).
const maxOpen = 4096

// tree returns the files of a namespace; links includes the files of its links. The caller reads them, and
// then calls keep.
func (f *SettingFiles) tree(id netns.ID, links bool) *settingDir {
	if f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		if tree := f.trees[id]; tree != nil {
			return tree
		}
	}
	return &settingDir{links: links}
}

// keep keeps the files open for the next call, or closes them if there are too many.
func (f *SettingFiles) keep(id netns.ID, tree *settingDir) {
	if f == nil {
		tree.close()
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	most := maxOpen
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		most = int(min(maxOpen, limit.Cur/2))
	}
	n := tree.count()
	for other, open := range f.open {
		if other != id {
			most -= open
		}
	}
	if n > most {
		tree.close()
		delete(f.trees, id)
		delete(f.open, id)
		return
	}
	if f.trees == nil {
		f.trees, f.open = map[netns.ID]*settingDir{}, map[netns.ID]int{}
	}
	f.trees[id], f.open[id] = tree, n
}

// Close closes the files.
func (f *SettingFiles) Close() {
	for _, tree := range f.trees {
		tree.close()
	}
	f.trees, f.open = nil, nil
}

// settingDir is a directory of sysctls.
type settingDir struct {
	links bool // with the directories of links
	known bool // the names are known
	files []settingFile
	dirs  map[string]*settingDir
}

// settingFile is the open file of a sysctl.
type settingFile struct {
	name, key string // "accept_ra", "net.ipv6.conf.all.accept_ra"
	fd        int
}

// read adds the values of the files below a directory. The thread is in the namespace.
func (d *settingDir) read(values map[string]string, dir string) {
	if !d.known || changing(dir) || !d.again(values) {
		d.list(values, dir)
	}
	for name, sub := range d.dirs {
		sub.read(values, dir+"/"+name)
	}
}

// changing reports whether a directory can get further names: from modules of the kernel or new links.
func changing(dir string) bool {
	switch path.Base(dir) {
	case "net", "netfilter", "bridge", "conf", "neigh":
		return true
	}
	return false
}

// again reads the known files. It fails if the link of the directory is gone; there may be another one
// of its name.
func (d *settingDir) again(values map[string]string) bool {
	for _, f := range d.files {
		if !f.read(values) {
			return false
		}
	}
	return true
}

// list reads the files and learns all names. It leaves out commands and counters.
func (d *settingDir) list(values map[string]string, dir string) {
	at, err := os.Open(sysctls + dir)
	if err != nil {
		d.close()
		return
	}
	defer at.Close()
	now := settingDir{links: d.links, known: true, dirs: map[string]*settingDir{}}
	prefix := strings.ReplaceAll(dir, "/", ".") + "."
	entries, _ := at.ReadDir(-1) // a failure is the end of the link
	for _, e := range entries {
		name := e.Name()
		switch {
		case !d.links && name != "all" && name != "default" && (path.Base(dir) == "conf" || path.Base(dir) == "neigh"):
		case name == "flush" || name == "stable_secret" || strings.HasSuffix(name, "_count"):
		case e.IsDir():
			sub := d.dirs[name]
			if delete(d.dirs, name); sub == nil {
				sub = &settingDir{links: d.links}
			}
			now.dirs[name] = sub
		default:
			f, ok := d.take(name)
			if ok && !f.read(values) {
				_ = unix.Close(f.fd)
				ok = false
			}
			if !ok {
				f, ok = openSetting(int(at.Fd()), prefix, name, values)
			}
			if ok {
				now.files = append(now.files, f)
			}
		}
	}
	d.close()
	*d = now
}

// take removes a file from the open ones.
func (d *settingDir) take(name string) (f settingFile, ok bool) {
	i := slices.IndexFunc(d.files, func(f settingFile) bool { return f.name == name })
	if i < 0 {
		return f, false
	}
	f = d.files[i]
	d.files = slices.Delete(d.files, i, i+1)
	return f, true
}

// openSetting opens a file in a directory and reads it.
func openSetting(dir int, prefix, name string, values map[string]string) (settingFile, bool) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return settingFile{}, false
	}
	f := settingFile{name, prefix + name, fd}
	if !f.read(values) {
		_ = unix.Close(fd) // only read
		return settingFile{}, false
	}
	return f, true
}

// read adds the first 4 KiB of the file. The kernel allocates as many bytes as the caller asks for, and
// most values are short.
func (f settingFile) read(values map[string]string) bool {
	var short [128]byte
	b := short[:]
	n, err := unix.Pread(f.fd, b, 0)
	if n == len(b) {
		b = make([]byte, 4096)
		n, err = unix.Pread(f.fd, b, 0)
	}
	if err != nil {
		return false
	}
	values[f.key] = strings.Join(strings.Fields(string(b[:n])), " ")
	return true
}

// count returns the number of open files.
func (d *settingDir) count() int {
	n := len(d.files)
	for _, sub := range d.dirs {
		n += sub.count()
	}
	return n
}

func (d *settingDir) close() {
	for _, f := range d.files {
		_ = unix.Close(f.fd) // only read
	}
	for _, sub := range d.dirs {
		sub.close()
	}
	d.files, d.dirs, d.known = nil, nil, false
}
