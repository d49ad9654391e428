package tuning_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/tuning"
)

// TestSysctlOnly: the previous result passes unchanged, and no file in upstream's format exists.
// DEL restores the values.
func TestSysctlOnly(t *testing.T) {
	t.Parallel()
	r := runtime(t,
		`,"sysctl":{"net.ipv4.ip_local_port_range":"20000 30000","net.core.somaxconn":"77","net/ipv4/ip_local_reserved_ports":"25000"}`)
	q := r.Request(cni.Add, "c")
	before := r.State()
	if diff := cmp.Diff(compact(t, q.Conf["prevResult"].(json.RawMessage)),
		compact(t, r.Must(q))); diff != "" {
		t.Error(diff)
	}
	if got := value(r, "c", "net.ipv4.ip_local_port_range"); got != "20000\t30000" {
		t.Errorf("range %q", got)
	}
	r.Check("c") // the kernel prints a tab as separator
	if got := remembered(t, r, "c"); got != "" {
		t.Errorf("file %s", got)
	}
	r.Del("c")
	removeDirs(t, r)
	r.Unchanged(before)
}

func compact(t *testing.T, b []byte) string {
	t.Helper()
	r, err := cni.DecodeResultStrict(b, 0)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// removeDirs removes the directories that ADD has created, which must be empty.
func removeDirs(t *testing.T, r *plugintest.Runtime) {
	t.Helper()
	for _, dir := range []string{"a/tuning/.tenon", "a/tuning", "a"} {
		if err := os.Remove(filepath.Join(r.Dir, dir)); err != nil {
			t.Error(err)
		}
	}
}

// TestOrder: settings are written in their order and restored in reverse order, so a setting that
// changes others does not override the settings after it.
func TestOrder(t *testing.T) {
	t.Parallel()
	for range 5 { // a map would eventually have another order
		r := runtime(t, "")
		q := r.Request(cni.Add, "c")
		before := r.State()
		q.Stdin = withSysctl(t, q,
			`{"net.ipv4.conf.all.forwarding":"1","net.ipv4.conf.IFNAME.forwarding":"0","net.ipv4.conf.lo.forwarding":"0"}`)
		r.Must(q)
		for key, want := range map[string]string{
			"all": "1", "eth0": "0", "lo": "0", "default": "1",
		} {
			if got := value(r, "c", "net.ipv4.conf."+key+".forwarding"); got != want {
				t.Errorf("%s: %s, want %s", key, got, want)
			}
		}
		q.Command = cni.Del
		r.Must(q)
		removeDirs(t, r)
		r.Unchanged(before)
	}
}

// withSysctl is a request with a member sysctl in exactly this text.
func withSysctl(t *testing.T, q plugintest.Request, sysctl string) []byte {
	t.Helper()
	b, err := json.Marshal(q.Conf)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(strings.TrimSuffix(string(b), "}") + `,"sysctl":` + sysctl + `}`)
}

// TestDuplicates: duplicate keys are refused, in arguments too, and so are two keys of one setting
//
func TestDuplicates(t *testing.T) {
	t.Parallel()
	for _, object := range []string{
		`{"net.ipv4.ip_forward":"1","net.ipv4.ip_forward":"1"}`,
		`{"net.ipv4.ip_forward":"1","net.core.somaxconn":"5","net.ipv4.ip_forward":"0"}`,
		`{"net.ipv4.ip_forward":"1","net.ipv4.ip\u005fforward":"0"}`,
		`{"net.ipv4.ip_forward":"1","net/ipv4/ip_forward":"0"}`,
		`{"net.ipv4.conf.IFNAME.arp_notify":"1","net.ipv4.conf.eth0.arp_notify":"0"}`,
		`{"net.ipv4.ip_forward":"1"},"sysctl":{"net.ipv4.ip_forward":"0"}`,
		`{},"args":{"cni":{"sysctl":{"net.ipv4.ip_forward":"1","net.ipv4.ip_forward":"0"}}}`,
	} {
		r := runtime(t, "")
		r.Container("c")
		before := r.State()
		for _, verb := range []cni.Command{cni.Add, cni.Check} {
			q := r.Request(verb, "c")
			q.Stdin = withSysctl(t, q, object)
			if err := r.Refused(q, cni.CodeInvalidConfig); err != nil &&
				!strings.Contains(err.Error(), "duplicated sysctl keys are not allowed") {
				t.Errorf("%s: %v", object, err)
			}
		}
		q := r.Request(cni.Del, "c")
		q.Stdin = withSysctl(t, q, object)
		r.Must(q)
		r.Unchanged(before)
	}
}

// TestArgs: args.cni.sysctl is merged key by key over the configuration's sysctl, which can be
// absent; upstream crashes without it.
func TestArgs(t *testing.T) {
	t.Parallel()
	for sysctl, wantBacklog := range map[string]string{
		"": "",
		`,"sysctl":{"net.ipv4.tcp_max_syn_backlog":"33","net.core.somaxconn":"5"}`:              "33",
		`,"sysctl":{"net/core/somaxconn":"5"}`:                                                  "",
		`,"sysctl":{"net.ipv4.tcp_max_syn_backlog":"33","net.ipv4.conf.IFNAME.forwarding":"1"}`: "33",
	} {
		r := runtime(t, sysctl+`,"args":{"cni":{"sysctl":{"net.core.somaxconn":"66"}}}`)
		if was := value(r, "c", "net.ipv4.tcp_max_syn_backlog"); wantBacklog == "" {
			wantBacklog = was
		}
		before := r.State()
		r.Add("c")
		if got := value(r, "c", "net.core.somaxconn"); got != "66" {
			t.Errorf("%s: somaxconn %s", sysctl, got)
		}
		if got := value(r, "c", "net.ipv4.tcp_max_syn_backlog"); got != wantBacklog {
			t.Errorf("%s: backlog %s", sysctl, got)
		}
		r.Check("c")
		r.Del("c")
		removeDirs(t, r)
		r.Unchanged(before)
	}
}

// TestKeys: valid keys lead only to settings below net of the container's namespace
// (CVE-2022-0811). The host's settings do not change.
func TestKeys(t *testing.T) {
	t.Parallel()
	const number = "1"
	for key, file := range map[string]string{
		"net.ipv4.conf.IFNAME.arp_notify":    "ipv4/conf/eth0.5/arp_notify",
		"net/ipv4/conf/IFNAME/arp_notify":    "ipv4/conf/eth0.5/arp_notify",
		"/net/ipv4/conf/IFNAME/arp_notify":   "ipv4/conf/eth0.5/arp_notify",
		"net.ipv4/conf.IFNAME/arp_notify":    "ipv4/conf/eth0.5/arp_notify",
		"net.ipv4.conf.lo.arp_notify":        "ipv4/conf/lo/arp_notify",
		"net.ipv6.conf.all.forwarding":       "ipv6/conf/all/forwarding",
		"net/ipv4/conf/eth0.5/arp_notify":    "", // each dot is a separator
		"net.ipv4.conf.eth9.arp_notify":      "",
		"":                                   "",
		"net":                                "",
		"net.":                               "",
		"net.ipv4":                           "",
		"IFNAME":                             "",
		"kernel.core_pattern":                "",
		"kernel/core_pattern":                "",
		"kernel.shm_rmid_forced":             "",
		"vm.overcommit_memory":               "",
		"netx.ipv4.ip_forward":               "",
		"net/../kernel/core_pattern":         "",
		"../proc/sys/net/ipv4/ip_forward":    "",
		"net.ipv4....kernel.core_pattern":    "",
		"net/ipv4//ip_forward":               "",
		"net/ipv4/./ip_forward":              "",
		"net/ipv4/ip_forward/":               "",
		"//net/ipv4/ip_forward":              "",
		"/proc/sys/net/ipv4/ip_forward":      "",
		"net.ipv4.ip_forward\x00":            "",
		"net.ipv4.ip_forward\n":              "",
		"net.ipv4.ip_forward=1":              "",
		"net.core.bpf_jit_enable":            "", // of the host
		"net.core.netdev_max_backlog":        "",
		"net.nf_conntrack_max":               "",
		"net.netfilter.nf_conntrack_max":     "",
		"net/netfilter/nf_hooks_lwtunnel":    "",
		"net.netfilter.nf_hooks_lwtunnel":    "",
		"net.netfilter.nf_conntrack_buckets": "",
	} {
		t.Run("key "+key, func(t *testing.T) {
			t.Parallel()
			r := runtime(t, "")
			q := r.Request(cni.Add, "c")
			r.Container("c").Command("ip", "link", "add", "eth0.5", "type", "bridge")
			q.IfName = "eth0.5"
			q.Conf["sysctl"] = map[string]string{key: number}
			before := testnet.Snapshot(t, r.Spaces())
			if file == "" {
				r.Refused(q, cni.CodeInvalidConfig)
				if diff := testnet.Diff(before, testnet.Snapshot(t, r.Spaces())); diff != "" {
					t.Error(diff)
				}
				return
			}
			r.Must(q)
			diff := testnet.Diff(before, testnet.Snapshot(t, r.Spaces()))
			if !strings.Contains(diff, "+ c sysctl "+file+" = 1\n") ||
				strings.Contains(diff, " host ") {
				t.Error(diff)
			}
			q.Command = cni.Del
			r.Must(q)
		})
	}
}

// TestValues: no character of a value separates it from another setting, in any tool
// (CVE-2022-0811).
func TestValues(t *testing.T) {
	t.Parallel()
	r := runtime(t, "")
	r.Container("c")
	before := r.State()
	for value, ok := range map[string]bool{
		"1+kernel.core_pattern=|/tmp/x": false, "1=2": false, "1\n2": false, "1\n": false, "1\r2": false, "1\x002": false, "1;2": false,
		"1&2": false, "1|2": false, "$(x)": false, "`x`": false, "'1'": false, `"1"`: false, `1\2`: false, "1/2": false, "1\v2": false,
		"1\u00a02": false, "１": false, "1\xff": false, strings.Repeat("1", 4096): false,
		"1024 2048": true, "1024\t2048": true, " 1024 2048 ": true,
	} {
		q := r.Request(cni.Add, "c")
		q.Conf["sysctl"] = map[string]string{"net.ipv4.ip_local_port_range": value}
		if !ok {
			r.Refused(q, cni.CodeInvalidConfig)
			continue
		}
		r.Must(q)
		q.Command = cni.Check
		r.Must(q)
		q.Command = cni.Del
		r.Must(q)
		removeDirs(t, r)
	}
	r.Unchanged(before)
}

// TestEmptyValue: an empty value is written, unlike with upstream.
func TestEmptyValue(t *testing.T) {
	t.Parallel()
	const key = "net.ipv4.ip_local_reserved_ports"
	r := runtime(t, `,"sysctl":{"`+key+`":""}`)
	r.Container("c").Command("sysctl", "-qw", key+"=4000")
	r.Add("c")
	if got := value(r, "c", key); got != "" {
		t.Errorf("after ADD: %q", got)
	}
	r.Check("c")
	r.Del("c")
	if got := value(r, "c", key); got != "4000" {
		t.Errorf("after DEL: %q", got)
	}
}

// TestWriteOnly: a write-only setting has no value to check or to restore.
func TestWriteOnly(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"sysctl":{"net.ipv4.route.flush":"1"}`)
	r.Add("c")
	r.Check("c")
	r.Del("c")
}

// TestAllowList: with a list, each key must match a line of it, as written and from every source.
// Without sysctls the list is not read.
func TestAllowList(t *testing.T) {
	t.Parallel()
	const list = "\n  ^net\\.ipv4\\.conf\\.IFNAME\\.[a-z_]*$  \n\nsomax\n"
	for _, row := range []struct {
		name, list, sysctl, args string
		code                     cni.Code // 0: allowed
	}{
		{"no list", "", `{"net.ipv4.ip_forward":"1"}`, `{}`, 0},
		{"listed", list, `{"net.ipv4.conf.IFNAME.arp_notify":"1"}`, `{}`, 0},
		{"listed, found anywhere", list, `{"net.core.somaxconn":"5"}`, `{}`, 0},
		{"not listed", list, `{"net.ipv4.ip_forward":"1"}`, `{}`, cni.CodeInvalidConfig},
		{"one of two is not listed", list, `{"net.core.somaxconn":"5","net.ipv4.ip_forward":"1"}`,
			`{}`, cni.CodeInvalidConfig},
		{"the setting is listed, not the key", list, `{"net.ipv4.conf.eth0.arp_notify":"1"}`, `{}`,
			cni.CodeInvalidConfig},
		{"arguments do not bypass the list", list, `{"net.core.somaxconn":"5"}`,
			`{"net.ipv4.ip_forward":"1"}`, cni.CodeInvalidConfig},
		{"the list does not allow other settings", ".*", `{"kernel.core_pattern":"5"}`, `{}`,
			cni.CodeInvalidConfig},
		{"empty list", "\n", `{"net.core.somaxconn":"5"}`, `{}`, cni.CodeInvalidConfig},
		{"broken list", "somax\n(\n", `{"net.core.somaxconn":"5"}`, `{}`, cni.CodeInvalidConfig},
		{"unreadable list", "UNREADABLE", `{"net.core.somaxconn":"5"}`, `{}`, cni.CodeIOFailure},
		{"unreadable list, no sysctls", "UNREADABLE", `{}`, `{}`, 0},
		{"broken list, no sysctls", "(", `{}`, `{}`, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "list")
			switch row.list {
			case "":
			case "UNREADABLE":
				if err := os.Mkdir(path, 0o700); err != nil {
					t.Fatal(err)
				}
			default:
				if err := os.WriteFile(path, []byte(row.list), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := plugintest.NewRuntime(t, tuning.WithAllowList(path),
				`{"cniVersion":"1.1.0","name":"net","type":"tuning","promisc":true,"sysctl":`+row.sysctl+`,"args":{"cni":{"sysctl":`+row.args+`}}}`)
			r.Conf["dataDir"] = filepath.Join(r.Dir, "a", "tuning")
			status := r.Collect()
			status.Command = cni.Status
			r.Container("c")
			before := r.State()
			if row.code == 0 {
				r.Must(status)
				r.Add("c")
				r.Check("c")
				r.Del("c")
				removeDirs(t, r)
			} else {
				err := r.Refused(r.Request(cni.Add, "c"), row.code)
				if err != nil && row.name != "the list does not allow other settings" &&
					!strings.Contains(err.Error(), path) {
					t.Errorf("the error does not name the list: %v", err)
				}
				r.Refused(status, cni.CodeNotAvailable, cni.CodeInvalidConfig)
			}
			r.Unchanged(before)
		})
	}
}

// TestStatus: with an unusable list the plugin is not available, but the configuration is valid.
func TestStatus(t *testing.T) {
	t.Parallel()
	r := plugintest.NewRuntime(t, tuning.WithAllowList(t.TempDir()),
		`{"cniVersion":"1.1.0","name":"net","type":"tuning","sysctl":{"net.ipv4.conf.IFNAME.arp_notify":"1"}}`)
	q := r.Collect()
	q.Command = cni.Status
	r.Refused(q, cni.CodeNotAvailable)
}

// FuzzSysctl: for any input, only settings of the container below net are written, and DEL restores
// all accepted ones (CVE-2022-0811).
func FuzzSysctl(f *testing.F) {
	for _, object := range []string{
		`{"net.ipv4.conf.IFNAME.arp_notify":"1"}`, `{"net/ipv4/ip_local_port_range":"1 2","net.core.somaxconn":"5"}`,
		`{"net/../kernel/shm_rmid_forced":"1+kernel.core_pattern=x"}`, `{"a":"1","a":"2"}`, `null`, `[]`, `{"net.x":null}`, `{"net.x":1}`,
	} {
		f.Add(object, "eth0")
	}
	f.Fuzz(func(t *testing.T, object, ifName string) {
		files, err := tuning.Resolve([]byte(object), ifName)
		if err != nil || cni.ValidateIfName(ifName) != nil {
			return
		}
		seen := map[string]bool{}
		for file, value := range files {
			if path := filepath.Join("/proc/sys", file); !strings.HasPrefix(path,
				"/proc/sys/net/") || path != "/proc/sys/"+file {
				t.Errorf("%q leads to %q", object, path)
			}
			if seen[file] {
				t.Errorf("%q: %q twice", object, file)
			}
			seen[file] = true
			if strings.ContainsAny(value, "\n\r\x00+=;&|/\\'\"") || len(value) > 4095 {
				t.Errorf("%q: value %q", object, value)
			}
		}
	})
}
