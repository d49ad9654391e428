package cluster_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/cluster"
)

// BenchmarkAdd runs ADD from a block of this node beside ADD of host-local, in this process and as
// a process. 100 addresses are reserved in a /24 or in two blocks of a /26. A single allocation may
// take 1.5 times as long as host-local's.
func BenchmarkAdd(b *testing.B) {
	for _, d := range []struct {
		plugin.Definition
		ipam string
	}{
		{named(b, "host-local"), `{"type":"host-local","dataDir":%q,"subnet":"10.1.0.0/24"}`},
		{cluster.Plugin, `{"type":"cluster","dir":%q,"pool":"pods"}`},
	} {
		dir := b.TempDir()
		conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"net","type":"bridge","ipam":`+d.ipam+`}`,
			dir)
		if d.Name == "cluster" {
			a := newAgent(dir)
			for range 2 {
				r := a.answer(b.Context(), &agentcall.Request{Verb: agentcall.Grow, Pool: "pods",
					Have: []string{"nonce0"}})
				if r.Error != nil {
					b.Fatal(r.Error)
				}
			}
		}
		call := func(verb cni.Command, container string) cni.Env {
			return cni.Env{Command: verb, ContainerID: container, IfName: "eth0", Netns: "/absent",
				Path: dir}
		}
		serve := func(verb cni.Command, container string) {
			_, err := d.Serve(context.Background(), call(verb, container), []byte(conf), nil)
			if err != nil {
				b.Fatal(err)
			}
		}
		bin := filepath.Join(b.TempDir(), d.Name)
		self, err := os.Executable()
		if err == nil {
			err = os.Symlink(self, bin)
		}
		if err != nil {
			b.Fatal(err)
		}
		start := func(verb cni.Command, container string) {
			cmd := exec.Command(bin)
			cmd.Env, cmd.Stdin = call(verb, container).Environ(), strings.NewReader(conf)
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
		}
		for i := range 100 {
			serve(cni.Add, fmt.Sprint("c", i))
		}
		for name, run := range map[string]func(cni.Command, string){"linked": serve, "process": start} {
			b.Run(name+"/"+d.Name, func(b *testing.B) {
				for b.Loop() {
					run(cni.Add, "bench")
					b.StopTimer()
					serve(cni.Del, "bench")
					b.StartTimer()
				}
			})
		}
	}
}
