package plugintest

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	rules "github.com/tenon-cni/tenon/internal/repair"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
)

// repair flushes the ruleset and lets the plugin restore its rules, and repeats the repair when
// nothing is missing: the state must be as before. For a container that no longer exists it must
// restore nothing.
func repair(_ *testing.T, r *Runtime) {
	testnet.Require(r.t, testnet.Kernel(kernel.FeatureNFT), testnet.Tool("nft"))
	r.Add("a")
	r.Add("b")
	before := r.state()
	for _, damage := range []string{"flush ruleset", "list ruleset"} {
		r.Host.Command("nft", damage)
		for range 2 {
			for _, container := range []string{"a", "b"} {
				if err := r.Repair(container); err != nil {
					r.t.Errorf("repair of %s after nft %s: %v", container, damage, err)
				}
			}
		}
		r.unchanged(before)
	}
	gone := r.Request(cni.Check, "b")
	r.Del("b")
	r.Remove("b")
	without := r.state()
	if err := r.repair(gone); err != nil && cni.CodeOf(err) != cni.CodeUnknownContainer {
		r.t.Errorf("repair of a container that no longer exists: %v", err)
	}
	r.unchanged(without)
	r.Del("a")
}

// Repair calls [plugin.Definition.Repair] for a container that [Runtime.Add] has attached. It does
// nothing for a plugin that does not implement [plugin.Repairer].
func (r *Runtime) Repair(container string) error {
	r.t.Helper()
	return r.repair(r.Request(cni.Check, container))
}

func (r *Runtime) repair(q Request) error {
	call := invoke.Call{Path: filepath.Join("/nowhere", r.suite.Plugin.Name), Env: q.Env,
		Stdin: r.marshal(q.Conf)}
	return r.Host.Run(func() error {
		outcomes, err := rules.Run(r.t.Context(), []plugin.Definition{r.suite.Plugin},
			[]invoke.Call{call})
		return errors.Join(outcomes[0].Err, err)
	})
}
