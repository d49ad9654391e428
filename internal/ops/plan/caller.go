package plan

import (
	"context"
	"encoding/json"
	"path/filepath"
	"sync"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/repair"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
)

// daemons are plugins that leave their work to a daemon.
var daemons = map[string]string{
	"dhcp":    "asks the DHCP daemon for an address",
	"cluster": "asks the agent of the cluster for an address",
	"ovs":     "changes the database of Open vSwitch",
}

// caller runs plugins of Tenon in this process. It calls neither binaries of other programs nor
// plugins that leave their work to a daemon: their ADD returns its previous result.
type caller struct {
	w       *Inside
	plugins []plugin.Definition
	mu      sync.Mutex
	ours    map[string]bool
}

// Caller returns the caller of the plugins of an operation.
func (w *Inside) Caller(plugins []plugin.Definition) invoke.Caller {
	return &caller{w: w, plugins: w.Watched(plugins), ours: map[string]bool{}}
}

// Watched returns plugins that report their changes.
func (w *Inside) Watched(plugins []plugin.Definition) []plugin.Definition {
	list := make([]plugin.Definition, len(plugins))
	for i, d := range plugins {
		list[i] = d.Watched(func(op string) error {
			w.report(event{Operation: &Operation{Plugin: d.Name, Text: op}})
			return nil
		})
	}
	return list
}

// Call implements [invoke.Caller].
func (c *caller) Call(ctx context.Context, call invoke.Call) (invoke.Reply, error) {
	name := filepath.Base(call.Path)
	d, known := plugin.Select(c.plugins, call.Path, call.Stdin)
	known = known && c.isOurs(call.Path)
	unknown := "runs " + call.Path
	if known {
		unknown = c.unknown(d.Name, call)
	}
	switch verb := call.Env.Command; verb {
	case cni.VersionCommand:
		if known {
			unknown = ""
		}
	case cni.Add, cni.Del, cni.GC:
		network, _, _ := cni.DecodeHeader(call.Stdin)
		c.w.report(event{Operation: &Operation{
			Plugin: name, Verb: verb, Key: call.Env.Attachment(network), Unknown: unknown,
		}})
	}
	if unknown == "" {
		return invoke.Local{name: d.Handler(c)}.Call(ctx, call)
	}
	return placeholder(name, call)
}

// unknown returns why the effect of a call of a plugin of Tenon cannot be planned, "" if it can.
func (c *caller) unknown(name string, call invoke.Call) string {
	if effect, ok := daemons[name]; ok {
		return effect
	}
	asks, named := asksFirewalld(name, call.Stdin)
	if named || asks && c.w.spec.Firewalld {
		return "asks firewalld"
	}
	return ""
}

// AsksFirewalld reports whether a plugin with a configuration asks firewalld if it runs.
func AsksFirewalld(plugin string, config []byte) bool {
	asks, _ := asksFirewalld(plugin, config)
	return asks
}

// asksFirewalld also reports whether the configuration names firewalld as the backend.
func asksFirewalld(plugin string, config []byte) (asks, named bool) {
	if plugin != "firewall" {
		return false, false
	}
	var conf struct {
		Backend string `json:"backend"`
	}
	_ = json.Unmarshal(config, &conf) // the plugin reports it
	return conf.Backend != "nftables" && conf.Backend != "iptables", conf.Backend == "firewalld"
}

func (c *caller) isOurs(path string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	ours, known := c.ours[path]
	if !known {
		ours = repair.IsOurs(path)
		c.ours[path] = ours
	}
	return ours
}

// Unknown stands for the address of an IPAM plugin that a plan does not ask. It is from a range for
// documentation (RFC 5737).
const Unknown = "192.0.2.231"

// placeholder answers a call that is not made.
func placeholder(name string, call invoke.Call) (invoke.Reply, error) {
	switch call.Env.Command {
	case cni.VersionCommand:
		r := cni.VersionReply{CNIVersion: cni.Newest.String()}
		for _, v := range cni.Versions() {
			r.Supported = append(r.Supported, v.String())
		}
		return invoke.Reply{Stdout: r.Encode()}, nil
	case cni.Del, cni.GC:
		return invoke.Reply{}, nil
	case cni.Add:
	default:
		return invoke.Reply{}, cni.Errorf(cni.CodeNotAvailable, "a plan does not run %s", call.Path)
	}
	var conf struct {
		CNIVersion string          `json:"cniVersion"`
		Prev       json.RawMessage `json:"prevResult"`
		IPAM       struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	if err := json.Unmarshal(call.Stdin, &conf); err != nil {
		return invoke.Reply{}, cni.Errorf(cni.CodeDecodingFailure, "%s: %w", name, err)
	}
	if conf.IPAM.Type == name {
		return invoke.Reply{Stdout: unknownAddress(conf.CNIVersion)}, nil
	}
	if len(conf.Prev) > 0 {
		return invoke.Reply{Stdout: conf.Prev}, nil
	}
	return invoke.Reply{Stdout: []byte(`{"cniVersion":"` + conf.CNIVersion + `"}`)}, nil
}

func unknownAddress(version string) []byte {
	v, err := cni.ParseVersion(version)
	if err == nil && v < cni.V030 {
		return []byte(`{"cniVersion":"` + version + `","ip4":{"ip":"` + Unknown + `/24"}}`)
	}
	family := ""
	if err == nil && v < cni.V100 {
		family = `"version":"4",`
	}
	address := family + `"address":"` + Unknown + `/24"`
	return []byte(`{"cniVersion":"` + version + `","ips":[{` + address + `}]}`)
}
