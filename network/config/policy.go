package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
)

// PolicyName is the name of the file with the [Policy] in a configuration directory. Runtimes do not take it for a network.
const PolicyName = "tenon.policy"

// EveryNetwork stands for all names in a [Policy].
const EveryNetwork = "*"

// Policy says which plugins a network has to have, and which executables may be run at all, so that nobody who edits a
// shared configuration can have containers start without the former, or root run anything else. The zero value requires
// nothing and allows everything. A Policy must not be copied or changed once it is in use, and may be used concurrently.
type Policy struct {
	// RequiredPlugins are the types that have to be in the chain of a network, drop-ins included, by its name. Those under
	// "*" have to be in every chain. Client.Add and Client.Status of package network refuse a network that lacks one; DEL, CHECK and GC are
	// never refused for that.
	RequiredPlugins map[string][]string `json:"requiredPlugins"`

	// Executables, unless nil, are the digests of the only executables that are run, on any verb, by the type of the plugin:
	// "sha256:" and 64 hexadecimal digits in lower case. A type that is not listed is not run; those under "*" may be of any
	// type. See [Policy.CheckExecutable].
	Executables map[string][]string `json:"executables"`

	Source string `json:"-"` // path of the file; empty if there is none

	err     error // why it is not known what is required
	digests digests
}

// ParsePolicy reads a policy: {"requiredPlugins": {"*": ["tuning"], "red": ["firewall"]}, "executables": {"bridge":
// ["sha256:…"]}}; one of the two may be missing. An unknown key, like every other mistake, is an error, lest a misspelt
// policy requires nothing: [cni.CodeDecodingFailure] for what is not JSON or has a wrong type or an unknown key,
// [cni.CodeInvalidConfig] for names that no network and no plugin can have, and for what is no digest.
func ParsePolicy(b []byte) (*Policy, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil {
		return nil, cni.DecodeFailure("policy", err)
	}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		if key != "requiredPlugins" && key != "executables" {
			return nil, cni.Errorf(cni.CodeDecodingFailure, "policy: key %q is unknown", key).WithDetails("known are requiredPlugins and executables")
		}
	}
	p := &Policy{}
	if err := json.Unmarshal(b, p); err != nil {
		return nil, cni.DecodeFailure("policy", err)
	}
	if p.RequiredPlugins == nil && (p.Executables == nil || members["requiredPlugins"] != nil) {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "policy: requiredPlugins is missing")
	}
	if p.Executables == nil && members["executables"] != nil {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "policy: executables is null; an empty object allows none")
	}
	if err := p.validateRequired(); err != nil {
		return nil, err
	}
	if err := p.validateExecutables(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Policy) validateRequired() error {
	for name, types := range p.RequiredPlugins {
		if err := cni.ValidateNetworkName(name); name != EveryNetwork && err != nil {
			return cni.DecodeFailure("policy: requiredPlugins", err)
		}
		for _, typ := range types {
			if err := cni.ValidatePluginType(typ); err != nil {
				return cni.DecodeFailure("policy: requiredPlugins of "+name, err)
			}
		}
	}
	return nil
}

// LoadPolicy reads the file [PolicyName] of a configuration directory; without one the policy is nil, which requires
// nothing. With an error, which is a [*FileError], comes a policy that refuses every network: who cannot tell what is
// required should not go on as if nothing were.
func LoadPolicy(dir string) (*Policy, error) { return reader{}.policy(filepath.Join(dir, PolicyName)) }

func (r reader) policy(path string) (*Policy, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) { // a link to nothing is a policy that cannot be read
		return nil, nil
	}
	p, err := r.readPolicy(path)
	if err != nil {
		err = fileError(path, r[path].content, err)
		return &Policy{Source: path, err: err}, err
	}
	p.Source = path
	return p, nil
}

func (r reader) readPolicy(path string) (*Policy, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, cni.Errorf(cni.CodeIOFailure, "not a file")
	}
	b, err := r.read(path)
	if err != nil {
		return nil, err
	}
	return ParsePolicy(b)
}

// equal reports whether two policies say the same. One that could not be read is equal to none.
func (p *Policy) equal(q *Policy) bool {
	return q != nil && p.err == nil && q.err == nil && p.Source == q.Source &&
		reflect.DeepEqual(p.RequiredPlugins, q.RequiredPlugins) && reflect.DeepEqual(p.Executables, q.Executables)
}

// Required returns the types that the policy requires of a network, sorted.
func (p *Policy) Required(network string) []string {
	if p == nil {
		return nil
	}
	all := slices.Concat(p.RequiredPlugins[EveryNetwork], p.RequiredPlugins[network])
	slices.Sort(all)
	return slices.Compact(all)
}

// Check refuses a network that lacks a required plugin with [cni.CodeInvalidConfig]. A policy that could not be read
// refuses all.
func (p *Policy) Check(n *Network) error {
	if p == nil || n.BuiltIn {
		return nil
	}
	if p.err != nil {
		return cni.DecodeFailure("the policy cannot be read, so no network is known to be allowed", p.err)
	}
	var missing []string
	for _, typ := range p.Required(n.Name) {
		if !slices.ContainsFunc(n.Plugins, func(c *cni.PluginConfig) bool { return c.Type == typ }) {
			missing = append(missing, typ)
		}
	}
	if missing == nil {
		return nil
	}
	return cni.Errorf(cni.CodeInvalidConfig, "network %s lacks the plugin %s, which %s requires",
		n.Name, strings.Join(missing, " and "), p.source()).
		WithDetails(fmt.Sprintf("its plugins are: %s", strings.Join(n.Types(), ", ")))
}
