package tracer

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// watched are the calls that [tracer.classify] must see, including the call that returns sockets.
var watched = []uint32{
	unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_WRITEV,
	unix.SYS_PWRITEV, unix.SYS_FTRUNCATE,
	unix.SYS_FALLOCATE, unix.SYS_OPENAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT,
	unix.SYS_RENAME, unix.SYS_LINK,
	unix.SYS_SYMLINKAT, unix.SYS_UNLINKAT, unix.SYS_UNLINK, unix.SYS_RMDIR, unix.SYS_MKDIRAT,
	unix.SYS_MKDIR, unix.SYS_FCHMODAT,
	unix.SYS_FCHMOD, unix.SYS_FSETXATTR, unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_FLOCK,
	unix.SYS_CLONE, unix.SYS_CLONE3,
	unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_WAITID, unix.SYS_WAIT4, unix.SYS_SETNS,
	unix.SYS_UNSHARE, unix.SYS_MOUNT,
	unix.SYS_UMOUNT2, unix.SYS_IOCTL, unix.SYS_CLOSE,
	unix.SYS_SOCKET,
}

// classify returns the change that a call is about to make. It runs after the entry of the call and
// before its execution.
func (t *tracer) classify(tid int, c syscallEntry) (Change, bool) {
	switch c.number {
	case unix.SYS_SENDTO:
		return t.send(tid, "sendto", int(c.args[0]), func() []byte {
			return peek(tid, c.args[1], c.args[2])
		})
	case unix.SYS_SENDMSG:
		return t.send(tid, "sendmsg", int(c.args[0]), func() []byte {
			return peekMessage(tid, c.args[1])
		})
	case unix.SYS_WRITE, unix.SYS_PWRITE64:
		if c.args[2] == 0 {
			return Change{}, false
		}
		return writes(tid, int(c.args[0]))
	case unix.SYS_WRITEV, unix.SYS_PWRITEV, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE:
		return writes(tid, int(c.args[0]))
	case unix.SYS_OPENAT:
		if c.args[2]&(unix.O_CREAT|unix.O_TRUNC) == 0 {
			return Change{}, false
		}
		return file("create", pathAt(tid, c.args[0], c.args[1]), unix.ENOSPC), true
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT:
		return file("rename", pathAt(tid, c.args[2], c.args[3]), unix.ENOSPC), true
	case unix.SYS_RENAME, unix.SYS_LINK:
		return file("rename", pathAt(tid, atCWD, c.args[1]), unix.ENOSPC), true
	case unix.SYS_SYMLINKAT:
		return file("symlink", pathAt(tid, c.args[1], c.args[2]), unix.ENOSPC), true
	case unix.SYS_UNLINKAT:
		return file("remove", pathAt(tid, c.args[0], c.args[1]), unix.EIO), true
	case unix.SYS_UNLINK, unix.SYS_RMDIR:
		return file("remove", pathAt(tid, atCWD, c.args[0]), unix.EIO), true
	case unix.SYS_MKDIRAT:
		return file("mkdir", pathAt(tid, c.args[0], c.args[1]), unix.ENOSPC), true
	case unix.SYS_MKDIR:
		return file("mkdir", pathAt(tid, atCWD, c.args[0]), unix.ENOSPC), true
	case unix.SYS_FCHMODAT:
		return file("chmod", pathAt(tid, c.args[0], c.args[1]), unix.EIO), true
	case unix.SYS_FCHMOD, unix.SYS_FSETXATTR:
		return file("chmod", descriptor(tid, int(c.args[0])), unix.EIO), true
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		return file("sync", descriptor(tid, int(c.args[0])), unix.EIO), true
	case unix.SYS_FLOCK:
		return Change{Name: "flock", Errno: unix.ENOLCK}, true
	case unix.SYS_CLONE, unix.SYS_CLONE3, unix.SYS_FORK, unix.SYS_VFORK:
		return Change{Name: "start process", Errno: unix.EAGAIN}, startsProcess(tid, c)
	case unix.SYS_WAITID, unix.SYS_WAIT4:
		return Change{Name: "wait for process"}, true
	case unix.SYS_SETNS:
		return Change{Name: "setns", Errno: unix.EPERM}, true
	case unix.SYS_UNSHARE:
		return Change{Name: "unshare", Errno: unix.EPERM}, true
	case unix.SYS_MOUNT, unix.SYS_UMOUNT2:
		return Change{Name: "mount", Errno: unix.EPERM}, true
	case unix.SYS_IOCTL:
		if target := descriptor(tid, int(c.args[0])); strings.HasPrefix(target, "socket:") ||
			target == "/dev/net/tun" {
			return Change{Name: fmt.Sprintf("ioctl %#x", c.args[1]), Errno: unix.EPERM}, true
		}
	case unix.SYS_CLOSE:
		if protocol, ok := t.netlink[descriptor(tid, int(c.args[0]))]; ok &&
			protocol == unix.NETLINK_NETFILTER {
			return Change{Name: "close nftables socket"}, true
		}
	}
	return Change{}, false
}

// startsProcess reports whether a call starts a process, not only a thread.
func startsProcess(tid int, c syscallEntry) bool {
	flags := c.args[0]
	switch c.number {
	case unix.SYS_FORK, unix.SYS_VFORK:
		return true
	case unix.SYS_CLONE3: // the flags are the first member of struct clone_args
		b := peek(tid, c.args[0], 8)
		if len(b) < 8 {
			return false
		}
		flags = binary.NativeEndian.Uint64(b)
	}
	return flags&unix.CLONE_THREAD == 0
}

func file(verb, path string, errno unix.Errno) Change {
	return Change{Name: verb + " " + filepath.Base(path), Path: path, Errno: errno}
}

// writes classifies a change of a file's content. It includes the result of the plugin, which can
// be lost like any other change.
func writes(tid, fd int) (Change, bool) {
	switch path := descriptor(tid, fd); {
	case fd == 1 && strings.HasPrefix(path, "pipe:"):
		return Change{Name: Result, Errno: unix.EPIPE}, true
	case strings.HasPrefix(path, "/proc/sys/"):
		return Change{Name: "write " + filepath.Base(filepath.Dir(path)) + "/" +
			filepath.Base(path), Errno: unix.ENOMEM}, true
	case strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "/dev/"):
		return file("write", path, unix.ENOSPC), true
	}
	return Change{}, false
}

// send classifies a message on a netlink socket; messages on other sockets change nothing. A query
// after a request for a link counts, because only the answer gives the plugin the index of the
// link.
func (t *tracer) send(tid int, call string, fd int, message func() []byte) (Change, bool) {
	protocol, ok := t.netlink[descriptor(tid, fd)]
	if !ok {
		return Change{}, false
	}
	var changes []string
	types := netlinkTypes(message())
	if protocol == unix.NETLINK_ROUTE && slices.Contains(types, unix.RTM_GETLINK) && t.created {
		t.created = false
		return Change{Name: call + " RTM_GETLINK of a new link", Errno: unix.ENOBUFS}, true
	}
	t.created = protocol == unix.NETLINK_ROUTE && slices.Contains(types, unix.RTM_NEWLINK)
	for _, kind := range types {
		if name, ok := netlinkChange(protocol, kind); ok && !slices.Contains(changes, name) {
			changes = append(changes, name)
		}
	}
	return Change{Name: call + " " + strings.Join(changes, ","), Errno: unix.ENOBUFS,
		Reply: true}, len(changes) > 0
}

// netlinkTypes returns the types of the netlink messages in a buffer (netlink(7)).
func netlinkTypes(b []byte) []uint16 {
	var types []uint16
	for len(b) >= unix.SizeofNlMsghdr {
		length := int(binary.NativeEndian.Uint32(b))
		types = append(types, binary.NativeEndian.Uint16(b[4:]))
		aligned := (length + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1)
		if length < unix.SizeofNlMsghdr || aligned > len(b) {
			break
		}
		b = b[aligned:]
	}
	return types
}

var rtnetlinkNames = map[uint16]string{
	unix.RTM_NEWLINK: "RTM_NEWLINK", unix.RTM_DELLINK: "RTM_DELLINK",
	unix.RTM_SETLINK: "RTM_SETLINK",
	unix.RTM_NEWADDR: "RTM_NEWADDR", unix.RTM_DELADDR: "RTM_DELADDR",
	unix.RTM_NEWROUTE: "RTM_NEWROUTE", unix.RTM_DELROUTE: "RTM_DELROUTE",
}

// netlinkChange names a message that requests a change; ok is false for queries and for the
// messages that begin and end a batch.
func netlinkChange(protocol int, kind uint16) (name string, ok bool) {
	switch protocol {
	case unix.NETLINK_ROUTE: // rtnetlink(7): groups of NEW, DEL, GET, SET
		name, known := rtnetlinkNames[kind]
		if !known {
			name = fmt.Sprintf("rtnetlink %d", kind)
		}
		return name, kind >= unix.RTM_BASE && kind%4 != unix.RTM_GETLINK%4
	case unix.NETLINK_NETFILTER: // linux/netfilter/nfnetlink.h: subsystem in the upper byte
		subsystem, message := kind>>8, kind&0xff
		questions := []uint16{
			unix.NFT_MSG_GETTABLE, unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETRULE, unix.NFT_MSG_GETSET,
			unix.NFT_MSG_GETSETELEM,
			unix.NFT_MSG_GETGEN, unix.NFT_MSG_GETOBJ, unix.NFT_MSG_GETOBJ_RESET,
			unix.NFT_MSG_GETFLOWTABLE,
		}
		return "nftables", subsystem == unix.NFNL_SUBSYS_NFTABLES &&
			!slices.Contains(questions, message)
	}
	return fmt.Sprintf("netlink %d/%d", protocol, kind), true
}

// atCWD is the register value of unix.AT_FDCWD.
const atCWD = ^uint64(99)

// pathAt returns the absolute path that a call specifies with a directory descriptor and a string.
func pathAt(tid int, dir, name uint64) string {
	path := peekString(tid, name)
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	link := fmt.Sprintf("/proc/%d/cwd", tid)
	if int32(dir) != unix.AT_FDCWD {
		link = fmt.Sprintf("/proc/%d/fd/%d", tid, int32(dir))
	}
	base, err := os.Readlink(link)
	if err != nil {
		return path
	}
	return filepath.Join(base, path)
}

// descriptor returns the target of a file descriptor of the tracee, as in proc(5), or "".
func descriptor(tid, fd int) string {
	target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, int32(fd)))
	if err != nil {
		return ""
	}
	return target
}

// peek reads the memory of the tracee. It returns only the readable part.
func peek(tid int, address, length uint64) []byte {
	b := make([]byte, min(length, 1<<20))
	if len(b) == 0 {
		return nil
	}
	remote := []unix.RemoteIovec{{Base: uintptr(address), Len: len(b)}}
	n, err := unix.ProcessVMReadv(tid, []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}}, remote, 0)
	if err != nil {
		return nil
	}
	return b[:n]
}

// peekString reads a path. It does not cross into an unmapped page, because the string may end
// right before it.
func peekString(tid int, address uint64) string {
	const page = 4096
	var s []byte
	for len(s) < unix.PathMax {
		b := peek(tid, address, page-address%page)
		if end := slices.Index(b, 0); end >= 0 {
			return string(append(s, b[:end]...))
		}
		if len(b) == 0 {
			break
		}
		s = append(s, b...)
		address += uint64(len(b))
	}
	return string(s)
}

// peekMessage reads the data of a struct msghdr: its vector of buffers is at offset 16, their
// number at offset 24.
func peekMessage(tid int, address uint64) []byte {
	header := peek(tid, address, 32)
	if len(header) < 32 {
		return nil
	}
	vector, count := binary.NativeEndian.Uint64(header[16:]), binary.NativeEndian.Uint64(header[24:])
	var data []byte
	for entries := peek(tid, vector,
		16*min(count, 1024)); len(entries) >= 16; entries = entries[16:] {
		data = append(data, peek(tid, binary.NativeEndian.Uint64(entries), binary.NativeEndian.Uint64(entries[8:]))...)
	}
	return data
}
