package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
)

var (
	// ErrNoTun reports that the kernel cannot make tap devices, or that /dev/net/tun is missing.
	ErrNoTun = netlink.ErrNoTun
	// ErrNoSELinux reports that the kernel was started without SELinux.
	ErrNoSELinux = netlink.ErrNoSELinux
	// ErrContext reports that SELinux does not know a context, or refuses to execute with it.
	ErrContext = netlink.ErrContext
)

// TapDevice is the part of a [Tap] that only its creation can set.
type TapDevice = netlink.Tap

// MakeTap is the work of the program that [Tap.Program] starts: it makes the device described. The
// exit status is 0, or the error number with a message on stderr.
func MakeTap(description string, stderr io.Writer) (status int) {
	return netlink.MakeTap(description, stderr)
}

// Tap describes a tap device to be made.
type Tap struct {
	TapDevice
	MAC   net.HardwareAddr // nil lets the kernel choose
	MTU   int              // bytes; 0 is the kernel's default
	Alias string           // names the owner

	Context string   // the security context (SELinux) of the device; "" is the one of this process
	Program []string // arguments 0 and following: how this executable makes a device with another context
}

// AddTap makes a tap device, in this space under its name from the start, and down. It stays until it is deleted, and has no
// carrier until a program opens it. If the name is taken the error says so, and wraps [unix.EEXIST].
func (s Links) AddTap(t Tap) (Link, error) {
	err := s.space.tx.Do("add tap "+t.Name,
		func() error {
			err := s.space.NS.Run(t.create)
			if errors.Is(err, unix.EBUSY) {
				err = cmp.Or(s.space.nameInUse(t.Name, unix.EEXIST), err)
			}
			return err
		},
		func() error { return s.space.deleteTap(t.Name) })
	if err != nil {
		return Link{}, err
	}
	made, err := s.ByName(t.Name)
	if err != nil {
		return Link{}, err
	}
	if t.Alias != "" {
		err = s.SetAlias(made, t.Alias)
	}
	if err == nil && t.MTU != 0 {
		err = s.SetMTU(made, t.MTU)
	}
	if err == nil && t.MAC != nil {
		err = s.SetMAC(made, t.MAC)
	}
	if err != nil {
		return Link{}, err
	}
	return s.ByIndex(made.Index)
}

// create is for a thread that ends afterwards.
func (t Tap) create() error {
	if t.Context != "" {
		return t.CreateLabelled(t.Context, t.Program)
	}
	return t.Create()
}

// deleteTap goes by name: the ioctl that makes a device does not tell its index.
func (s *Space) deleteTap(name string) error {
	l, err := s.rt.Links.ByName(name)
	if err == nil {
		_, err = s.rt.Links.Delete(l)
	}
	return present(err)
}

// CheckTap compares a link with what AddTap makes: that it is a tap device, and what t demands of owner, group and queues. Linux
// tells these from 4.18 on; before, there is nothing to compare.
func CheckTap(l Link, t TapDevice) error {
	have := l.Tun
	if have == nil {
		return nil
	}
	differs := func(what string, want, have any) error {
		return fmt.Errorf("interface %s: expected %s %v, found %v", l.Name, what, want, have)
	}
	switch {
	case !have.Tap:
		return fmt.Errorf("interface %s: expected a tap device, found a tun device", l.Name)
	case t.MultiQueue && !have.MultiQueue:
		return fmt.Errorf("interface %s: expected several queues, found one", l.Name)
	case t.Owner != nil && (have.Owner == nil || *have.Owner != *t.Owner):
		return differs("owner", *t.Owner, id(have.Owner))
	case t.Group != nil && (have.Group == nil || *have.Group != *t.Group):
		return differs("group", *t.Group, id(have.Group))
	}
	return nil
}

func id(n *uint32) any {
	if n == nil {
		return "none"
	}
	return *n
}
