package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/repair"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/ovs"
)

// TestRepairByProgram: the program tenon repairs attachments of this one by starting it.
func TestRepairByProgram(t *testing.T) {
	l := start(t, under, segment)
	port := l.Add("c").Interfaces[0].Name
	before := sorted(l.sw.Rows())
	programs := t.TempDir()
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(programs, ovs.Program))
	}
	if err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	run := func() repair.Outcome {
		t.Helper()
		q := l.Request(cni.Check, "c")
		stdin, err := json.Marshal(q.Conf)
		if err != nil {
			t.Fatal(err)
		}
		var outcomes []repair.Outcome
		err = l.Host.Run(func() (err error) {
			outcomes, err = repair.Run(t.Context(), []plugin.Definition{ovs.Plugin},
				[]invoke.Call{{Path: filepath.Join(q.Path, "ovs"), Env: q.Env, Stdin: stdin}})
			return err
		})
		if err != nil || len(outcomes) != 1 {
			t.Fatal(err, outcomes)
		}
		return outcomes[0]
	}
	l.sw.VSCtl("del-port", port)
	t.Setenv("PATH", t.TempDir()) // the host may have the program
	if o := run(); o.Err == nil || !strings.Contains(o.Err.Error(), "tenon-ovs is not installed") {
		t.Errorf("without the program: %+v", o)
	}
	t.Setenv("PATH", programs+":"+path)
	for _, want := range [][]string{{"port " + port + " of bridge ovs0"}, nil} {
		if o := run(); o.Err != nil || !slices.Equal(o.Restored, want) {
			t.Errorf("%+v, want %q", o, want)
		}
	}
	if after := sorted(l.sw.Rows()); after != before {
		t.Errorf("rows:\n%s", after)
	}
	l.sw.DB.Kill()
	if o := run(); !o.Failed() || !strings.Contains(o.Err.Error(), ovs.ErrUnreachable.Error()) {
		t.Errorf("without the database: %+v", o)
	}
}
