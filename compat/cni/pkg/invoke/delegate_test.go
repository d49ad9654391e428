//go:build unix

package invoke_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/invoke"
)

// delegates are the functions by verb.
var delegates = map[string]func(context.Context, string, []byte, invoke.Exec) error{
	"ADD": func(ctx context.Context, plugin string, conf []byte, e invoke.Exec) error {
		_, err := invoke.DelegateAdd(ctx, plugin, conf, e)
		return err
	},
	"CHECK": invoke.DelegateCheck, "DEL": invoke.DelegateDel, "STATUS": invoke.DelegateStatus,
	"GC": invoke.DelegateGC,
}

// A delegate is looked up in CNI_PATH of this process, and gets its environment with another verb.
func TestDelegate(t *testing.T) {
	t.Setenv("CNI_PATH", "/a:/b")
	t.Setenv("CNI_IFNAME", "eth0")
	for verb, delegate := range delegates {
		for _, own := range []string{"ADD", "DEL", "no verb"} {
			t.Setenv("CNI_COMMAND", own)
			d := newDouble(`{"cniVersion":"1.0.0"}`, nil)
			d.FindInPathCall.Returns.Path = "/b/p"
			if err := delegate(t.Context(), "p", []byte(`{"cniVersion":"1.0.0"}`), d); err != nil {
				t.Errorf("%s: %v", verb, err)
			}
			find, exec := d.FindInPathCall.Received, d.ExecPluginCall.Received
			wantEqual(t, verb, []string{find.Plugin, strings.Join(find.Paths, " "), exec.PluginPath,
				string(exec.StdinData), strings.Join(variables(exec.Environ, "CNI_"), " ")},
				[]string{"p", "/a /b", "/b/p", `{"cniVersion":"1.0.0"}`,
					"CNI_COMMAND=" + verb + " CNI_IFNAME=eth0 CNI_PATH=/a:/b"})
			wantEqual(t, verb+": variable of this process", os.Getenv("CNI_COMMAND"), own)
		}
		d := newDouble("", errBroken)
		if err := delegate(t.Context(), "p", []byte("{}"), d); err != errBroken {
			t.Errorf("%s: error of the plugin: %v", verb, err)
		}
		d.FindInPathCall.Returns.Error = errBroken
		d.ExecPluginCall.Returns.Error = nil
		if err := delegate(t.Context(), "p", []byte("{}"), d); err != errBroken {
			t.Errorf("%s: error of the look-up: %v", verb, err)
		}
	}
}

// A nil exec runs a process.
func TestDelegateProcess(t *testing.T) {
	dir := pluginDir(t, "ok", "state")
	t.Setenv("CNI_COMMAND", "DEL")
	t.Setenv("CNI_PATH", dir)
	r, err := invoke.DelegateAdd(t.Context(), "ok", []byte(`{"cniVersion":"1.0.0"}`),
		&invoke.DefaultExec{RawExec: &invoke.RawExec{}})
	if err != nil || r.Version() != "1.0.0" {
		t.Errorf("%v, %v", r, err)
	}
	for verb, delegate := range delegates {
		if err := delegate(t.Context(), "state", []byte("{}"), nil); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
		t.Setenv("CNI_PATH", dir)
		wantEqual(t, verb, text(delegate(t.Context(), "absent", []byte("{}"), nil)),
			`failed to find plugin "absent" in path [`+dir+`]`)
		t.Setenv("CNI_PATH", "")
		wantEqual(t, verb, text(delegate(t.Context(), "state", []byte("{}"), nil)), "no paths provided")
		t.Setenv("CNI_PATH", dir)
	}
	// A delegate stays in the process group of the plugin, which a signal must reach as a whole.
	out, err := new(invoke.RawExec).ExecPlugin(t.Context(), filepath.Join(dir, "state"), nil, nil)
	if err != nil || decodeState(t, out).Leads {
		t.Errorf("%s, %v", out, err)
	}
}
