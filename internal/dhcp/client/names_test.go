package client_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/dhcp/client"
)

func TestNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\x3f"+strings.Repeat("a", 63), 4) + "\x00"
	for _, row := range []struct {
		name, in string
		want     []string
	}{
		{"none", "", nil},
		{"one", "\x03eng\x05apple\x03com\x00", []string{"eng.apple.com"}},
		{"the example of RFC 3397 section 2", "\x03eng\x05apple\x03com\x00\x09marketing\xc0\x04",
			[]string{"eng.apple.com", "marketing.apple.com"}},
		{"a pointer after a pointer", "\x01a\x00\x01b\xc0\x00\x01c\xc0\x03",
			[]string{"a", "b.a", "c.b.a"}},
		{"the root is left out", "\x00\x01a\x00", []string{"a"}},
		{"a pointer to itself", "\x01a\xc0\x00", nil},
		{"a pointer forwards", "\xc0\x02\x01a\x00", nil},
		{"half a pointer", "\x01a\x00\xc0", nil},
		{"a label is cut off", "\x05ab", nil},
		{"a name does not end", "\x01a", nil},
		{"a label of an unknown kind", "\x41a\x00", nil},
		{"a name that is too long", long, nil},
		{"a line break", "\x03a\nb\x00", nil},
		{"a dot in a label", "\x03a.b\x00", nil},
		{"one error invalidates the list", "\x01a\x00\x05b", nil},
		{"too many names", strings.Repeat("\x01a\x00", 33), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if got := client.Names([]byte(row.in)); !slices.Equal(got, row.want) {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

func FuzzNames(f *testing.F) {
	f.Add([]byte("\x03eng\x05apple\x03com\x00\x09marketing\xc0\x04"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, name := range client.Names(b) {
			if name == "" || len(name) > 253 || strings.ContainsAny(name, " \n\x00/") {
				t.Errorf("%q", name)
			}
		}
	})
}
