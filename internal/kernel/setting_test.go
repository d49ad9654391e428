package kernel_test

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel"
)

func TestSettingPath(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, key, want string }{
		{"slashes", "net/ipv4/ip_forward", "/proc/sys/net/ipv4/ip_forward"},
		{"leading slash", "/net/ipv4/ip_forward", "/proc/sys/net/ipv4/ip_forward"},
		{"dots", "net.ipv4.ip_forward", "/proc/sys/net/ipv4/ip_forward"},
		{"dots, interface with a dot", "net.ipv4.conf.eth0/100.arp_notify", "/proc/sys/net/ipv4/conf/eth0.100/arp_notify"},
		{"slashes, interface with a dot", "net/ipv4/conf/eth0.100/arp_notify", "/proc/sys/net/ipv4/conf/eth0.100/arp_notify"},
		{"interface with two dots", "net/ipv4/conf/a..b/arp_notify", "/proc/sys/net/ipv4/conf/a..b/arp_notify"},
		{"empty", "", ""},
		{"slash only", "/", ""},
		{"out of /proc/sys", "net/../../self/status", ""},
		{"out of /proc/sys, with dots", "net.//.//.self", ""},
		{"two leading slashes", "//etc/passwd", ""},
		{"trailing dot", "net.ipv4.", ""},
		{"NUL", "net/ipv4\x00", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := kernel.SettingPath(row.key)
			if got != row.want || (err == nil) != (row.want != "") || err != nil && !errors.Is(err, kernel.ErrSettingKey) {
				t.Errorf("path of %q: %q, %v; want %q", row.key, got, err, row.want)
			}
		})
	}
}

// FuzzSettingPath: the file of every key is below /proc/sys.
func FuzzSettingPath(f *testing.F) {
	for _, key := range []string{"net.ipv4.conf.eth0/100.arp_notify", "/net/ipv4/ip_forward", "a/../../b", "..//.", "net.//.x"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		p, err := kernel.SettingPath(key)
		if err == nil && (!strings.HasPrefix(p, "/proc/sys/") || path.Clean(p) != p) {
			t.Errorf("path of %q: %q", key, p)
		}
	})
}
