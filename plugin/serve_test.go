package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
)

// TestOrder checks the order of checks on requests with several errors, and that the plugin is not
// called (ENV-01, ENV-02, ENV-03, ENV-07, ERR-04, ERR-09, DIS-31).
func TestOrder(t *testing.T) {
	t.Parallel()
	const good = `{"cniVersion":"1.1.0","name":"net","type":"demo"}`
	for _, row := range []struct {
		name  string
		env   cni.Env
		stdin string
		code  cni.Code
		says  []string
		not   []string
	}{
		{"no command", cni.Env{}, good, 4, []string{"CNI_COMMAND"}, nil},
		{"unknown command before standard input", cni.Env{Command: "NOPE"}, "", 4,
			[]string{"CNI_COMMAND", "NOPE"}, nil},
		{"commands are upper case", environment("add"), good, 4, []string{"CNI_COMMAND"}, nil},
		{"GET of the drafts is unknown (PL-CHK-10)", environment("GET"), good, 4,
			[]string{"CNI_COMMAND"}, nil},
		{"all missing variables are named", cni.Env{Command: cni.Add}, good, 4,
			[]string{"[CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH]"}, nil},
		{"all missing variables of CHECK are named", cni.Env{Command: cni.Check}, good, 4,
			[]string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"}, nil},
		{"CNI_PATH and others are missing", cni.Env{Command: cni.Add, ContainerID: "c",
			IfName: "eth0"}, good, 4, []string{"[CNI_NETNS,CNI_PATH]"}, nil},
		{"DEL does not miss a namespace", cni.Env{Command: cni.Del}, good, 4,
			[]string{"CNI_CONTAINERID", "CNI_IFNAME"}, []string{"CNI_NETNS"}},
		{"first invalid variable", cni.Env{Command: cni.Add, ContainerID: "-x", Netns: "/n",
			IfName: "a/b"}, good, 4, []string{"CNI_CONTAINERID"}, []string{"CNI_IFNAME"}},
		{"invalid before missing", cni.Env{Command: cni.Add, IfName: "a/b"}, good, 4,
			[]string{"CNI_IFNAME"}, []string{"CNI_CONTAINERID"}},
		{"variables before JSON", cni.Env{Command: cni.Add}, "{", 4, []string{"CNI_IFNAME"}, nil},
		{"JSON before name", environment(cni.Add), `{"cniVersion":"9.9.9"`, 6, nil, nil},
		{"type of the name", environment(cni.Add), `{"cniVersion":"1.1.0","name":7}`, 6,
			[]string{"name"}, nil},
		{"name before version", environment(cni.Add), `{"cniVersion":"9.9.9"}`, 7, []string{"name"},
			[]string{"9.9.9"}},
		{"VER-01: malformed version", environment(cni.Add), `{"cniVersion":"1.0","name":"net"}`, 6,
			[]string{"cniVersion"}, nil},
		{"VER-03: unpublished version before the configuration", environment(cni.Add),
			`{"cniVersion":"9.9.9","name":"net","mtu":"x"}`, 1, []string{"9.9.9"}, nil},
		{"VER-03: version that the plugin does not support", environment(cni.Add),
			`{"cniVersion":"0.4.0","name":"net"}`, 1,
			[]string{"incompatible CNI versions", "0.4.0", "1.0.0"}, nil},
		{"VER-03: on DEL", environment(cni.Del), `{"cniVersion":"0.4.0","name":"net"}`, 1,
			[]string{"0.4.0", "1.0.0"}, nil},
		{"VER-03: on CHECK", environment(cni.Check), `{"cniVersion":"0.4.0","name":"net"}`, 1,
			[]string{"0.4.0", "1.0.0"}, nil},
		{"VER-03: on STATUS", environment(cni.Status), `{"cniVersion":"9.9.9","name":"net"}`, 1,
			[]string{"9.9.9"}, nil},
		{"VER-03: on GC", environment(cni.GC), `{"cniVersion":"9.9.9","name":"net"}`, 1,
			[]string{"9.9.9"}, nil},
		{"VER-04, R-14: no version stands for 0.1.0, which the plugin does not support",
			environment(cni.Add), `{"name":"net"}`, 1, []string{"0.1.0"}, nil},
		{"VER-04, R-14: an empty version stands for 0.1.0", environment(cni.Add),
			`{"cniVersion":"","name":"net"}`, 1, []string{"0.1.0"}, nil},
		{"GC before 1.1.0", environment(cni.GC), `{"cniVersion":"1.0.0","name":"net"}`, 1,
			[]string{"config version does not allow GC", "1.0.0"}, nil},
		{"STATUS before 1.1.0", environment(cni.Status), `{"cniVersion":"1.0.0","name":"net"}`, 1,
			[]string{"config version does not allow STATUS"}, nil},
		{"wrong type in the configuration", environment(cni.Add),
			`{"cniVersion":"1.1.0","name":"net","mtu":"x"}`, 6, []string{"mtu"}, nil},
		{"GC without a list (PL-GC-06)", environment(cni.GC), good, 7,
			[]string{"valid-attachments"}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var r recorder
			_, err := serve(t, r.define(plugin.Info{Versions: []cni.Version{cni.V100, cni.V110}}),
				row.env, row.stdin)
			wantCode(t, err, row.code)
			for _, text := range row.says {
				if err != nil && !strings.Contains(err.Error(), text) {
					t.Errorf("%v: does not mention %s", err, text)
				}
			}
			for _, text := range row.not {
				if err != nil && strings.Contains(err.Error(), text) {
					t.Errorf("%v: mentions %s", err, text)
				}
			}
			if len(r.calls) > 0 {
				t.Error("plugin was called")
			}
		})
	}
}

// PL-CHK-01, PL-STA-06, PL-GC-07, RT-STA-05, DIS-23: a verb that the version lacks fails with code
// 1.
func TestVerbGates(t *testing.T) {
	t.Parallel()
	for _, v := range cni.Versions() {
		for _, verb := range []cni.Command{cni.Add, cni.Del, cni.Check, cni.Status, cni.GC} {
			var r recorder
			stdin := fmt.Sprintf(`{"cniVersion":%q,"name":"net","cni.dev/valid-attachments":[]}`, v)
			_, err := serve(t, r.define(plugin.Info{}), environment(verb), stdin)
			if want := v.Has(verb); (err == nil) != want || len(r.calls) > 0 != want {
				t.Errorf("%s in %v: error %v, %d calls", verb, v, err, len(r.calls))
			}
			if err != nil {
				wantCode(t, err, cni.CodeIncompatibleVersion)
			}
		}
	}
}

// ENV-08, ENV-10, PL-STA-07
// DIS-04
func TestVariablesThatDoNotMatter(t *testing.T) {
	t.Parallel()
	for _, env := range []cni.Env{
		{Command: cni.GC, ContainerID: "-bad", IfName: "a/b"},
		{Command: cni.Status},
		{Command: cni.Add, ContainerID: "c-1", Netns: "/run/netns/absent", IfName: "eth0"},
	} {
		var r recorder
		if _, err := serve(t, r.define(plugin.Info{}), env,
			`{"cniVersion":"1.1.0","name":"net","cni.dev/valid-attachments":[]}`); err != nil {
			t.Errorf("%s: %v", env.Command, err)
		}
	}
}

// TestOwnNamespace checks that the plugin is not called for its own network namespace (R-04,
// ENV-16, PL-ADD-11, DIS-24).
func TestOwnNamespace(t *testing.T) {
	t.Parallel()
	const own = "/proc/self/ns/net"
	for _, row := range []struct {
		name            string
		verb            cni.Command
		netns, override string
		refused         bool
	}{
		{"ADD", cni.Add, own, "", true},
		{"DEL", cni.Del, own, "", true},
		{"CHECK changes nothing", cni.Check, own, "", false},
		{"override", cni.Add, own, "1", false},
		{"override in words", cni.Del, own, "TRUE", false},
		{"override that is none", cni.Add, own, "yes", true},
		{"path that cannot be opened", cni.Add, "/run/netns/absent", "", false},
		{"DEL without a path", cni.Del, "", "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var r recorder
			env := environment(row.verb)
			env.Netns, env.NetnsOverride = row.netns, row.override
			_, err := serve(t, r.define(plugin.Info{}), env, `{"cniVersion":"1.1.0","name":"net"}`)
			if row.refused {
				wantCode(t, err, cni.CodeOwnNamespace)
			} else if err != nil {
				t.Error(err)
			}
			if (len(r.calls) == 0) != row.refused {
				t.Errorf("plugin was called %d times", len(r.calls))
			}
		})
	}
}

// TestOwnNamespaceOfThread checks that the namespace of the calling thread counts.
func TestOwnNamespaceOfThread(t *testing.T) {
	t.Parallel()
	n := testnet.New(t, "c")
	n.Host.Do(func() {
		for _, netns := range []string{n.Host.Path(), n.Container("c").Path()} {
			var r recorder
			env := environment(cni.Add)
			env.Netns = netns
			_, err := serve(t, r.define(plugin.Info{}), env, `{"cniVersion":"1.1.0","name":"net"}`)
			if refused := cni.CodeOf(err) == cni.CodeOwnNamespace; refused != (netns == n.Host.Path()) {
				t.Errorf("%s: %v", netns, err)
			}
		}
	})
}

// PL-VRS-01, PL-VRS-02, PL-VRS-05, DIS-03
func TestVersion(t *testing.T) {
	t.Parallel()
	d := new(recorder).define(plugin.Info{Versions: []cni.Version{cni.V040, cni.V100}})
	for _, row := range []struct{ name, stdin, echo string }{
		{"nothing", "", "1.1.0"},
		{"garbage", "\x00{", "1.1.0"},
		{"request", `{"cniVersion":"0.4.0"}`, "0.4.0"},
		{"version that the plugin does not support", `{"cniVersion":"1.1.0"}`, "1.1.0"},
		{"old version", `{"cniVersion":"0.2.0"}`, "0.2.0"},
		{"no version", `{}`, "1.1.0"},
		{"unpublished version", `{"cniVersion":"7.0.0"}`, "1.1.0"},
		{"wrong type", `{"cniVersion":1}`, "1.1.0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			out, err := serve(t, d, cni.Env{Command: cni.VersionCommand}, row.stdin)
			if err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("{\"cniVersion\":%q,\"supportedVersions\":[\"0.4.0\",\"1.0.0\"]}\n",
				row.echo)
			if diff := cmp.Diff(want, string(out)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDefine(t *testing.T) {
	t.Parallel()
	d := new(recorder).define(plugin.Info{})
	if diff := cmp.Diff(cni.Versions(), d.Versions); diff != "" {
		t.Errorf("versions by default: %s", diff)
	}
}

// none is a plugin without optional verbs.
type none struct{ config }

func (*none) Add(context.Context, *plugin.Call) (*cni.Result, error) { return result, nil }
func (*none) Del(context.Context, *plugin.Call) error                { return nil }
func (*none) Check(context.Context, *plugin.Call) error              { return nil }

// PL-STA-08, PL-GC-08
func TestVerbsAPluginHasNot(t *testing.T) {
	t.Parallel()
	d := plugin.Define(plugin.Info{Name: "demo"}, func() plugin.Plugin { return new(none) })
	for _, verb := range []cni.Command{cni.Status, cni.GC} {
		out, err := serve(t, d, environment(verb),
			`{"cniVersion":"1.1.0","name":"net","cni.dev/valid-attachments":[]}`)
		if len(out) > 0 || err != nil {
			t.Errorf("%s: printed %s, error %v", verb, out, err)
		}
	}
}

type validating struct{ none }

func (v *validating) Validate(*plugin.Call) error {
	return cni.Errorf(cni.CodeUnsupportedField, "mode: %q is not supported", v.Mode)
}

// Status and GC let the test check which verbs call Validate.
func (*validating) Status(context.Context, *plugin.Call) error { return nil }
func (*validating) GC(context.Context, *plugin.Call) error     { return nil }

func TestValidate(t *testing.T) {
	t.Parallel()
	d := plugin.Define(plugin.Info{Name: "demo"}, func() plugin.Plugin { return new(validating) })
	for verb, want := range map[cni.Command]cni.Code{
		cni.Add: cni.CodeUnsupportedField, cni.Check: cni.CodeUnsupportedField,
		cni.Status: cni.CodeUnsupportedField,
		cni.Del:    0, cni.GC: 0,
	} {
		_, err := serve(t, d, environment(verb),
			`{"cniVersion":"1.1.0","name":"net","cni.dev/valid-attachments":[]}`)
		wantCode(t, err, want)
	}
}

func TestCall(t *testing.T) {
	t.Parallel()
	const stdin = `{"cniVersion":"0.4.0","name":"net","type":"demo","mtu":7,"ipam":{"type":"x"},"dns":{"domain":"d"}}`
	var r recorder
	if _, err := serve(t, r.define(plugin.Info{}), environment(cni.Add), stdin); err != nil {
		t.Fatal(err)
	}
	c := r.only(t)
	if c.Name != "net" || c.Type != "demo" || c.Conf.MTU != 7 || c.IPAM.Type != "x" ||
		c.DNS.Domain != "d" || c.Conf.Name != "net" {
		t.Errorf("configuration is %+v", c.Conf)
	}
	if c.Version != cni.V040 || string(c.Stdin()) != stdin || c.Env != environment(cni.Add) ||
		c.Prev != nil {
		t.Errorf("call is %+v", c)
	}
	if want := (cni.Attachment{Network: "net", Container: "c-1",
		IfName: "eth0"}); c.Attachment() != want {
		t.Errorf("attachment %v, want %v", c.Attachment(), want)
	}
}

func TestValidAttachments(t *testing.T) {
	t.Parallel()
	var r recorder
	_, err := serve(t, r.define(plugin.Info{}), environment(cni.GC),
		`{"cniVersion":"1.1.0","name":"net","mtu":"broken","cni.dev/valid-attachments":[{"containerID":"a","ifname":"b"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]cni.ValidAttachment{{ContainerID: "a", IfName: "b"}},
		r.only(t).Valid); diff != "" {
		t.Error(diff)
	}
}

// ERR-01, PL-ADD-05
func TestErrors(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		err  error
		want cni.Error
	}{
		{"code is kept", cni.Errorf(111, "no").WithDetails("because"),
			cni.Error{Code: 111, Msg: "no", Details: "because"}},
		{"code survives wrapping", fmt.Errorf("outer: %w", cni.Errorf(11, "no")),
			cni.Error{Code: 11, Msg: "outer: no"}},
		{"no code", errors.New("no"), cni.Error{Code: 999, Msg: "no"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			d := define(plugin.Info{Name: "demo"},
				verbs(func(context.Context, *call) (*cni.Result, error) { return nil, row.err }))
			for _, verb := range []cni.Command{cni.Add, cni.Del, cni.Check, cni.Status, cni.GC} {
				stdin := []byte(`{"cniVersion":"1.1.0","name":"net","cni.dev/valid-attachments":[]}`)
				out, ok := d.Handler(invoke.Fake{})(t.Context(),
					invoke.Call{Env: environment(verb), Stdin: stdin})
				got, err := cni.DecodeErrorStrict(out)
				if ok || err != nil {
					t.Fatalf("%s: success %t, printed %s: %v", verb, ok, out, err)
				}
				if got.Code != row.want.Code || got.Msg != row.want.Msg ||
					got.Details != row.want.Details {
					t.Errorf("%s: printed %s, want %+v", verb, out, row.want)
				}
			}
		})
	}
}

// ERR-02, DIS-02: the error object has the version of the request, or the newest if that is
// unknown.
func TestErrorVersion(t *testing.T) {
	t.Parallel()
	d := new(recorder).define(plugin.Info{Versions: []cni.Version{cni.V110}})
	for stdin, want := range map[string]string{
		`{"cniVersion":"0.4.0","name":"net"}`: `{"cniVersion":"0.4.0","code":1,`,
		`{"cniVersion":"1.1.0"}`:              `{"cniVersion":"1.1.0","code":7,`,
		`{"name":"net"}`:                      `{"cniVersion":"0.1.0","code":1,`,
		`{"cniVersion":"7.0.0","name":"net"}`: `{"cniVersion":"1.1.0","code":1,`,
		`{`:                                   `{"cniVersion":"1.1.0","code":6,`,
	} {
		call := invoke.Call{Env: environment(cni.Add), Stdin: []byte(stdin)}
		if out, _ := d.Handler(invoke.Fake{})(t.Context(), call); !strings.HasPrefix(string(out),
			want) {
			t.Errorf("%s: printed %s, want %s…", stdin, out, want)
		}
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	d := define(plugin.Info{Name: "demo"},
		verbs(func(context.Context, *call) (*cni.Result, error) { panic("boom") }))
	for _, verb := range []cni.Command{cni.Add, cni.Del, cni.Check, cni.Status, cni.GC} {
		_, err := serve(t, d, environment(verb),
			`{"cniVersion":"1.1.0","name":"net","cni.dev/valid-attachments":[]}`)
		wantCode(t, err, cni.CodeInternal)
		if err == nil || !strings.Contains(err.Error(), "boom") ||
			strings.Contains(err.Error(), "goroutine") {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

// TestNameservers is DNS-03: a nameserver that is not an address, or has a zone of the host, is
// omitted, unless it comes from a plugin before (DNS-02).
func TestNameservers(t *testing.T) {
	t.Parallel()
	d := define(plugin.Info{Name: "demo"}, verbs(func(context.Context, *call) (*cni.Result, error) {
		return &cni.Result{DNS: cni.DNS{Nameservers: []string{"10.0.0.53", "dns.example",
			"fd00::53", "theirs", "fe80::1%eth0", ""}}}, nil
	}))
	out, err := serve(t, d, environment(cni.Add),
		`{"cniVersion":"1.1.0","name":"net","prevResult":{"dns":{"nameservers":["theirs"]}}}`)
	if want := `{"cniVersion":"1.1.0","dns":{"nameservers":["10.0.0.53","fd00::53","theirs"]}}`; string(out) != want || err != nil {
		t.Errorf("printed %s, %v, want %s", out, err, want)
	}
}

// TestUnprintableResult checks that an attachment does not stay if its result cannot be printed,
// even if the call has been cancelled (CNV-15).
func TestUnprintableResult(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, version string
		result        *cni.Result
	}{
		{"no address in 0.2.0", "0.2.0", &cni.Result{}},
		{"no result", "1.1.0", nil},
		{"invalid result", "1.1.0", &cni.Result{Interfaces: []cni.Interface{{}}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			p := &undone{result: row.result, added: cancel}
			stdin := fmt.Sprintf(`{"cniVersion":%q,"name":"net"}`, row.version)
			_, err := plugin.Define(plugin.Info{Name: "demo"},
				func() plugin.Plugin { return p }).Serve(ctx, environment(cni.Add), []byte(stdin),
				invoke.Fake{})
			if err == nil || !strings.Contains(err.Error(), "DEL was reached") {
				t.Errorf("error is %v, want the error of DEL too", err)
			}
			if p.ctxErr != nil {
				t.Errorf("context of DEL: %v", p.ctxErr)
			}
			if p.attachment != (cni.Attachment{Network: "net", Container: "c-1", IfName: "eth0"}) {
				t.Errorf("DEL of %v", p.attachment)
			}
		})
	}
}

// undone is a plugin with a successful ADD and a failing DEL.
type undone struct {
	none
	result     *cni.Result
	added      func()
	attachment cni.Attachment
	ctxErr     error
}

func (p *undone) Add(context.Context, *plugin.Call) (*cni.Result, error) {
	p.added()
	return p.result, nil
}

func (p *undone) Del(ctx context.Context, c *plugin.Call) error {
	p.attachment, p.ctxErr = c.Attachment(), ctx.Err()
	return errors.New("DEL was reached")
}

func TestExamples(t *testing.T) {
	t.Parallel()
	i := plugin.Info{Doc: "# demo\n```\nnot JSON\n```\n## First\ntext\n```json\n{\n  \"a\": 1\n}\n```\n\n### Second one\n```json\n{}\n```\n```json\n{\n"}
	want := []plugin.Example{{Name: "First", Config: "{\n  \"a\": 1\n}\n"}, {Name: "Second one", Config: "{}\n"}}
	if diff := cmp.Diff(want, i.Examples()); diff != "" {
		t.Error(diff)
	}
}
