package plugin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
)

const complete = `{
  "cniVersion": "1.1.0", "name": "net", "type": "demo",
  "dir": "d", "mode": "m", "mtu": 7, "on": true, "list": ["a", "b"],
  "nested": {"a": "x", "b": 8, "inner": {"c": true}, "addr": "10.0.0.1"},
  "ipam": {"type": "host-local"},
  "dns": {"nameservers": ["10.0.0.1"], "domain": "d", "search": ["s"], "options": ["o"]},
  "runtimeConfig": {"mac": "02:00:00:00:00:01", "ips": ["10.0.0.2"]},
  "args": {"cni": {"mac": "02:00:00:00:00:02", "ips": ["10.0.0.3"]}}
}`

// TestDELReadsWhatItCan breaks one member at a time: DEL must see the same configuration as without
// the member, and ADD must fail.
func TestDELReadsWhatItCan(t *testing.T) {
	t.Parallel()
	for _, path := range paths(parse(t, complete)) {
		if path == "name" || path == "cniVersion" {
			continue // checked before the configuration is decoded
		}
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			broken, without := parse(t, complete), parse(t, complete)
			edit(broken, path, func(m map[string]any, key string) { m[key] = wrong(m[key]) })
			edit(without, path, func(m map[string]any, key string) { delete(m, key) })

			var r, want recorder
			if _, err := serve(t, r.define(plugin.Info{}), environment(cni.Del),
				text(t, broken)); err != nil {
				t.Fatal(err)
			}
			if _, err := serve(t, want.define(plugin.Info{}), environment(cni.Del),
				text(t, without)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.only(t).Conf, r.only(t).Conf,
				cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("broken against missing: %s", diff)
			}
			_, err := serve(t, new(recorder).define(plugin.Info{}), environment(cni.Add),
				text(t, broken))
			wantCode(t, err, cni.CodeDecodingFailure)
		})
	}
}

// TestSpellings checks that among members that differ only in case, ADD, and DEL of a broken
// configuration, read the one with the exact key, or without such a key the same one.
func TestSpellings(t *testing.T) {
	t.Parallel()
	for names, want := range map[string]string{
		`"name":"first","Name":"second","NAME":"last"`: "first",
		`"NAME":"first","name":"second","Name":"last"`: "second",
		`"Name":"first","NAME":"last"`:                 "first",
		`"NAME":"first","Name":"last"`:                 "last",
	} {
		for verb, mtu := range map[cni.Command]string{cni.Add: `1500`, cni.Del: `"broken"`} {
			for range 10 {
				var r recorder
				_, err := serve(t, r.define(plugin.Info{}), environment(verb),
					`{"cniVersion":"1.1.0",`+names+`,"mtu":`+mtu+`}`)
				if err != nil {
					t.Fatal(err)
				}
				if c := r.only(t); c.Name != want {
					t.Fatalf("%s with %s: network is %q, want %q", verb, names, c.Name, want)
				}
			}
		}
	}
}

func parse(t *testing.T, object string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(object), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func text(t *testing.T, m map[string]any) string {
	t.Helper()
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// paths lists the members of an object and of its nested objects, joined by dots.
func paths(m map[string]any) []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, key)
		if inner, ok := m[key].(map[string]any); ok {
			for _, p := range paths(inner) {
				all = append(all, key+"."+p)
			}
		}
	}
	return all
}

func edit(m map[string]any, path string, fn func(m map[string]any, key string)) {
	key, rest, nested := strings.Cut(path, ".")
	if nested {
		edit(m[key].(map[string]any), rest, fn)
		return
	}
	fn(m, key)
}

// wrong returns a value of another JSON type.
func wrong(v any) any {
	if _, ok := v.(float64); ok {
		return "x"
	}
	return 5
}

// PL-ADD-07
func TestPrevResult(t *testing.T) {
	t.Parallel()
	const (
		newer = `"interfaces":[{"name":"eth0"}],"ips":[{"address":"10.0.0.2/24","interface":0}]`
		older = `"interfaces":[{"name":"eth0"}],"ips":[{"version":"4","address":"10.0.0.2/24","interface":0}]`
	)
	for _, row := range []struct {
		name, version, prev string
		code                cni.Code
	}{
		{"absent", "1.1.0", "", 0},
		{"null (R-12)", "1.1.0", `null`, 0},
		{"own version", "1.1.0", `{"cniVersion":"1.1.0",` + newer + `}`, 0},
		{"version of the same form", "1.1.0", `{"cniVersion":"1.0.0",` + newer + `}`, 0},
		{"older version of the same form", "0.4.0", `{"cniVersion":"0.3.1",` + older + `}`, 0},
		{"without version", "0.4.0", `{` + older + `}`, 0},
		{"another form", "1.1.0", `{"cniVersion":"0.4.0",` + older + `}`, cni.CodeInvalidConfig},
		{"oldest form", "0.4.0", `{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24"}}`,
			cni.CodeInvalidConfig},
		{"unpublished version", "1.1.0", `{"cniVersion":"7.0.0"}`, cni.CodeIncompatibleVersion},
		{"string", "1.1.0", `"x"`, cni.CodeDecodingFailure},
		{"wrong type in it", "1.1.0", `{"cniVersion":"1.1.0","ips":[{"address":5}]}`,
			cni.CodeDecodingFailure},
		{"null element", "1.1.0", `{"cniVersion":"1.1.0","ips":[null]}`, cni.CodeInvalidConfig},
		{"index of no interface (RES-10)", "1.1.0",
			`{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2/24","interface":9}]}`, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			stdin := fmt.Sprintf(`{"cniVersion":%q,"name":"net"}`, row.version)
			if row.prev != "" {
				stdin = fmt.Sprintf(`{"cniVersion":%q,"name":"net","prevResult":%s}`, row.version,
					row.prev)
			}
			there := row.prev != "" && row.prev != "null" && row.code == 0
			for _, verb := range []cni.Command{cni.Add, cni.Check, cni.Del} {
				var r recorder
				_, err := serve(t, r.define(plugin.Info{}), environment(verb), stdin)
				if verb != cni.Del { // PL-DEL-08
					wantCode(t, err, row.code)
				} else if err != nil {
					t.Errorf("DEL: %v", err)
				}
				if err != nil {
					continue
				}
				if c := r.only(t); (c.Prev != nil) != there || there && len(c.Prev.IPs) != 1 {
					t.Errorf("%s: previous result is %+v", verb, c.Prev)
				}
			}
		})
	}
}

// RES-10: each verb logs one warning for each repair of the previous result. ADD passes on the
// repaired result, including gateways of the other family.
func TestPrevResultIsRepaired(t *testing.T) {
	t.Parallel()
	d := define(plugin.Info{Name: "demo"},
		verbs(func(_ context.Context, c *call) (*cni.Result, error) {
			return c.Prev, nil
		}))
	for _, row := range []struct {
		name, version, prev, want string
		repairs                   []string
	}{
		{"index", "0.3.1", `"ips":[{"version":"4","address":"10.0.0.2/24","interface":0}]`,
			`"ips":[{"version":"4","address":"10.0.0.2/24"}],"dns":{}`,
			[]string{"ips[0]: interface 0 is not one of 0: it counts as absent"}},
		{"version", "0.4.0", `"ips":[{"version":"4","address":"fd00::2/64"}]`,
			`"ips":[{"version":"6","address":"fd00::2/64"}],"dns":{}`,
			[]string{`ips[0] has version "4" and address fd00::2/64: it counts as 6`}},
		{"gateway of the other family", "0.4.0",
			`"ips":[{"version":"4","address":"10.0.0.2/24","gateway":"fe80::1"}]`,
			`"ips":[{"version":"4","address":"10.0.0.2/24","gateway":"fe80::1"}],"dns":{}`,
			[]string{"ips[0] has address 10.0.0.2/24 and gateway fe80::1: it is kept"}},
		{"three faults", "1.1.0",
			`"ips":[{"address":"10.0.0.2/24","interface":1},{"address":"fd00::2/64","interface":-1}],"routes":[{"dst":"::/0","mtu":-1}]`,
			`"ips":[{"address":"10.0.0.2/24"},{"address":"fd00::2/64"}],"routes":[{"dst":"::/0"}]`,
			[]string{
				"ips[0]: interface 1 is not one of 0: it counts as absent",
				"ips[1]: interface -1 is not one of 0: it counts as absent",
				"routes[0]: mtu -1 is not an unsigned 32-bit number: it counts as absent",
			}},
		{"no address in 0.2.0", "0.2.0", `"dns":{"domain":"d"}`, `"dns":{"domain":"d"}`, nil},
		{"nothing wrong", "1.1.0", `"ips":[{"address":"10.0.0.2/24"}]`,
			`"ips":[{"address":"10.0.0.2/24"}]`, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, verb := range []cni.Command{cni.Add, cni.Check, cni.Del} {
				if verb == cni.Check && row.version < "0.4.0" {
					continue
				}
				var log bytes.Buffer
				linked := plugin.Linked{Plugins: []plugin.Definition{d},
					Log: slog.New(slog.NewJSONHandler(&log, nil))}
				stdin := fmt.Sprintf(`{"cniVersion":%q,"name":"net","prevResult":{"cniVersion":%[1]q,%s}}`, row.version, row.prev)
				reply, err := linked.Call(t.Context(), invoke.Call{Path: invoke.LinkedPath("demo"),
					Env: environment(verb), Stdin: []byte(stdin)})
				if err != nil {
					t.Fatalf("%s: %v", verb, err)
				}
				if want := fmt.Sprintf(`{"cniVersion":%q,%s}`, row.version,
					row.want); verb == cni.Add && string(reply.Stdout) != want {
					t.Errorf("printed %s, want %s", reply.Stdout, want)
				}
				if diff := cmp.Diff(row.repairs, logged(t, log.String(), "repair"),
					cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s: warnings (-want +got):\n%s", verb, diff)
				}
			}
		})
	}
}

// RES-10: ADD of an IPAM plugin does not depend on the previous result, so it accepts an invalid
// one.
func TestPrevResultOfIPAM(t *testing.T) {
	t.Parallel()
	for _, prev := range []string{`{"ips":[null]}`, `{"cniVersion":"0.4.0"}`, `"x"`} {
		for role, accepted := range map[plugin.Role]bool{plugin.RoleIPAM: true,
			plugin.RoleInterface: false, plugin.RoleChained: false} {
			var r recorder
			_, err := serve(t, r.define(plugin.Info{Role: role}), environment(cni.Add),
				`{"cniVersion":"1.1.0","name":"net","prevResult":`+prev+`}`)
			if (err == nil) != accepted {
				t.Errorf("role %d: prevResult %s: %v", role, prev, err)
			}
			if err == nil && r.only(t).Prev != nil {
				t.Errorf("prevResult %s is read as %+v", prev, r.only(t).Prev)
			}
		}
	}
}

// CNV-08, CNV-09: ADD logs one warning for each address, gateway or route of its own that the
// version cannot express.
func TestLostInConversion(t *testing.T) {
	t.Parallel()
	own := &cni.Result{
		Interfaces: []cni.Interface{{Name: "eth0", MTU: 1500}},
		IPs: []cni.IP{
			{Address: netip.MustParsePrefix("10.0.0.2/24"),
				Gateway: netip.MustParseAddr("fe80::1")},
			{Address: netip.MustParsePrefix("10.0.1.2/24")},
		},
		Routes: []cni.Route{
			{Dst: netip.MustParsePrefix("0.0.0.0/0"), GW: netip.MustParseAddr("fe80::1")},
			{Dst: netip.MustParsePrefix("fd01::/64")},
		},
	}
	d := define(plugin.Info{Name: "demo"},
		verbs(func(context.Context, *call) (*cni.Result, error) { return own, nil }))
	for version, want := range map[string][]string{
		"0.2.0": {"address 10.0.0.2/24: gateway fe80::1", "address 10.0.1.2/24", "route 0.0.0.0/0",
			"route fd01::/64"},
		"0.4.0": {"address 10.0.0.2/24: gateway fe80::1", "route 0.0.0.0/0"},
		"1.0.0": nil,
	} {
		var log bytes.Buffer
		linked := plugin.Linked{Plugins: []plugin.Definition{d},
			Log: slog.New(slog.NewJSONHandler(&log, nil))}
		stdin := fmt.Sprintf(`{"cniVersion":%q,"name":"net"}`, version)
		if _, err := linked.Call(t.Context(), invoke.Call{Path: invoke.LinkedPath("demo"),
			Env: environment(cni.Add), Stdin: []byte(stdin)}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, logged(t, log.String(), "lost"),
			cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: warnings (-want +got):\n%s", version, diff)
		}
	}
}

// logged returns the values of an attribute in a log. Every line must be a warning with this
// attribute.
func logged(t *testing.T, log, key string) (values []string) {
	t.Helper()
	for line := range strings.Lines(log) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		value, ok := record[key].(string)
		if !ok || record["level"] != "WARN" || record["container"] != "c-1" {
			t.Errorf("logged %s", line)
		}
		values = append(values, value)
	}
	return values
}

// a plugin that passes on its configuration loses no member, although the configuration
// embeds Common.
func TestPrevResultIsKeptWhole(t *testing.T) {
	t.Parallel()
	d := define(plugin.Info{Name: "demo"},
		verbs(func(_ context.Context, c *call) (*cni.Result, error) {
			return c.Prev, nil
		}))
	for version, prev := range map[string]string{
		"1.1.0": `{"cniVersion":"1.1.0",` +
			`"interfaces":[{"name":"br0","mac":"02:00:00:00:00:01","mtu":1450},` +
			`{"name":"eth0","mac":"02:00:00:00:00:02","sandbox":"/run/netns/c","mtu":1450,"socketPath":"/run/c.sock","pciID":"0000:3b:02.1"}],` +
			`"ips":[{"interface":1,"address":"10.1.2.3/24","gateway":"10.1.2.1"},{"address":"2001:db8::3/64"}],` +
			`"routes":[{"dst":"0.0.0.0/0","gw":"10.1.2.1"},{"dst":"10.9.0.0/16","mtu":1400,"advmss":1360,"priority":20,"table":100,"scope":253}],` +
			`"dns":{"nameservers":["10.1.2.1"],"domain":"example.org","search":["a.example.org"],"options":["ndots:2"]}}`,
		"0.4.0": `{"cniVersion":"0.4.0",` +
			`"interfaces":[{"name":"eth0","mac":"02:00:00:00:00:02","sandbox":"/run/netns/c"}],` +
			`"ips":[{"version":"4","interface":0,"address":"10.1.2.3/24","gateway":"10.1.2.1"}],` +
			`"routes":[{"dst":"0.0.0.0/0","gw":"10.1.2.1"}],` +
			`"dns":{"nameservers":["10.1.2.1"],"domain":"example.org","search":["a.example.org"],"options":["ndots:2"]}}`,
	} {
		out, err := serve(t, d, environment(cni.Add),
			fmt.Sprintf(`{"cniVersion":%q,"name":"net","prevResult":%s}`, version, prev))
		if diff := cmp.Diff(prev, strings.TrimSpace(string(out))); diff != "" || err != nil {
			t.Errorf("%s: %v %s", version, err, diff)
		}
	}
}

// CONV-22, CONV-23, CONV-25
func TestArgs(t *testing.T) {
	t.Parallel()
	mac := []string{"MAC", "IP"}
	for _, row := range []struct {
		name  string
		known []string
		args  string
		code  cni.Code
	}{
		{"unread", nil, "garbage;;=", 0},
		{"none", mac, "", 0},
		{"known", mac, "MAC=02:00:00:00:00:01;IP=10.0.0.2", 0},
		{"unknown", mac, "K8S_POD_NAME=web", cni.CodeInvalidEnvironment},
		{"other case is unknown", mac, "mac=02:00:00:00:00:01", cni.CodeInvalidEnvironment},
		{"unknown is ignored", mac, "K8S_POD_NAME=web;IgnoreUnknown=1", 0},
		{"unknown is ignored in words", mac, "IgnoreUnknown=TRUE;K8S_POD_NAME=web", 0},
		{"unknown is not ignored", mac, "IgnoreUnknown=0;K8S_POD_NAME=web",
			cni.CodeInvalidEnvironment},
		{"nothing is known", []string{}, "MAC=x", cni.CodeInvalidEnvironment},
		{"trailing semicolon", mac, "MAC=x;", cni.CodeInvalidEnvironment},
		{"two equals signs", mac, "MAC=x=y", cni.CodeInvalidEnvironment},
		{"no equals sign", mac, "MAC", cni.CodeInvalidEnvironment},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, verb := range []cni.Command{cni.Add, cni.Check, cni.Del} {
				var r recorder
				env := environment(verb)
				env.Args = row.args
				_, err := serve(t, r.define(plugin.Info{Args: row.known}), env,
					`{"cniVersion":"1.1.0","name":"net"}`)
				if verb == cni.Del {
					wantCode(t, err, 0)
				} else {
					wantCode(t, err, row.code)
				}
			}
		})
	}
}

// CONV-15, CONV-24: precedence of MAC addresses; requested IP addresses add up.
func TestRequestPrecedence(t *testing.T) {
	t.Parallel()
	const (
		capability = `"runtimeConfig":{"mac":"cap","ips":["10.0.0.1","10.0.0.2/24"]}`
		conf       = `"args":{"cni":{"mac":"conf","ips":["10.0.0.3"]}}`
		env        = "MAC=env;IP=10.0.0.4"
	)
	for _, row := range []struct {
		name, conf, args string
		want             plugin.Request
	}{
		{"nothing", "", "", plugin.Request{}},
		{"CNI_ARGS", "", env, plugin.Request{MAC: "env", IPs: []string{"10.0.0.4"}}},
		{"args beat CNI_ARGS", "," + conf, env,
			plugin.Request{MAC: "conf", IPs: []string{"10.0.0.4", "10.0.0.3"}}},
		{"capability beats all", "," + conf + "," + capability, env, plugin.Request{MAC: "cap",
			IPs: []string{"10.0.0.4", "10.0.0.3", "10.0.0.1", "10.0.0.2/24"}}},
		{"empty value does not count", `,"runtimeConfig":{"mac":""},` + conf, "",
			plugin.Request{MAC: "conf", IPs: []string{"10.0.0.3"}}},
		{"unknown arguments are ignored (CONV-02)",
			`,"args":{"cni":{"labels":[{"key":"a","value":"b"}],"later":5},"other":{"ips":"x"}}`,
			"", plugin.Request{}},
		{"capitalised, as containerd does", `,"RuntimeConfig":{"MAC":"cap"}`, "",
			plugin.Request{MAC: "cap"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var r recorder
			e := environment(cni.Add)
			e.Args = row.args
			if _, err := serve(t, r.define(plugin.Info{Args: []string{"MAC", "IP"}}), e,
				`{"cniVersion":"1.1.0","name":"net"`+row.conf+`}`); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, r.only(t).Asked); diff != "" {
				t.Error(diff)
			}
		})
	}
}
