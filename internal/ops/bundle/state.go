package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/ops/doctor"
	"github.com/tenon-cni/tenon/internal/ops/why"
	"github.com/tenon-cni/tenon/network"
)

// StateFile is the file of a bundle that holds the state of the host.
const StateFile = "state.json"

// stateVersion is the version of the format of [StateFile].
const stateVersion = 1

// ErrVersion reports a state that a later version has written.
var ErrVersion = errors.New("a later version of tenon has written this bundle")

// state is a [doctor.State] in a bundle.
type state struct {
	Version  int               `json:"version"`
	Host     *host.Host        `json:"state"`
	Records  []record          `json:"records"`
	Options  options           `json:"options"`
	Networks []doctor.Network  `json:"networks"`
	Node     doctor.Node       `json:"node"`
	CNI      doctor.CNI        `json:"cni"`
	Missing  map[string]string `json:"missing,omitzero"`
}

// options are the directories that doctor looked at.
type options struct {
	NetDir     string   `json:"netDir"`
	PluginDirs []string `json:"pluginDirs"`
	StateDir   string   `json:"stateDir"`
	CacheDir   string   `json:"cacheDir"`
	Damaged    []string `json:"damaged,omitzero"`
	OnlyPaths  bool     `json:"onlyPaths,omitzero"`
}

// record is a [network.Record] in a bundle.
type record struct {
	Attachment   cni.Attachment             `json:"attachment"`
	State        network.State              `json:"state"`
	List         json.RawMessage            `json:"list,omitzero"`
	Netns        string                     `json:"netns"`
	Args         string                     `json:"args,omitzero"`
	Capabilities map[string]json.RawMessage `json:"capabilities,omitzero"`
	HostNetns    bool                       `json:"hostNetns,omitzero"`
	Result       json.RawMessage            `json:"result,omitzero"`
	Created      time.Time                  `json:"created"`
	Done         time.Time                  `json:"done,omitzero"`
	BootID       string                     `json:"bootID"`
	Runtime      string                     `json:"runtime"`
	Source       string                     `json:"source,omitzero"`
}

// capabilities are the arguments of runtimes that the CNI conventions define. They hold no secrets.
var capabilities = map[string]bool{
	"aliases": true, "bandwidth": true, "cgroupPath": true, "deviceID": true, "dns": true,
	"infinibandGUID": true, "ipRanges": true, "ips": true, "mac": true, "portMappings": true,
}

// State returns the state of a host as JSON, without the values that a bundle must not hold, and the
// number of values that it masks.
func State(s *doctor.State, find Find) (text []byte, masked int, err error) {
	out := state{Version: stateVersion, Host: s.Host, Node: s.Node, CNI: s.CNI, Missing: s.Missing,
		Options: options{s.Options.NetDir, s.Options.PluginDirs, s.Options.StateDir, s.Options.CacheDir,
			s.Options.Damaged, s.Options.OnlyPaths}}
	for _, n := range s.Networks {
		plugins := make([]doctor.Plugin, len(n.Plugins))
		for i, p := range n.Plugins {
			conf, count := Config(p.Conf, find)
			plugins[i] = doctor.Plugin{Type: p.Type, Conf: conf}
			masked += count
		}
		out.Networks = append(out.Networks,
			doctor.Network{Name: n.Name, Source: n.Source, Plugins: plugins, Containers: n.Containers})
	}
	for _, r := range s.Records {
		rec, count, err := newRecord(r, find)
		if err != nil {
			return nil, 0, fmt.Errorf("%v: %w", r.Attachment, err)
		}
		out.Records = append(out.Records, rec)
		masked += count
	}
	text, err = json.MarshalIndent(out, "", " ")
	return text, masked, err
}

func newRecord(r network.Record, find Find) (rec record, masked int, err error) {
	rec = record{Attachment: r.Attachment, State: r.State, Netns: r.Netns, HostNetns: r.HostNetns,
		Created: r.Created, Done: r.Done, BootID: r.BootID, Runtime: r.Runtime, Source: r.Source,
		Capabilities: map[string]json.RawMessage{}}
	if r.Result != nil {
		if rec.Result, err = r.Result.Encode(cni.Newest); err != nil {
			return rec, 0, err
		}
	}
	if r.List != nil {
		conf, err := r.List.MarshalJSON()
		if err != nil {
			return rec, 0, err
		}
		rec.List, masked = Config(conf, find)
	}
	args, count := Args(r.Args.String())
	rec.Args, masked = args, masked+count
	for name, value := range r.Capabilities {
		if !capabilities[name] {
			value = json.RawMessage(`"` + Mask + `"`)
			masked++
		}
		rec.Capabilities[name] = value
	}
	return rec, masked, nil
}

// LoadState returns the state in a bundle. The checks of doctor find on it what they found on the
// host; it applies no fixes.
func LoadState(text []byte) (*doctor.State, error) {
	var in state
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, fmt.Errorf("%s: %w", StateFile, err)
	}
	switch {
	case in.Version > stateVersion || in.Host != nil && in.Host.Version > host.Version:
		return nil, ErrVersion
	case in.Host == nil || len(in.Host.Namespaces) == 0:
		return nil, fmt.Errorf("%s has no state of a host", StateFile)
	}
	s := &doctor.State{Places: &why.Places{Host: in.Host}, Networks: in.Networks, Node: in.Node,
		CNI: in.CNI, Missing: in.Missing,
		Options: doctor.Options{NetDir: in.Options.NetDir, PluginDirs: in.Options.PluginDirs,
			StateDir: in.Options.StateDir, CacheDir: in.Options.CacheDir, Damaged: in.Options.Damaged,
			OnlyPaths: in.Options.OnlyPaths}}
	for _, r := range in.Records {
		s.Records = append(s.Records, r.public())
	}
	s.Options.Records = s.Records
	return s, nil
}

// public returns the record of the library. A configuration that masked values make unusable is
// absent.
func (r record) public() network.Record {
	rec := network.Record{Attachment: r.Attachment, State: r.State, Created: r.Created, Done: r.Done,
		BootID: r.BootID, Runtime: r.Runtime, Source: r.Source}
	rec.Netns, rec.HostNetns, rec.Capabilities = r.Netns, r.HostNetns, r.Capabilities
	if result, err := cni.DecodeResult(r.Result, cni.Newest); err == nil {
		rec.Result = result
	}
	if args, err := cni.ParseArgs(r.Args); err == nil {
		rec.Args = args
	}
	if list, err := cni.ParseList(r.List); err == nil {
		rec.List = list
	}
	return rec
}
