package ovs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/testnet"
)

const (
	experiment = 0x88b5 // EtherType for local experiments (IEEE 802)
	quiet      = 300 * time.Millisecond
)

// port is the interface of a namespace, seen by a packet socket.
type port struct {
	name string // of the namespace
	fd   int
	mac  net.HardwareAddr
}

// open opens the interface eth0 of a container.
func open(t testing.TB, c *testnet.Namespace) *port {
	t.Helper()
	p := &port{name: c.Name}
	err := c.Run(func() (err error) {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		p.mac = link.HardwareAddr
		p.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		return errors.Join(
			unix.SetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
			unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 10000}),
			unix.Bind(p.fd, &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL), Ifindex: link.Index}),
		)
	})
	t.Cleanup(func() { unix.Close(p.fd) })
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func bigEndian(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// send sends a broadcast with a text in a VLAN; 0 means without a tag.
func (p *port) send(t testing.TB, vlan uint16, text string) {
	t.Helper()
	frame := slices.Concat(net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, p.mac)
	if vlan != 0 {
		frame = binary.BigEndian.AppendUint16(frame, unix.ETH_P_8021Q)
		frame = binary.BigEndian.AppendUint16(frame, vlan)
	}
	frame = binary.BigEndian.AppendUint16(frame, experiment)
	frame = append(frame, fmt.Sprintf("%-60s", text)...)
	if _, err := unix.Write(p.fd, frame); err != nil {
		t.Fatal(err)
	}
}

// receive returns the text and the VLAN of the next broadcast of [port.send], such as "hello in 5",
// or "" if none comes for a while.
func (p *port) receive(t testing.TB) string {
	t.Helper()
	for {
		frame, control := make([]byte, 2048), make([]byte, 256)
		n, nc, _, from, err := unix.Recvmsg(p.fd, frame, control, 0)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR), errors.Is(err, unix.ENETDOWN):
			return ""
		case err != nil:
			t.Fatal(err)
		case from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING:
			continue
		}
		frame = frame[12:n]
		vlan := tagOf(t, control[:nc])
		if binary.BigEndian.Uint16(frame) == unix.ETH_P_8021Q {
			vlan, frame = binary.BigEndian.Uint16(frame[2:]), frame[4:]
		}
		if binary.BigEndian.Uint16(frame) != experiment {
			continue
		}
		text := strings.TrimSpace(string(frame[2:]))
		if vlan != 0 {
			text += fmt.Sprintf(" in %d", vlan)
		}
		return text
	}
}

// tagOf returns the VLAN that the kernel has removed from a frame, or 0.
func tagOf(t testing.TB, control []byte) uint16 {
	t.Helper()
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if m.Header.Type != unix.PACKET_AUXDATA {
			continue
		}
		aux := (*unix.TpacketAuxdata)(unsafe.Pointer(&m.Data[0]))
		if aux.Status&unix.TP_STATUS_VLAN_VALID != 0 {
			return aux.Vlan_tci & 0xfff
		}
	}
	return 0
}

// received lists what ports receive, one line per port and text with the number of copies, until
// the list equals want and nothing follows for a while.
func received(t testing.TB, ports []*port, want ...string) {
	t.Helper()
	copies := map[string]int{}
	list := func() (lines []string) {
		for key, n := range copies {
			lines = append(lines, fmt.Sprintf("%s x%d", key, n))
		}
		slices.Sort(lines)
		return lines
	}
	slices.Sort(want)
	end := time.Now().Add(testnet.Patience)
	for calm := time.Now().Add(quiet); time.Now().Before(end) && (time.Now().Before(calm) || !slices.Equal(list(), want)); {
		for _, p := range ports {
			if text := p.receive(t); text != "" {
				copies[p.name+": "+text]++
				calm = time.Now().Add(quiet)
			}
		}
		if len(copies) > len(want) {
			break
		}
	}
	if got := list(); !slices.Equal(got, want) {
		t.Errorf("received\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
