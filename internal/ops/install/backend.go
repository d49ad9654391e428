package install

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/firewalld"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/plugins/all"
)

// The backends that a handover distinguishes. All releases of the upstream plugins support
// iptables.
const iptables, nftables = "iptables", "nftables"

// backendKeys are the configuration keys that choose the backend for rules on the host.
var backendKeys = map[string]string{
	"bridge":   "ipMasqBackend",
	"ptp":      "ipMasqBackend",
	"portmap":  "backend",
	"firewall": "backend",
}

// handOverObstacles returns the reasons why the upstream plugins could not remove an attachment:
// they lack the plugin, or its configuration requires nftables, where they use their own tables.
func handOverObstacles(a inspect.Attachment) (why []string) {
	for _, p := range a.List.Plugins {
		if _, separate := all.FindProgram(p.Type); separate {
			why = append(why, "the upstream plugins have no "+p.Type)
			continue
		}
		key := backendKeys[p.Type]
		conf, err := object(p)
		if key == "" || err != nil ||
			p.Type == "firewall" { // upstream firewall has no such backend and ignores the name
			continue
		}
		masquerades := string(conf["ipMasq"]) == "true"
		if string(conf[key]) == `"`+nftables+`"` && (p.Type == "portmap" || masquerades) {
			why = append(
				why,
				fmt.Sprintf("%s has %q: %q, and upstream %s would search its own tables",
					p.Type, key, nftables, p.Type),
			)
		}
	}
	return why
}

func object(p *cni.PluginConfig) (conf map[string]json.RawMessage, err error) {
	b, err := p.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return conf, json.Unmarshal(b, &conf)
}

// calls returns the calls of CHECK for an attachment, with backend iptables if upstream chooses it.
func calls(ctx context.Context, r *network.Record) ([]invoke.Call, error) {
	var list []invoke.Call
	for i, p := range r.List.Plugins {
		stdin, err := r.List.Request(
			cni.Check,
			i,
			cni.RequestData{Capabilities: r.Capabilities, PrevResult: r.Result},
		)
		if err != nil {
			return nil, fmt.Errorf("request to %s: %w", p.Type, err)
		}
		if stdin, err = asUpstream(ctx, p.Type, stdin); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Type, err)
		}
		list = append(list, invoke.Call{
			Path:  p.Type, // the built-in plugin, not an installed one
			Stdin: stdin,
			Env: cni.Env{
				Command: cni.Check, ContainerID: r.Attachment.Container, IfName: r.Attachment.IfName, Netns: r.Netns, Args: r.Args.String(),
			},
		})
	}
	return list, nil
}

// asUpstream chooses the backend that the upstream plugin of a type would choose.
func asUpstream(ctx context.Context, typ string, stdin []byte) ([]byte, error) {
	key := backendKeys[typ]
	if key == "" {
		return stdin, nil
	}
	var conf map[string]json.RawMessage
	if err := json.Unmarshal(stdin, &conf); err != nil {
		return nil, err
	}
	var chosen string
	_ = json.Unmarshal(conf[key], &chosen) // ADD has refused other types
	if slices.Contains([]string{iptables, "firewalld"}, chosen) ||
		typ == "firewall" && firewalldRuns(ctx) {
		return stdin, nil
	}
	conf[key] = json.RawMessage(`"` + iptables + `"`)
	return json.Marshal(conf)
}

// firewalldRuns reports whether upstream firewall would choose firewalld.
func firewalldRuns(ctx context.Context) bool {
	c, err := firewalld.Open(ctx)
	if err != nil {
		return false
	}
	defer c.Close()
	runs, err := c.Running(ctx)
	return err == nil && runs
}
