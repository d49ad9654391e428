package plugin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/journal"
)

// journal starts the record of a call that a runtime other than package network makes. The caller
// calls the returned function with the output and the error. dir is the value of [journal.Env]. There
// is no record if the directory does not exist, nor for STATUS, which runtimes repeat every few
// seconds.
func (d Definition) journal(dir string, env cni.Env, stdin []byte) func(out []byte, err error) {
	j := journal.Journal{Dir: cmp.Or(dir, journal.DefaultDir)}
	switch env.Command {
	case cni.Add, cni.Del, cni.Check, cni.GC:
	default:
		return func([]byte, error) {}
	}
	if dir == journal.Off || !j.Exists() {
		return func([]byte, error) {}
	}
	start := time.Now()
	return func(out []byte, err error) {
		r := d.record(env, stdin, out)
		r.Duration = time.Since(start)
		r.Plugins[0].Duration = r.Duration
		r.SetError(err, d.Name)
		r.Plugins[0].Code = r.Code
		_ = j.Append(r) // no call fails for want of a journal
	}
}

// record describes a call that ends now.
func (d Definition) record(env cni.Env, stdin, out []byte) journal.Record {
	r := journal.Record{
		Kind: journal.Plugin, Verb: env.Command, Container: env.ContainerID, IfName: env.IfName,
		Netns: env.Netns, Plugins: []journal.Call{{Type: d.Name}}, Runtime: journal.Parent(), PID: os.Getpid(),
	}
	r.Stamp()
	name, version, _ := cni.DecodeHeader(stdin) // the call has reported mistakes
	r.Network = name
	if env.Command == cni.GC {
		r.Keep = inUse(stdin)
		return r
	}
	if env.Command != cni.Add || bytes.Contains(stdin, []byte("portMappings")) {
		var request struct {
			RuntimeConfig struct {
				PortMappings json.RawMessage `json:"portMappings"`
			} `json:"runtimeConfig"`
			PrevResult json.RawMessage `json:"prevResult"`
		}
		_ = json.Unmarshal(stdin, &request)
		r.SetPorts(request.RuntimeConfig.PortMappings)
		if env.Command != cni.Add {
			out = request.PrevResult
		}
	}
	if v, err := cni.ParseVersion(version); err == nil && len(out) > 0 {
		if result, err := cni.DecodeResult(out, v); err == nil {
			r.SetResult(result)
		}
	}
	return r
}

// inUse returns the attachments that GC keeps, nil if they are not known.
func inUse(stdin []byte) []string {
	valid, err := cni.DecodeValidAttachments(stdin)
	if err != nil {
		return nil
	}
	keep := make([]string, len(valid))
	for i, v := range valid {
		keep[i] = v.ContainerID + "/" + v.IfName
	}
	return keep
}
