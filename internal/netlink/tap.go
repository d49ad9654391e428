package netlink

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

const tunDevice = "/dev/net/tun"

// ErrNoTun reports that the kernel cannot create tap devices, or that /dev/net/tun is missing.
var ErrNoTun = errors.New(tunDevice + " is missing or has no driver")

// Tap describes a tap device, an Ethernet interface with a program at the other end
// (networking/tuntap of the kernel).
type Tap struct {
	Name       string
	MultiQueue bool    // several programs, or threads, can each drive a queue
	VNetHdr    bool    // frames have a virtio_net_hdr until a program disables it
	Owner      *uint32 // the user who may open it without CAP_NET_ADMIN, or nil
	Group      *uint32 // the group with members who may open it, or nil
}

// TapAvailable returns nil if the kernel can create tap devices. The error wraps [ErrNoTun] if it
// cannot; any other error means that TapAvailable cannot find out. Opening the device file loads
// the module if there is one.
func TapAvailable() error {
	fd, err := openTun()
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func openTun() (fd int, err error) {
	fd, err = unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	for _, missing := range []error{unix.ENOENT, unix.ENOTDIR, unix.ENODEV, unix.ENXIO} {
		if errors.Is(err, missing) {
			return -1, fmt.Errorf("%w (%w)", ErrNoTun, err)
		}
	}
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", tunDevice, err)
	}
	return fd, nil
}

// Create creates the device in the namespace of the calling thread, under its name and down, and
// makes it persistent. If Create fails, or the process ends before, the kernel removes the device.
// The error is EBUSY if a link of any kind has the name.
func (t Tap) Create() error {
	fd, err := openTun()
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

// flags never request packet information before frames, and never accept an existing device.
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
