package legacy

import (
	"encoding/binary"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
)

const setReplace = 64 // IPT_SO_SET_REPLACE

// Copy gives a namespace the tables of another one, without their counters. It creates no table that
// the other lacks. It sends the blob of a table back to the kernel, which lists names of matches and
// targets as it accepts them.
func Copy(from, to *netns.NS) error {
	return tables(from, func(f family, name string) error {
		t, err := f.table(from, name)
		if err != nil {
			return err
		}
		fd, err := f.socket(to)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return t.replace(fd)
	})
}

// replace gives the table of the same name in the namespace of a socket the rules of t. The kernel
// creates the table if there is none.
func (t *table) replace(fd int) error {
	old, err := t.family.info(fd, t.name)
	if err != nil {
		return err
	}
	const counter = 16 // struct xt_counters
	counters := make([]byte, counter*int(max(old.Entries, 1)))
	request := netlink.Body(struct { // struct ipt_replace
		Name                 [nameSize]byte
		Hooks, Entries, Size uint32
		Entry, Underflow     [hooks]uint32
		Counters             uint32
	}{t.info.Name, t.info.Hooks, t.info.Entries, t.info.Size, t.info.Entry, t.info.Underflow, old.Entries})
	if pad := len(request) % int(unsafe.Sizeof(uintptr(0))); pad > 0 {
		request = append(request, make([]byte, pad)...)
	}
	pointer := uintptr(unsafe.Pointer(&counters[0]))
	if unsafe.Sizeof(pointer) == 8 {
		request = binary.NativeEndian.AppendUint64(request, uint64(pointer))
	} else {
		request = binary.NativeEndian.AppendUint32(request, uint32(pointer))
	}
	request = append(request, t.blob...)
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(t.level), setReplace,
		uintptr(unsafe.Pointer(&request[0])), uintptr(len(request)), 0)
	runtime.KeepAlive(counters)
	if errno != 0 {
		return errno
	}
	return nil
}
