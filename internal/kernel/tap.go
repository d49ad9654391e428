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
	// ErrNoTun reports that the kernel does not support tap devices, or that /dev/net/tun is
	// missing.
	ErrNoTun = netlink.ErrNoTun
	// ErrNoSELinux reports that the kernel was started without SELinux.
	ErrNoSELinux = netlink.ErrNoSELinux
	// ErrContext reports that SELinux does not know a context, or does not allow execution in it.
	ErrContext = netlink.ErrContext
)

// TapDevice contains the properties of a [Tap] that can be set only at creation.
type TapDevice = netlink.Tap

// MakeTap implements the program that [Tap.Program] starts: it creates the device described. The
// exit status is 0, or the error number with a message on stderr.
func MakeTap(description string, stderr io.Writer) (status int) {
	return netlink.MakeTap(description, stderr)
}

// Tap describes a new tap device.
type Tap struct {
	TapDevice
	MAC   net.HardwareAddr // nil lets the kernel choose
	MTU   int              // bytes; 0 is the kernel's default
	Alias string           // names the owner

	Context string   // the security context (SELinux) of the device; "" stands for this process's
	Program []string // the command line that creates a device in another context
}

// AddTap creates a tap device in this space, immediately under its name, and down. It exists until
// it is deleted, and has no carrier until a program opens it. If the name is in use, the error
// wraps [unix.EEXIST].
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

// create must run on a thread that ends afterwards.
func (t Tap) create() error {
	if t.Context != "" {
		return t.CreateLabelled(t.Context, t.Program)
	}
	return t.Create()
}

// deleteTap finds the device by name, because the ioctl that creates it does not return its index.
func (s *Space) deleteTap(name string) error {
	l, err := s.rt.Links.ByName(name)
	if err == nil {
		_, err = s.rt.Links.Delete(l)
	}
	return present(err)
}

// CheckTap verifies that a link is a tap device with the owner, group and queues of t. Linux
// reports these since 4.18; CheckTap succeeds on older kernels.
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
