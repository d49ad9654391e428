package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/plugin"
)

// TestCollect writes an archive and reads it again. A source that fails, crashes or is cut is in the
// log, and does not stop the others.
func TestCollect(t *testing.T) {
	t.Parallel()
	content := func(text string, masked int, err error) func(context.Context) ([]byte, int, error) {
		return func(context.Context) ([]byte, int, error) { return []byte(text), masked, err }
	}
	now := time.Date(2026, 11, 22, 3, 4, 5, 0, time.FixedZone("", 3600))
	var done []string
	b := Collect(t.Context(), "node/7", now, []Source{
		{"doctor.json", "what doctor finds", content("{}", 0, nil)},
		{"net.d/10-pods.conflist", "configurations", content("{x}", 2, nil)},
		{"half", "the first half", content("half", 0, errors.New("disk error"))},
		{"none", "nothing", content("", 0, errors.New("no permission"))},
		{"crash", "a crash", func(context.Context) ([]byte, int, error) { panic("index") }},
	}, func(name string) { done = append(done, name) })
	if len(done) != 5 || b.Masked() != 2 || b.Name != "tenon-node-7-20261122-020405" {
		t.Errorf("%v done, %d masked, name %s", done, b.Masked(), b.Name)
	}
	var archive bytes.Buffer
	if err := b.Write(&archive); err != nil {
		t.Fatal(err)
	}
	files := untar(t, archive.Bytes())
	want := `collected at 2026-11-22T02:04:05Z
doctor.json: 2 bytes, 0 values masked
net.d/10-pods.conflist: 3 bytes, 2 values masked
half: 4 bytes, 0 values masked
half: FAILED: disk error
none: FAILED: no permission
crash: FAILED: crashed: index
`
	if diff := cmp.Diff(want, files["collector.log"]); diff != "" {
		t.Errorf("log (-want +got)\n%s", diff)
	}
	if !strings.Contains(files["README.txt"], "doctor.json                  what doctor finds\n") {
		t.Errorf("README:\n%s", files["README.txt"])
	}
	got, err := Open(bytes.NewReader(archive.Bytes()), "net.d/10-pods.conflist")
	if err != nil || string(got) != "{x}" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := Open(bytes.NewReader(archive.Bytes()), "absent"); !errors.Is(err, ErrNotInBundle) {
		t.Errorf("absent: %v", err)
	}
	if _, err := Open(strings.NewReader("no archive"), "absent"); err == nil {
		t.Error("text is an archive")
	}
}

// untar returns the files of an archive without their directory.
func untar(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		b, readErr := io.ReadAll(r)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		if files[name] = string(b); h.Mode != 0o600 {
			t.Errorf("%s: mode %o", h.Name, h.Mode)
		}
	}
}

// TestConfig masks what no schema knows, at any depth, and what only runtimes set.
func TestConfig(t *testing.T) {
	t.Parallel()
	bridge := &plugin.Schema{Type: "object", Properties: map[string]*plugin.Schema{
		"bridge": {Type: "string"}, "mtu": {Type: "integer"}, "isGateway": {Type: "boolean"},
		"ipam": {Type: "object", Properties: map[string]*plugin.Schema{
			"type": {Type: "string"},
			"routes": {Type: "array", Items: &plugin.Schema{Type: "object",
				Properties: map[string]*plugin.Schema{"dst": {Type: "string"}}}},
		}},
		"sysctl": {Type: "object", Additional: &plugin.Schema{Type: "string"}},
		"args":   {},
	}}
	find := func(typ, ipam string) *plugin.Schema {
		if typ == "bridge" && ipam == "host-local" {
			return bridge
		}
		return nil
	}
	for _, row := range []struct {
		name, conf, want string
		masked           int
	}{
		{"known keys stay", `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge",` +
			`"bridge":"cni0","mtu":1500,"isGateway":true,"ipam":{"type":"host-local",` +
			`"routes":[{"dst":"0.0.0.0/0"}]},"sysctl":{"net.x":"1"},"capabilities":{"ips":true}}]}`,
			`{"cniVersion":"1.0.0","name":"pods","plugins":[{"bridge":"cni0","capabilities":{"ips":true},` +
				`"ipam":{"routes":[{"dst":"0.0.0.0/0"}],"type":"host-local"},"isGateway":true,"mtu":1500,` +
				`"sysctl":{"net.x":"1"},"type":"bridge"}]}`, 0},
		{"keys in other letters are known", `{"type":"bridge","Bridge":"cni0","ipam":{"type":"host-local"}}`,
			`{"Bridge":"cni0","ipam":{"type":"host-local"},"type":"bridge"}`, 0},
		{"unknown keys, deep ones too", `{"type":"bridge","token":"S3CRET","ipam":{"type":"host-local",` +
			`"password":"S3CRET","routes":[{"dst":"::/0","key":["S3CRET"]}]}}`,
			`{"ipam":{"password":"(masked)","routes":[{"dst":"::/0","key":"(masked)"}],"type":"host-local"},` +
				`"token":"(masked)","type":"bridge"}`, 3},
		{"a known key of another type", `{"type":"bridge","bridge":{"x":"S3CRET"},"mtu":"S3CRET",` +
			`"ipam":{"type":"host-local","routes":"S3CRET"}}`,
			`{"bridge":"(masked)","ipam":{"routes":"(masked)","type":"host-local"},"mtu":"(masked)",` +
				`"type":"bridge"}`, 3},
		{"the runtime's keys", `{"type":"bridge","ipam":{"type":"host-local"},"args":{"cni":"S3CRET"},` +
			`"runtimeConfig":{"x":"S3CRET"}}`,
			`{"args":"(masked)","ipam":{"type":"host-local"},"runtimeConfig":"(masked)","type":"bridge"}`, 2},
		{"a plugin of another project", `{"type":"calico","etcd":"S3CRET","ipam":{"type":"x","y":"S3CRET"}}`,
			`{"etcd":"(masked)","ipam":"(masked)","type":"calico"}`, 2},
		{"a list with keys of its own", `{"name":"x","token":"S3CRET","plugins":["S3CRET"]}`,
			`{"name":"x","plugins":["(masked)"],"token":"(masked)"}`, 2},
		{"no object", `["S3CRET"]`, "", 1},
		{"half an object", `{"type":"bridge","token":"S3CR`, "", 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, masked := Config([]byte(row.conf), find)
			flat := strings.Join(strings.Fields(string(got)), "")
			if row.want != "" {
				if diff := cmp.Diff(strings.ReplaceAll(row.want, " ", ""), flat); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			}
			if masked != row.masked || strings.Contains(flat, "S3CR") {
				t.Errorf("%d masked, want %d: %s", masked, row.masked, flat)
			}
		})
	}
}

func TestArgs(t *testing.T) {
	t.Parallel()
	got, masked := Args("IgnoreUnknown=1;K8S_POD_NAME=web;TOKEN=S3CRET;EMPTY=;odd")
	if want := "IgnoreUnknown=1;K8S_POD_NAME=web;TOKEN=(masked);EMPTY=;odd"; got != want || masked != 1 {
		t.Errorf("%s, %d masked", got, masked)
	}
}

// FuzzConfig: no value of an unknown key survives, whatever it is.
func FuzzConfig(f *testing.F) {
	f.Add(`"a"`)
	f.Add(`{"type":"x","plugins":[{"type":"y"}]}`)
	f.Add(`[1,{"a":null}],"plugins":[]`)
	f.Fuzz(func(t *testing.T, value string) {
		if !json.Valid([]byte(value)) {
			return
		}
		got, masked := Config([]byte(`{"key":`+value+`}`), func(string, string) *plugin.Schema { return nil })
		var conf map[string]any
		if err := json.Unmarshal(got, &conf); err != nil || conf["key"] != Mask || masked != 1 {
			t.Errorf("%s, %d masked, %v", got, masked, err)
		}
	})
}

// TestHasher: common prefixes stay common, different addresses stay different, and other words stay
// as they are.
func TestHasher(t *testing.T) {
	t.Parallel()
	h, err := NewHasher()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ a, b string }{
		{"10.77.0.2", "10.77.0.3"}, {"10.77.0.2", "10.78.0.2"}, {"10.77.0.2", "192.0.2.1"},
		{"fd77::2", "fd77::3"}, {"fd77::2", "2001:db8::2"}, {"10.77.0.2", "10.77.0.2"},
	} {
		a, b := netip.MustParseAddr(row.a), netip.MustParseAddr(row.b)
		if before, after := common(a, b), common(h.Addr(a), h.Addr(b)); before != after {
			t.Errorf("%s and %s share %d bits, hashed %d", row.a, row.b, before, after)
		}
		if h.Addr(a) == a {
			t.Errorf("%s stays", a)
		}
	}
	text := "10.77.0.2/24 via 10.77.0.1: [fd77::2]:80, 10.77.0.2:8080. 127.0.0.1 fe80::1 02:42:ac:11:00:02 " +
		"12:30:45 6.1.0 v1.9.1 224.0.0.1 10.77.0.2 10.77.0.5/9999"
	got := string(h.Text([]byte(text)))
	for _, gone := range []string{"10.77.", "fd77::"} {
		if strings.Contains(got, gone) {
			t.Errorf("%s is in %s", gone, got)
		}
	}
	subnet := netip.MustParsePrefix("10.77.0.0/24")
	if p, err := netip.ParsePrefix(string(h.Text([]byte(subnet.String())))); err != nil ||
		p.Masked() != p || !p.Contains(h.Addr(netip.MustParseAddr("10.77.0.2"))) {
		t.Errorf("%s becomes %s, %v", subnet, p, err)
	}
	for _, kept := range []string{"/24 via ", ":8080. 127.0.0.1 fe80::1 02:42:ac:11:00:02 12:30:45 6.1.0 " +
		"v1.9.1 224.0.0.1 ", "]:80, "} {
		if !strings.Contains(got, kept) {
			t.Errorf("%s is not in %s", kept, got)
		}
	}
}

// common returns the number of leading bits that two addresses share.
func common(a, b netip.Addr) int {
	bits := 0
	for bits < a.BitLen() {
		p, err := a.Prefix(bits + 1)
		if err != nil || !p.Contains(b) {
			break
		}
		bits++
	}
	return bits
}

func TestKernelLine(t *testing.T) {
	t.Parallel()
	for record, want := range map[string]string{
		"6,1,1500000,-;cni0: port 1(veth0) entered forwarding state\n SUBSYSTEM=net\n": "[    1.500000] cni0: port 1(veth0) entered forwarding state\n",
		"4,2,2000000,-;nf_conntrack: nf_conntrack: table full, dropping packet":        "[    2.000000] nf_conntrack: nf_conntrack: table full, dropping packet\n",
		"4,3,3000000,-;neighbour: arp_cache: neighbor table overflow!":                 "[    3.000000] neighbour: arp_cache: neighbor table overflow!\n",
		"6,4,4000000,-;IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready":        "[    4.000000] IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready\n",
		"12,5,5000000,-;myapp[1]: password=S3CRET":                                     "",
		"12,5,5000000,-;bridge: password=S3CRET":                                       "", // of a program
		"4,6,6000000,-;EXT4-fs (vda): mounted filesystem":                              "",
		"no record":            "",
		"6,x,y,-;bridge: x":    "",
		"6,1,;bridge: no time": "",
	} {
		if got := kernelLine(record); got != want {
			t.Errorf("%q: got %q, want %q", record, got, want)
		}
	}
}
