//go:build unix

package invoke_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/invoke/fakes"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

// double is an invoke.Exec without processes.
type double struct {
	*fakes.RawExec
	*fakes.VersionDecoder
}

func newDouble(stdout string, err error) double {
	d := double{&fakes.RawExec{}, &fakes.VersionDecoder{}}
	d.ExecPluginCall.Returns.ResultBytes = []byte(stdout)
	d.ExecPluginCall.Returns.Error = err
	return d
}

func environment(env ...string) invoke.CNIArgs {
	args := &fakes.CNIArgs{}
	args.AsEnvCall.Returns.Env = env
	return args
}

var errBroken = errors.New("broken")

func TestExecPluginPassesThrough(t *testing.T) {
	t.Parallel()
	conf := []byte(`{"cniVersion":"1.0.0"}`)
	calls := map[string]func(invoke.Exec) error{
		"with result": func(e invoke.Exec) error {
			r, err := invoke.ExecPluginWithResult(t.Context(), "/p", conf, environment("A=1"), e)
			if err == nil {
				wantEqual(t, "version", r.Version(), "1.0.0")
			} else if r != nil {
				t.Errorf("%v beside %v", r, err)
			}
			return err
		},
		"without result": func(e invoke.Exec) error {
			return invoke.ExecPluginWithoutResult(t.Context(), "/p", conf, environment("A=1"), e)
		},
	}
	for name, call := range calls {
		d := newDouble(`{"cniVersion":"1.0.0"}`, nil)
		if err := call(d); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := d.ExecPluginCall.Received
		wantEqual(t, name,
			[]string{got.PluginPath, string(got.StdinData), strings.Join(got.Environ, " ")},
			[]string{"/p", string(conf), "A=1"})
		if err := call(newDouble("", errBroken)); err != errBroken {
			t.Errorf("%s: %v, want %v", name, err, errBroken)
		}
	}
}

func TestResultVersion(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, conf, stdout, want string }{
		{"own version", `{"cniVersion":"0.3.1"}`, `{"cniVersion":"1.0.0"}`, "1.0.0"},
		{"no version", `{"cniVersion":"0.3.1"}`, `{"dns":{}}`, "0.3.1"},
		{"empty version", `{"cniVersion":"0.3.1"}`, `{"cniVersion":""}`, "0.3.1"},
		{"not a string", `{"cniVersion":"0.3.1"}`, `{"cniVersion":4}`, "0.3.1"},
		{"null", `{"cniVersion":"0.3.1"}`, `null`, "0.3.1"},
		{"neither has a version", `{}`, `{"dns":{}}`, "0.1.0"},
		{"empty version of the configuration", `{"cniVersion":""}`, `{}`, "0.1.0"},
		{"no JSON", `{}`, `{`, "failed to unmarshal raw result: unexpected end of JSON input"},
		{"nothing", `{}`, ``, "failed to unmarshal raw result: unexpected end of JSON input"},
		{"unknown version", `{}`, `{"cniVersion":"9.8.7"}`, `unsupported CNI result version "9.8.7"`},
		{"bad configuration", `{`, `{}`,
			"decoding version from network config: unexpected end of JSON input"},
	} {
		r, err := invoke.ExecPluginWithResult(t.Context(), "/p", []byte(row.conf), environment(),
			newDouble(row.stdout, nil))
		got := text(err)
		if err == nil {
			got = r.Version()
		}
		wantEqual(t, row.name, got, row.want)
	}
}

// The numbers of a result do not change when it gets a version.
func TestResultNumbers(t *testing.T) {
	t.Parallel()
	r, err := invoke.ExecPluginWithResult(t.Context(), "/p", []byte(`{"cniVersion":"1.1.0"}`),
		environment(), newDouble(`{"routes":[{"dst":"10.0.0.0/8","priority":9007199254740993}]}`, nil))
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "priority", r.(*types100.Result).Routes[0].Priority, 9007199254740993)
}

func TestDefaultExec(t *testing.T) {
	t.Parallel()
	args, conf := environment("A=1"), []byte(`{"cniVersion":"1.0.0"}`)
	r, err := invoke.ExecPluginWithResult(t.Context(), plugin(t, "state"), conf, args, nil)
	if err != nil || r.Version() != "1.0.0" {
		t.Errorf("with result: %v, %v", r, err)
	}
	err = invoke.ExecPluginWithoutResult(t.Context(), plugin(t, "mute"), conf, args, nil)
	if err != nil {
		t.Errorf("without result: %v", err)
	}
	err = invoke.ExecPluginWithoutResult(t.Context(), plugin(t, "nocode"), conf, args, nil)
	wantEqual(t, "error", text(err), "one")
	info, err := invoke.GetVersionInfo(t.Context(), plugin(t, "v100"), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "versions", info.SupportedVersions(), []string{"0.4.0", "1.0.0"})
	var _ invoke.Exec = &invoke.DefaultExec{RawExec: &invoke.RawExec{}}
}

func TestGetVersionInfo(t *testing.T) {
	t.Parallel()
	d := newDouble("a reply", nil)
	d.DecodeCall.Returns.PluginInfo = version.PluginSupports("0.4.0")
	info, err := invoke.GetVersionInfo(t.Context(), "/p", d)
	if err != nil {
		t.Fatal(err)
	}
	got := d.ExecPluginCall.Received
	reply := d.DecodeCall.Received.JSONBytes
	wantEqual(t, "call", []string{got.PluginPath, string(got.StdinData), string(reply)},
		[]string{"/p", `{"cniVersion":"1.1.0"}`, "a reply"})
	wantEqual(t, "environment", variables(got.Environ, "CNI_"), []string{"CNI_ARGS=",
		"CNI_COMMAND=VERSION", "CNI_CONTAINERID=", "CNI_IFNAME=dummy", "CNI_NETNS=dummy",
		"CNI_PATH=dummy"})
	wantEqual(t, "versions", info.SupportedVersions(), []string{"0.4.0"})

	d.DecodeCall.Returns.Error = errBroken
	if _, err = invoke.GetVersionInfo(t.Context(), "/p", d); err != errBroken {
		t.Errorf("decoder's error: %v", err)
	}
	for text, want := range map[string]string{
		"unknown CNI_COMMAND: VERSION": "", "unknown CNI_COMMAND: VERSION; x": "the same",
		"x": "the same",
	} {
		broken := errors.New(text)
		info, err := invoke.GetVersionInfo(t.Context(), "/p", newDouble("", broken))
		if want != "" {
			if err != broken {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		wantEqual(t, text, info.SupportedVersions(), []string{"0.1.0"})
	}
}

// Plugins of all ages report their versions.
func TestGetVersionInfoOfProcess(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"v010": "[0.1.0] ", "v020": "[0.1.0 0.2.0] ", "v100": "[0.4.0 1.0.0] ",
		"odd":    "[] unknown CNI_COMMAND: VERSION; x",
		"mute":   "[] decoding version info: unexpected end of JSON input",
		"silent": "[] netplugin failed with no error message: exit status 3",
	} {
		var versions []string
		info, err := invoke.GetVersionInfo(context.Background(), plugin(t, name), nil)
		if err == nil {
			versions = info.SupportedVersions()
		}
		wantEqual(t, name, "["+strings.Join(versions, " ")+"] "+text(err), want)
	}
}

// Fakes record the arguments of a call and return what the test sets.
func TestFakes(t *testing.T) {
	t.Parallel()
	d := newDouble("out", errBroken)
	d.FindInPathCall.Returns.Path, d.FindInPathCall.Returns.Error = "/p", errBroken
	path, err := d.FindInPath("p", []string{"/a"})
	if path != "/p" || err != errBroken || d.FindInPathCall.Received.Plugin != "p" ||
		len(d.FindInPathCall.Received.Paths) != 1 {
		t.Errorf("find: %q, %v, %+v", path, err, d.FindInPathCall.Received)
	}
	if out, err := d.ExecPlugin(t.Context(), "", nil, nil); string(out) != "out" || err != errBroken {
		t.Errorf("exec: %q, %v", out, err)
	}
	var _ types.Result = &types100.Result{}
}
