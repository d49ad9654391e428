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

// PolicyName is the name of the [Policy] file in a configuration directory. Runtimes do not read it
// as a network.
const PolicyName = "tenon.policy"

// EveryNetwork stands for all names in a [Policy].
const EveryNetwork = "*"

// Policy lists the plugins that a network must have and the binaries that may run. It prevents an
// editor of a shared configuration from starting containers without the required plugins, or from
// running other programs as root. The zero value requires nothing and allows everything. A Policy
// must not be copied or changed once it is in use; it is safe for concurrent use.
type Policy struct {
	// RequiredPlugins are the plugin types that the chain of a network, including drop-ins, must
	// contain, by network name. The types under "*" are required in every chain. Client.Add and
	// Client.Status of package network refuse a network that lacks one; DEL, CHECK and GC are never
	// refused for that reason.
	RequiredPlugins map[string][]string `json:"requiredPlugins"`

	// Executables, unless nil, are the digests of the only binaries that may run, for any verb, by
	// plugin type: "sha256:" and 64 hexadecimal digits in lower case. A type that is not listed
	// does not run; binaries under "*" may have any type. See [Policy.CheckExecutable].
	Executables map[string][]string `json:"executables"`

	Source string `json:"-"` // path of the file; empty if there is none

	err     error // why the requirements are unknown
	digests digests
}

// ParsePolicy reads a policy: {"requiredPlugins": {"*": ["tuning"], "red": ["firewall"]},
// "executables": {"bridge": ["sha256:…"]}}. One of the two keys may be missing. An unknown key is
// an error, because a misspelt policy would require nothing. The code is [cni.CodeDecodingFailure]
// for invalid JSON, a wrong type or an unknown key, and [cni.CodeInvalidConfig] for an invalid name
// of a network or plugin and for an invalid digest.
func ParsePolicy(b []byte) (*Policy, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil {
		return nil, cni.DecodeFailure("policy", err)
	}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		if key != "requiredPlugins" && key != "executables" {
			return nil, cni.Errorf(cni.CodeDecodingFailure, "policy: unknown key %q", key).
				WithDetails("known keys are requiredPlugins and executables")
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
		return nil, cni.Errorf(cni.CodeInvalidConfig,
			"policy: executables is null; an empty object allows none")
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

// LoadPolicy reads the file [PolicyName] of a configuration directory. Without the file it returns
// nil, a policy that requires nothing. If the file cannot be read, it returns a [*FileError] and a
// policy that refuses every network, because the requirements are unknown.
func LoadPolicy(dir string) (*Policy, error) {
	return reader{}.policy(filepath.Join(dir, PolicyName))
}

func (r reader) policy(path string) (*Policy, error) {
	// a dangling link is a policy that cannot be read
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
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

// equal reports whether two policies have the same content. A policy that could not be read equals
// none.
func (p *Policy) equal(q *Policy) bool {
	return q != nil && p.err == nil && q.err == nil && p.Source == q.Source &&
		reflect.DeepEqual(p.RequiredPlugins, q.RequiredPlugins) &&
		reflect.DeepEqual(p.Executables, q.Executables)
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

// Check returns an error with [cni.CodeInvalidConfig] if the network lacks a required plugin. A
// policy that could not be read refuses all networks.
func (p *Policy) Check(n *Network) error {
	if p == nil || n.BuiltIn {
		return nil
	}
	if p.err != nil {
		return cni.DecodeFailure("the policy cannot be read, so it allows no network", p.err)
	}
	var missing []string
	for _, typ := range p.Required(n.Name) {
		if !slices.ContainsFunc(n.Plugins,
			func(c *cni.PluginConfig) bool { return c.Type == typ }) {
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
