package v4_test

import (
	"bytes"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/tenon-cni/tenon/internal/dhcp/client"
	"github.com/tenon-cni/tenon/internal/dhcp/v4"
)

func TestEncode(t *testing.T) {
	t.Parallel()
	m := &v4.Message{XID: 0x01020304, Secs: 0x0506, Broadcast: true, MAC: mac,
		Client:  netip.MustParseAddr("10.0.0.7"),
		Options: dhcpv4.Options{53: {3}, 0: []byte("x"), 12: []byte("web"), 255: []byte("x")}}
	b := m.Encode()
	if len(b) != 300 {
		t.Errorf("%d bytes", len(b))
	}
	want := "\x01\x01\x06\x00\x01\x02\x03\x04\x05\x06\x80\x00\x0a\x00\x00\x07" +
		strings.Repeat("\x00", 12) + "\x02\x00\x00\x00\x00\x01" +
		strings.Repeat("\x00", 10+64+128) + "\x63\x82\x53\x63" + "\x0c\x03web" + "\x35\x01\x03" +
		"\xff" + strings.Repeat("\x00", 51)
	if string(b) != want {
		t.Errorf("got\n%x\nwant\n%x", b, want)
	}
}

// packet returns a message with options, and with the given file and server name fields.
func packet(options, file, sname string) []byte {
	b := (&v4.Message{Reply: true, MAC: mac}).Encode()[:240]
	copy(b[108:236], file)
	copy(b[44:108], sname)
	return append(b, options...)
}

func TestDecode(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 255)
	for _, row := range []struct {
		name string
		b    []byte
		want dhcpv4.Options // without the type; nil if malformed
	}{
		{"an option of several parts (RFC 3396)",
			packet("\x35\x01\x02\x0c\xff"+long+"\x06\x00\x0c\x02bc\xff", "", ""),
			dhcpv4.Options{12: []byte(long + "bc"), 6: nil}},
		{"no end, and pads", packet("\x00\x35\x01\x02\x00\x00\x0c\x01a\x00", "", ""),
			dhcpv4.Options{12: []byte("a")}},
		{"bytes after the end are ignored", packet("\x35\x01\x02\x0c\x01a\xff\x0c\x01b", "", ""),
			dhcpv4.Options{12: []byte("a")}},
		{"overload: the file, then the name", packet("\x35\x01\x02\x34\x01\x03\x0c\x01a\xff",
			"\x0c\x01b\xff", "\x0c\x01c\xff"), dhcpv4.Options{52: []byte{3}, 12: []byte("abc")}},
		{"overload: only the name", packet("\x35\x01\x02\x34\x01\x02\xff", "\x0c\x01b\xff",
			"\x0c\x01c\xff"), dhcpv4.Options{52: []byte{2}, 12: []byte("c")}},
		{"overload within an overloaded field", packet("\x35\x01\x02\x34\x01\x01\xff",
			"\x34\x01\x03\xff", "\x0c\x01c\xff"), dhcpv4.Options{52: []byte{1, 3}}},
		{"overload with an option that is cut off", packet("\x35\x01\x02\x34\x01\x02\xff", "",
			strings.Repeat("\x0c\x02ab", 15)+"\x0c\x09ab"), nil},
		{"an option is cut off", packet("\x35\x01\x02\x0c\x05abc", "", ""), nil},
		{"an option without a length", packet("\x35\x01\x02\x0c", "", ""), nil},
		{"no type", packet("\x0c\x01a\xff", "", ""), nil},
		{"two types", packet("\x35\x01\x02\x35\x01\x05\xff", "", ""), nil},
		{"no options", packet("", "", ""), nil},
		{"too short", packet("", "", "")[:239], nil},
		{"longer than the maximum",
			packet("\x35\x01\x02\xff"+strings.Repeat("\x00", 1472-243), "", ""), nil},
		{"another cookie", append(packet("", "", "")[:239], "\x62\x35\x01\x02\xff"...), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			m, err := v4.Decode(row.b)
			if row.want == nil {
				if !errors.Is(err, v4.ErrMalformed) {
					t.Errorf("got %+v, %v", m, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			kind := m.Type()
			delete(m.Options, v4.OptType)
			if kind != v4.Offer || !reflect.DeepEqual(m.Options, row.want) {
				t.Errorf("%v, got %q", kind, m.Options)
			}
		})
	}
	for name, change := range map[string]int{"another op": 0, "not Ethernet": 1,
		"another length of addresses": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := packet("\x35\x01\x02\xff", "", "")
			if _, err := v4.Decode(b); err != nil {
				t.Fatal(err)
			}
			b[change] = 9
			if _, err := v4.Decode(b); !errors.Is(err, v4.ErrMalformed) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A decoded message must not change when the buffer is used again.
func TestDecodeKeepsNothing(t *testing.T) {
	t.Parallel()
	b := packet("\x35\x01\x02\x0c\x01a\x0c\x01b\xff", "", "")
	m, err := v4.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	if m.MAC.String() != mac.String() || string(m.Get(12)) != "ab" {
		t.Errorf("got %v, %q", m.MAC, m.Get(12))
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	m := &v4.Message{}
	m.Set(1, []byte{0xff, 0xff, 0xff, 0xff})
	m.Set(2, []byte{1, 2, 3})
	if d, ok := m.Duration(1); d != client.Infinite || !ok {
		t.Errorf("got %v", d)
	}
	if _, ok := m.Duration(2); ok {
		t.Error("a time of three bytes")
	}
	if _, ok := m.Addr(2); ok {
		t.Error("an address of three bytes")
	}
	m.Set(1, []byte{0, 0, 0, 9})
	if d, ok := m.Duration(1); d != 9*time.Second || !ok || len(m.Options) != 2 {
		t.Errorf("got %v, %d options", d, len(m.Options))
	}
	if got := v4.ACK.String() + " " + v4.Type(0).String() + " " +
		v4.Type(9).String(); got != "DHCPACK type 0 type 9" {
		t.Errorf("got %s", got)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(packet("\x35\x01\x02\x34\x01\x03\x0c\x01a\xff", "\x0c\x01b\xff", "\x0c\x01c\xff"))
	f.Add(packet("\x35\x01\x05\x36\x04\x0a\x00\x00\x01\x33\x04\x00\x00\x0e\x10\x01\x04\xff\xff\xff\x00\xff", "", ""))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := v4.Decode(b)
		if err != nil {
			if !errors.Is(err, v4.ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		once := m.Encode()
		again, err := v4.Decode(once)
		if err != nil {
			// Options that repeat in overloaded fields take more space in one field.
			if len(once) > 1472 {
				return
			}
			t.Fatal(err)
		}
		if !bytes.Equal(once, again.Encode()) {
			t.Errorf("got\n%x\nwant\n%x", again.Encode(), once)
		}
	})
}
