// Package tun makes tap devices, Ethernet interfaces with a program at the other end
// (networking/tuntap of the kernel), by the ioctls of /dev/net/tun: rtnetlink cannot. It makes them
// in the namespace of the calling thread, and undoes nothing.
package tun

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

const device = "/dev/net/tun"

// ErrMissing says that the kernel cannot make tap devices, or that there is no device file to ask
// it with.
var ErrMissing = errors.New(device + " is missing or leads to no driver")

// Tap describes a tap device.
type Tap struct {
	Name       string
	MultiQueue bool    // several programs, or threads, can each drive a queue
	VNetHdr    bool    // frames have a virtio_net_hdr before them, until a program that opens it says otherwise
	Owner      *uint32 // the user who may open it without CAP_NET_ADMIN; nil: none is named
	Group      *uint32 // the group with members that may, likewise
}

// Available returns nil if tap devices can be made. The error wraps [ErrMissing] if they cannot, or
// the reason why Available cannot find out. Opening the device file loads the module if there is
// one.
func Available() error {
	fd, err := open()
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func open() (fd int, err error) {
	fd, err = unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	for _, missing := range []error{unix.ENOENT, unix.ENOTDIR, unix.ENODEV, unix.ENXIO} {
		if errors.Is(err, missing) {
			return -1, fmt.Errorf("%w (%w)", ErrMissing, err)
		}
	}
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", device, err)
	}
	return fd, nil
}

// Create makes the device under its name, down, and lets it outlive the call; where that fails, or
// the process ends before, nothing is left. The error is EBUSY if the name is taken by a link of
// any kind.
func (t Tap) Create() error {
	fd, err := open()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(t.Name)
	if err != nil {
		return fmt.Errorf("name %q: %w", t.Name, err)
	}
	request.SetUint16(t.flags())
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return fmt.Errorf("TUNSETIFF: %w", err)
	}
	if t.Owner != nil {
		if err := unix.IoctlSetInt(fd, unix.TUNSETOWNER, int(*t.Owner)); err != nil {
			return fmt.Errorf("TUNSETOWNER %d: %w", *t.Owner, err)
		}
	}
	if t.Group != nil {
		if err := unix.IoctlSetInt(fd, unix.TUNSETGROUP, int(*t.Group)); err != nil {
			return fmt.Errorf("TUNSETGROUP %d: %w", *t.Group, err)
		}
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		return fmt.Errorf("TUNSETPERSIST: %w", err)
	}
	return nil
}

// flags never ask for packet information before frames, and never for a device that exists.
func (t Tap) flags() uint16 {
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_TUN_EXCL)
	if t.MultiQueue {
		flags |= unix.IFF_MULTI_QUEUE
	}
	if t.VNetHdr {
		flags |= unix.IFF_VNET_HDR
	}
	return flags
}
