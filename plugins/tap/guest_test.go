package tap_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// openTap opens eth0 of a container like a virtual machine of that user, in the group of the same
// number. It opens the device file before it changes the user, because the user may lack the
// permission here.
func openTap(ns *plugintest.Namespace, user int, flags uint16) (fd int, err error) {
	err = ns.Run(func() error { // on a thread that ends afterwards
		fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		request, err := unix.NewIfreq("eth0")
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | flags)
		if user != 0 { // changes this thread only
			id := uintptr(user)
			_, _, groups := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)
			_, _, group := unix.RawSyscall(unix.SYS_SETRESGID, id, id, id)
			_, _, owner := unix.RawSyscall(unix.SYS_SETRESUID, id, id, id)
			if groups != 0 || group != 0 || owner != 0 {
				return errors.Join(groups, group, owner, unix.Close(fd))
			}
		}
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		return nil
	})
	return fd, err
}

// TestGuest: a virtual machine of the owner opens the device and exchanges packets with the
// container; one of another user cannot open it. The device remains for the next virtual machine.
func TestGuest(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"owner":107,"group":107`+ipam4)
	result := r.Add("c")
	if fd, err := openTap(r.Container("c"), 109, 0); !errors.Is(err, unix.EPERM) {
		unix.Close(fd)
		t.Errorf("user 109 opens the device of user 107: %v", err)
	}
	address := netip.MustParseAddr("10.99.0.200")
	for range 2 {
		fd, err := openTap(r.Container("c"), 107, 0)
		if err != nil {
			t.Fatal(err)
		}
		guest := os.NewFile(uintptr(fd), "tap")
		ended := make(chan error)
		go func() { ended <- answer(guest, [6]byte{2, 0, 0, 0, 0, 0xaa}, address.As4()) }()
		testnet.Reaches(t, r.Container("c"), address, true)
		r.Check("c") // while the virtual machine runs
		guest.Close()
		if err := <-ended; !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
		testnet.Reaches(t, r.Container("c"), result.IPs[0].Address.Addr(), false) // lo is down
		r.Check("c")
	}
}

// TestQueues: a second queue can be opened only with multiQueue.
func TestQueues(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, members string
		flags         uint16
		second        error
	}{
		{"one", "", 0, unix.EBUSY},
		{"several", `,"multiQueue":true`, unix.IFF_MULTI_QUEUE, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, row.members)
			r.Add("c")
			for _, want := range []error{nil, row.second} {
				fd, err := openTap(r.Container("c"), 0, row.flags)
				if !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
				if err == nil {
					defer unix.Close(fd)
				}
			}
		})
	}
}

// answer plays a host with one address: it answers ARP requests and ICMP echo requests until the
// device is closed.
func answer(tap *os.File, mac [6]byte, address [4]byte) error {
	frame := make([]byte, 2000)
	for {
		n, err := tap.Read(frame)
		if err != nil {
			return err
		}
		f := frame[:n]
		if n < 42 {
			continue
		}
		switch binary.BigEndian.Uint16(f[12:]) {
		case unix.ETH_P_ARP:
			if [4]byte(f[38:42]) != address {
				continue
			}
			f[21] = 2 // reply
			copy(f[32:42], f[22:32])
			copy(f[22:], mac[:])
			copy(f[28:], address[:])
		case unix.ETH_P_IP:
			if [4]byte(f[30:34]) != address || f[23] != unix.IPPROTO_ICMP || f[34] != 8 {
				continue
			}
			copy(f[30:34], f[26:30])
			copy(f[26:], address[:])
			f[34] = 0 // echo reply; the type decreases by 8, so the checksum increases by 8 << 8
			sum := uint32(binary.BigEndian.Uint16(f[36:])) + 8<<8
			binary.BigEndian.PutUint16(f[36:], uint16(sum+sum>>16))
		default:
			continue
		}
		copy(f, f[6:12])
		copy(f[6:], mac[:])
		if _, err := tap.Write(f); err != nil {
			return err
		}
	}
}

// code compares the code of an error.
func code(t *testing.T, err error, want cni.Code) {
	t.Helper()
	if got := cni.CodeOf(err); got != want {
		t.Errorf("code %d, want %d: %v", got, want, err)
	}
}
