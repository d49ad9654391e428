package daemon

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"testing"
)

var (
	nobody    = netip.MustParseAddrPort("0.0.0.0:68")
	everybody = netip.MustParseAddrPort("255.255.255.255:67")
)

// TestUDP compares a packet with one whose checksums were computed by hand from RFC 1071, and
// parses it.
func TestUDP(t *testing.T) {
	t.Parallel()
	got := udp(netip.MustParseAddrPort("192.0.2.1:67"), netip.MustParseAddrPort("192.0.2.2:68"),
		[]byte("abc"))
	want := []byte{
		0x45, 0, 0, 31, 0, 0, 0, 0, 64, 17, 0xf6, 0xca, 192, 0, 2, 1, 192, 0, 2, 2,
		0, 67, 0, 68, 0, 11, 0xb6, 0xea, 'a', 'b', 'c',
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got  % x\nwant % x", got, want)
	}
	for size := range 50 {
		payload := bytes.Repeat([]byte{0xfe}, size)
		padded := append(udp(nobody, everybody, payload), 0, 0, 0) // Ethernet pads short frames
		back, from, err := parseUDP(padded, serverPort, false)
		if err != nil || !bytes.Equal(back, payload) || from != nobody {
			t.Errorf("%d bytes: % x from %s, %v", size, back, from, err)
		}
	}
}

// TestParseRefuses checks that parseUDP refuses damaged packets and packets of other kinds.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	good := udp(everybody, nobody, []byte("payload"))
	damage := func(i int, b byte) []byte {
		c := bytes.Clone(good)
		c[i] ^= b
		return c
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "cut off": good[:30], "header of IP": damage(8, 1),
		"version": damage(0, 0x20), "payload": damage(30, 1),
		"length of UDP": damage(25, 0x40), "another port": udp(everybody, everybody, nil),
		"fragment": damage(6, 0x20),
	} {
		if payload, _, err := parseUDP(b, clientPort, false); !errors.Is(err, errOther) {
			t.Errorf("%s: %q, %v", name, payload, err)
		}
	}
	if _, _, err := parseUDP(damage(26, 0xff), clientPort, true); err != nil {
		t.Errorf("without the checksum of UDP: %v", err)
	}
}

// TestClaims checks that answers, announcements and probes claim an address.
func TestClaims(t *testing.T) {
	t.Parallel()
	own, other := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	address := netip.MustParseAddr("192.0.2.7")
	reply := arpProbe(other, netip.MustParseAddr("192.0.2.9"))
	reply[7] = 2
	copy(reply[14:], address.AsSlice())
	for name, row := range map[string]struct {
		b    []byte
		want net.HardwareAddr
	}{
		"reply":              {reply, other},
		"probe of another":   {arpProbe(other, address), other},
		"own probe":          {arpProbe(own, address), nil},
		"another address":    {arpProbe(other, address.Next()), nil},
		"cut off":            {reply[:27], nil},
		"not Ethernet, IPv4": {append([]byte{0, 6}, reply[2:]...), nil},
	} {
		if got := claims(row.b, own, address); got.String() != row.want.String() {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(udp(everybody, nobody, []byte("payload")))
	f.Add(arpProbe(net.HardwareAddr{2, 0, 0, 0, 0, 1}, netip.MustParseAddr("192.0.2.7")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if payload, from, err := parseUDP(b, clientPort, false); err == nil {
			again, who, err := parseUDP(udp(from, nobody, payload), clientPort, false)
			if err != nil || !bytes.Equal(again, payload) || who != from {
				t.Errorf("%x from %s: %x from %s, %v", payload, from, again, who, err)
			}
		}
		claims(b, net.HardwareAddr{2, 0, 0, 0, 0, 1}, netip.MustParseAddr("192.0.2.7"))
	})
}
