package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tenon-cni/tenon/internal/cluster/agentcall"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/all"
	"github.com/tenon-cni/tenon/plugins/cluster"
)

func TestMain(m *testing.M) {
	if control := os.Getenv(agentsAt); control != "" {
		fmt.Fprintln(os.Stderr, serveAgents(control))
		os.Exit(1)
	}
	plugintest.Main(m, all.Plugins...)
}

// suite returns the suite with agents that a control socket starts.
func suite(t testing.TB, control string) plugintest.Suite {
	var examples []plugin.Example
	for _, e := range cluster.Plugin.Examples() {
		if e.Name != "Sticky addresses and another state directory" { // see TestSticky
			examples = append(examples, e)
		}
	}
	return plugintest.Suite{
		Plugin:   cluster.Plugin,
		Examples: examples,
		Rewrite: func(conf map[string]any, dir string) {
			ipam, ok := conf["ipam"].(map[string]any)
			if !ok {
				return
			}
			_, err := agentcall.Call(context.Background(), control, agentcall.Request{Name: dir})
			if err != nil {
				t.Error(err)
			}
			ipam["dir"], ipam["socket"] = dir, socketOf(control, dir)
		},
		Drifts: []plugintest.Drift{{Name: "reservation deleted",
			Break: func(t testing.TB, a plugintest.Attached) string {
				files, err := filepath.Glob(filepath.Join(a.Dir, "addresses", "*", "*"))
				if err != nil {
					t.Fatal(err)
				}
				for _, ip := range a.Result.IPs {
					for _, path := range files {
						if filepath.Base(path) == ip.Address.Addr().String() {
							if err := os.Remove(path); err != nil {
								t.Fatal(err)
							}
						}
					}
				}
				return "Failed to find address added by container"
			}}},
	}
}

// The contracts of every plugin, with an agent that gives the node all blocks.
func TestSuite(t *testing.T) { plugintest.Run(t, suite(t, startAgents(t))) }

func FuzzServe(f *testing.F) { plugintest.Fuzz(f, suite(f, startAgents(f))) }
