package cli

import (
	"net/netip"
	"testing"

	"github.com/tenon-cni/tenon/cni"
)

func TestParsePublished(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]cni.PortMapping{
		"8080:80":         {HostPort: 8080, ContainerPort: 80},
		"1-65535:1-65535": {HostPort: 1, ContainerPort: 1, Range: 65535},
		"53:53/udp":       {HostPort: 53, ContainerPort: 53, Protocol: cni.UDP},
		"8000-8000:90":    {HostPort: 8000, ContainerPort: 90},
		"0.0.0.0:8080:80": {HostPort: 8080, ContainerPort: 80, HostIP: netip.IPv4Unspecified()},
		"[fd00::1]:8-9:1-2/tcp": {HostPort: 8, ContainerPort: 1, Range: 2, Protocol: cni.TCP,
			HostIP: netip.MustParseAddr("fd00::1")},
	} {
		got, err := parsePublished(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", ":", "80", "8080:", ":80", "8080:80/", "0:80", "8080:0", "65536:80", "-1:80", "9-8:9-8",
		"8000-8009:80", "8080:80:90", "::1:8080:80", "[127.0.0.1]:8080:80", "[::1:8080:80",
		"::1]:8080:80", ":8080:80", "host:8080:80", "8080: 80", "+8080:80", "8-:8-",
	} {
		if m, err := parsePublished(text); err == nil {
			t.Errorf("%q is accepted as %+v", text, m)
		}
	}
}
