package netconf_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/lint"
	"github.com/tenon-cni/tenon/internal/ops/netconf"
)

func prefixes(list ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// The configuration of a plugin follows from the choices; the rest of the list is always the same.
func TestList(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		network netconf.Draft
		plugin  string
	}{
		{"layer 2", netconf.Draft{Type: "bridge"}, `{"type": "bridge", "bridge": "cni-red"}`},
		{
			"bridge, IPv6 alone", netconf.Draft{Type: "bridge", Subnets: prefixes("fd00::/64")},
			`{"type": "bridge", "bridge": "cni-red", "isDefaultGateway": true, "ipMasq": true,
				"ipam": {"type": "host-local", "ranges": [[{"subnet": "fd00::/64"}]]}}`,
		},
		{
			"addresses from a server", netconf.Draft{Type: "bridge", DHCP: true},
			`{"type": "bridge", "bridge": "cni-red", "ipam": {"type": "dhcp"}}`,
		},
		{
			"ptp, IPv6 alone", netconf.Draft{Type: "ptp", Subnets: prefixes("fd00::/64")},
			`{"type": "ptp", "ipMasq": true,
				"ipam": {"type": "host-local", "ranges": [[{"subnet": "fd00::/64"}]], "routes": [{"dst": "::/0"}]}}`,
		},
		{
			"dual stack: a set for each family; a gateway for its subnet",
			netconf.Draft{Type: "ptp", Subnets: prefixes("fd00::/64", "10.1.0.0/24"), Gateways: []netip.Addr{netip.MustParseAddr("10.1.0.9")}},
			`{"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local",
				"ranges": [[{"subnet": "fd00::/64"}], [{"subnet": "10.1.0.0/24", "gateway": "10.1.0.9"}]],
				"routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}}`,
		},
		{
			"chained plugins", netconf.Draft{Type: "bridge", Chained: []netconf.Chained{{Type: "portmap", Capabilities: []string{"portMappings"}}, {Type: "odd"}}},
			`{"type": "bridge", "bridge": "cni-red"}, {"type": "portmap", "capabilities": {"portMappings": true}}, {"type": "odd"}`,
		},
		{"an unknown type", netconf.Draft{Type: "odd", Master: "eth0"}, `{"type": "odd", "master": "eth0"}`},
	} {
		tt.network.Name = "red"
		b, err := tt.network.List()
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var got, want any
		list := `{"cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"], "name": "red", "plugins": [` + tt.plugin + `]}`
		if err := errors.Join(json.Unmarshal(b, &got), json.Unmarshal([]byte(list), &want)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tt.name, diff)
		}
	}
}

func TestListRefuses(t *testing.T) {
	t.Parallel()
	gateways := func(list ...string) []netip.Addr {
		var all []netip.Addr
		for _, s := range list {
			all = append(all, netip.MustParseAddr(s))
		}
		return all
	}
	for name, n := range map[string]netconf.Draft{
		"no name":                       {Type: "bridge"},
		"a name that is a path":         {Name: "../red", Type: "bridge"},
		"a type that is a path":         {Name: "red", Type: "../bridge"},
		"a subnet without room":         {Name: "red", Type: "bridge", Subnets: prefixes("10.1.0.0/31")},
		"host bits":                     {Name: "red", Type: "bridge", Subnets: prefixes("10.1.0.1/24")},
		"subnets that overlap":          {Name: "red", Type: "bridge", Subnets: prefixes("10.1.0.0/16", "10.1.2.0/24")},
		"a gateway outside":             {Name: "red", Type: "bridge", Subnets: prefixes("10.1.0.0/24"), Gateways: gateways("10.2.0.1")},
		"two gateways of a subnet":      {Name: "red", Type: "bridge", Subnets: prefixes("10.1.0.0/24"), Gateways: gateways("10.1.0.1", "10.1.0.2")},
		"a gateway of the other family": {Name: "red", Type: "bridge", Subnets: prefixes("10.1.0.0/24"), Gateways: gateways("fd00::1")},
		"a subnet and DHCP":             {Name: "red", Type: "bridge", Subnets: prefixes("10.1.0.0/24"), DHCP: true},
		"a gateway without a subnet":    {Name: "red", Type: "bridge", Gateways: gateways("10.1.0.1")},
	} {
		if b, err := n.List(); cni.CodeOf(err) != cni.CodeInvalidConfig {
			t.Errorf("%s: %s, %v", name, b, err)
		}
	}
}

// Bridges of different networks have different names, which are valid interface names.
func TestBridgeNames(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, name := range []string{"r", "elevenchars", "twelve-chars", "twelve-charS", strings.Repeat("x", 250), strings.Repeat("x", 251)} {
		b, err := netconf.Draft{Name: name, Type: "bridge"}.List()
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Plugins []struct{ Bridge string } }
		if err := json.Unmarshal(b, &list); err != nil {
			t.Fatal(err)
		}
		bridge := list.Plugins[0].Bridge
		if err := cni.ValidateIfName(bridge); err != nil || seen[bridge] != "" {
			t.Errorf("%.20s: %s, as %s: %v", name, bridge, seen[bridge], err)
		}
		seen[bridge] = name
	}
}

// Lint finds nothing in a new configuration.
func TestListPassesLint(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"bridge", "ptp"} {
		for _, subnets := range [][]netip.Prefix{prefixes("10.1.0.0/24"), prefixes("fd00::/64"), prefixes("10.1.0.0/24", "fd00::/64")} {
			dir := t.TempDir()
			b, err := netconf.Draft{Name: "red", Type: typ, Subnets: subnets}.List()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := netconf.Write(dir, "red.conflist", "red", b); err != nil {
				t.Fatal(err)
			}
			c, err := lint.Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			if found := lint.Check(c, nil); found != nil {
				t.Errorf("%s %v: %v", typ, subnets, found)
			}
		}
	}
}

// Write creates the directory and a file that everyone may read, and leaves no other file.
func TestWrite(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cni", "net.d")
	path, err := netconf.Write(dir, "10-red.conflist", "red", []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "content" ||
		path != filepath.Join(dir, "10-red.conflist") ||
		info.Mode() != 0o644 {
		t.Errorf("%s %v: %q %v", path, info.Mode(), b, err)
	}
	wantFiles(t, dir, "10-red.conflist")
}

// Write refuses the name of an existing file or network, even of a broken one, and leaves no other
// file.
func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	for name, there := range map[string]struct{ file, content string }{
		"same file name":    {"10-red.conflist", "anything"},
		"same network name": {"99-x.conflist", `{"name": "red", "plugins": [{"type": "x"}]}`},
		"broken network":    {"99-x.conflist", `{"name": "red", `},
		"single plugin":     {"99-x.conf", `{"name": "red", "type": "x"}`},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, there.file), []byte(there.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := netconf.Write(dir, "10-red.conflist", "red", []byte("new")); !errors.Is(
			err,
			fs.ErrExist,
		) {
			t.Errorf("%s: %v", name, err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, there.file)); err != nil ||
			string(b) != there.content {
			t.Errorf("%s: %q %v", name, b, err)
		}
		wantFiles(t, dir, there.file)
	}
}

// If several processes write a file at once, one of them succeeds, and no reader sees an incomplete
// file.
func TestWriteAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "red.conflist")
	var written atomic.Int32
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	readers.Go(func() {
		for {
			if b, err := os.ReadFile(path); err == nil && len(b) != 1<<20 {
				t.Errorf("read %d bytes", len(b))
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for i := range 8 {
		writers.Go(func() {
			content := []byte(strings.Repeat(string(rune('a'+i)), 1<<20))
			_, err := netconf.Write(dir, "red.conflist", "red", content)
			switch {
			case err == nil:
				written.Add(1)
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	b, err := os.ReadFile(path)
	if err != nil || written.Load() != 1 || strings.Trim(string(b), string(b[:1])) != "" {
		t.Errorf("%d have written, %d bytes, %v", written.Load(), len(b), err)
	}
	wantFiles(t, dir, "red.conflist")
}

// Write returns an error if it cannot create the directory.
func TestWriteWithoutDirectory(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := netconf.Write(filepath.Join(file, "net.d"), "x.conflist", "red", nil); err == nil ||
		errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v", err)
	}
}

func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
}
