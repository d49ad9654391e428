package netlink

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolValue is struct ethtool_value of linux/ethtool.h.
type ethtoolValue struct{ Command, Data uint32 }

// ifreqData is struct ifreq of linux/if.h with a pointer.
type ifreqData struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte // the union is larger than a pointer
}

// TxChecksum reports whether a link leaves checksums of sent packets to the device below it.
func (c Links) TxChecksum(l Link) (on bool, err error) {
	v := ethtoolValue{Command: unix.ETHTOOL_GTXCSUM}
	err = c.ethtool(l, &v)
	return v.Data != 0, err
}

// SetTxChecksum turns the offload of checksums of sent packets on or off (ethtool -K LINK tx).
func (c Links) SetTxChecksum(l Link, on bool) error {
	v := ethtoolValue{Command: unix.ETHTOOL_STXCSUM}
	if on {
		v.Data = 1
	}
	return c.ethtool(l, &v)
}

func (c Links) ethtool(l Link, v *ethtoolValue) error {
	fd, err := c.conn.ns.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("offloads of link %q: %w", l.Name, err)
	}
	defer unix.Close(fd)
	request := ifreqData{data: unsafe.Pointer(v)}
	copy(request.name[:unix.IFNAMSIZ-1], l.Name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(v)
	if errno != 0 {
		return fmt.Errorf("offloads of link %q: %w", l.Name, errno)
	}
	return nil
}
