package cluster_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/cluster"
)

// contestant is a plugin with 100 reservations.
type contestant struct {
	plugin.Definition
	conf, bin string
}

func newContestant(b *testing.B, d plugin.Definition, ipam string) *contestant {
	b.Helper()
	dir := b.TempDir()
	c := &contestant{d, fmt.Sprintf(`{"cniVersion":"1.1.0","name":"net","type":"bridge","ipam":`+
		ipam+`}`, dir), filepath.Join(b.TempDir(), d.Name)}
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, c.bin)
	}
	if err != nil {
		b.Fatal(err)
	}
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
	for i := range 100 {
		c.serve(b, cni.Add, fmt.Sprint("c", i))
	}
	return c
}

func (c *contestant) env(verb cni.Command, container string) cni.Env {
	return cni.Env{Command: verb, ContainerID: container, IfName: "eth0", Netns: "/absent",
		Path: "/absent"}
}

// serve calls the plugin in this process.
func (c *contestant) serve(b *testing.B, verb cni.Command, container string) {
	_, err := c.Serve(context.Background(), c.env(verb, container), []byte(c.conf), nil)
	if err != nil {
		b.Fatal(err)
	}
}

// start calls the plugin in a process of its own.
func (c *contestant) start(b *testing.B, verb cni.Command, container string) {
	cmd := exec.Command(c.bin)
	cmd.Env, cmd.Stdin = c.env(verb, container).Environ(), strings.NewReader(c.conf)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
}

// BenchmarkAdd runs ADD from a block of this node and ADD of host-local in turn, in this process
// and as a process, with 100 reserved addresses each, and reports the ratio of the medians. A
// single allocation may take 1.5 times as long as host-local's.
func BenchmarkAdd(b *testing.B) {
	first := newContestant(b, named(b, "host-local"),
		`{"type":"host-local","dataDir":%q,"subnet":"10.1.0.0/24"}`)
	second := newContestant(b, cluster.Plugin, `{"type":"cluster","dir":%q,"pool":"pods"}`)
	for name, call := range map[string]func(*contestant, *testing.B, cni.Command, string){
		"linked": (*contestant).serve, "process": (*contestant).start,
	} {
		b.Run(name, func(b *testing.B) {
			times := map[*contestant][]time.Duration{}
			for b.Loop() {
				for _, c := range []*contestant{first, second} {
					start := time.Now()
					call(c, b, cni.Add, "bench")
					times[c] = append(times[c], time.Since(start))
					c.serve(b, cni.Del, "bench")
				}
			}
			median := func(c *contestant) float64 {
				slices.Sort(times[c])
				return float64(times[c][len(times[c])/2])
			}
			b.ReportMetric(median(first)/1e3, "µs/host-local")
			b.ReportMetric(median(second)/1e3, "µs/cluster")
			b.ReportMetric(median(second)/median(first), "ratio")
		})
	}
}
