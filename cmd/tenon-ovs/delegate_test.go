package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet/exefile"
	"github.com/tenon-cni/tenon/invoke"
)

// TestDelegates: host-local runs in the process of the plugin if its file is Tenon's. Other files,
// and with TENON_EXEC=always all files, are executed. The results are equal.
func TestDelegates(t *testing.T) {
	// Not parallel: it sets an environment variable.
	l := start(t, under, header+`}`)
	l.Conf["ipam"] = object{"type": "host-local", "dataDir": t.TempDir(), "subnet": "10.9.0.0/24"}
	dir := t.TempDir()
	tenon := filepath.Join(dir, "tenon")
	build := exec.Command("go", "build", "-o", tenon, "github.com/tenon-cni/tenon/cmd/tenon")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file := filepath.Join(dir, "host-local")
	l.Container("c")
	before := l.state()
	cycle := func(when string, want int, address string) {
		t.Helper()
		processes := 0
		handler := under.Handler(delegates(invoke.Process{Environ: func(context.Context) []string {
			processes++ // for each process
			return nil
		}}))
		for _, verb := range []cni.Command{cni.Add, cni.Del} {
			q := l.Request(verb, "c")
			stdin, err := json.Marshal(q.Conf)
			if err != nil {
				t.Fatal(err)
			}
			q.Env.Path = dir
			var result string
			err = l.Host.Run(func() error {
				reply, err := invoke.Local{"ovs": handler}.Call(t.Context(),
					invoke.Call{Path: "ovs", Env: q.Env, Stdin: stdin})
				result = string(reply.Stdout)
				return err
			})
			if err != nil {
				t.Fatalf("%s, %s: %v", when, verb, err)
			}
			if verb == cni.Add && !strings.Contains(result, address) {
				t.Errorf("%s: result %s, want address %s", when, result, address)
			}
		}
		if processes != want {
			t.Errorf("%s: %d processes, want %d", when, processes, want)
		}
		l.unchanged(before, when)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Symlink("tenon", file))
	cycle("Tenon's file", 0, "10.9.0.2/24")
	t.Setenv("TENON_EXEC", "always")
	cycle("TENON_EXEC=always", 2, "10.9.0.3/24")
	t.Setenv("TENON_EXEC", "")
	must(os.Remove(file))
	const script = "#!/bin/sh\ntest $CNI_COMMAND != ADD ||\n" +
		`echo '{"cniVersion":"1.1.0","ips":[{"address":"10.9.0.9/24"}]}'` + "\n"
	must(exefile.Write(file, []byte(script)))
	cycle("a foreign file", 2, "10.9.0.9/24")
}
