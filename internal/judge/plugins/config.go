package plugins

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// Config describes the use of a plugin. The judge has one for each well-known plugin; others
// are read from files with the same JSON.
type Config struct {
	Role Role `json:"role"`
	// Name distinguishes the configurations of one role: "vlan".
	Name string `json:"name,omitzero"`
	// Like is the name of a well-known plugin with the same options and effects. It adds the cases for
	// that plugin.
	Like string `json:"like,omitzero"`
	// Oldest is the oldest version of the specification in which the plugin can work with this
	// configuration: results without addresses need 0.3.0.
	Oldest string `json:"oldest,omitzero"`
	// Network is the object of the plugin in a network configuration, without cniVersion, name and
	// type. In its strings and in strings of Capabilities, "{n}" is replaced by the number of the container,
	// and a string like "{n+8000}" by the sum, as a number.
	Network map[string]any `json:"network"`
	// Containers contains, for each container from the first one on, keys that replace keys of the
	// request: for plugins of which two containers cannot make the same request.
	Containers []map[string]any `json:"containers,omitzero"`
	// IfName is the interface that the plugin concerns, if it can be no other (CNI_IFNAME). "lo" exists in
	// all containers.
	IfName string `json:"ifName,omitzero"`
	// ScriptedIPAM sets the key ipam to a plugin of the judge, which records its calls and gives the
	// container N the addresses 10.77.0.N+1/24 and fd77::N+1/64. The interface ethM adds 100*M.
	ScriptedIPAM bool `json:"scriptedIPAM,omitzero"`
	// Needs is a text for sh(1) that fails if the host lacks a feature which the plugin needs, for
	// example because the kernel does not know the kind of its links.
	Needs string `json:"needs,omitzero"`
	// Before is a text for sh(1) that prepares the host, for example a parent interface. $containers
	// is the number of containers.
	Before string `json:"before,omitzero"`
	// Container is a text for sh(1) that prepares a container after its creation: it creates the
	// interface on which an IPAM plugin works. $container is the name of the namespace for ip -n,
	// $n the number of the container.
	Container string `json:"container,omitzero"`
	// Gone is a text for sh(1) that removes what Before has prepared. DEL must succeed nevertheless.
	Gone string `json:"gone,omitzero"`
	// Capabilities are the capability arguments of each attachment (runtimeConfig).
	Capabilities map[string]any `json:"capabilities,omitzero"`
	Args         string         `json:"args,omitzero"` // CNI_ARGS
	// Drifts are changes that CHECK must notice.
	Drifts []Drift `json:"drifts,omitzero"`
	// Changed contains keys that replace keys of Network in DEL, with values that ADD would accept:
	// another bridge, no masquerading. DEL must nevertheless remove everything of the attachment.
	Changed map[string]any `json:"changed,omitzero"`
	// Exhausted contains keys that replace keys of Network, so that no second container gets an
	// address: a pool of one address. The judge needs it for STATUS.
	Exhausted map[string]any `json:"exhausted,omitzero"`
	// TwoAddresses contains keys that replace keys of Network, so that ADD returns two addresses of
	// one family.
	TwoAddresses map[string]any `json:"twoAddresses,omitzero"`
	// Requests are three addresses that an IPAM plugin assigns if they are requested in CNI_ARGS, args
	// or runtimeConfig, if the keys of Requestable replace keys of Network.
	Requests    []string       `json:"requests,omitzero"`
	Requestable map[string]any `json:"requestable,omitzero"`
	// Daemon is a text for sh(1) that the judge executes in the background, after Before: a daemon
	// that the plugin needs. The judge waits until Ready, another text for sh(1), succeeds. In these
	// texts and in Needs, $plugin is the path of the plugin in the cell.
	Daemon string `json:"daemon,omitzero"`
	Ready  string `json:"ready,omitzero"`
	// Jobs is the number of scenarios at the same time, if the caller sets none: for a daemon that waits
	// much. Zero stands for the number of processors.
	Jobs int `json:"jobs,omitzero"`
	// Programs are further programs that the plugin or its daemon needs. In the cell, they are in
	// the directory of the plugin. The judge looks for a name without slash beside the plugin, then
	// in PATH.
	Programs []string `json:"programs,omitzero"`
}

// locate returns the configuration with the paths of its programs. It leaves out programs that do
// not exist, so that Needs or the daemon fails with the reason.
func (c Config) locate(plugin string) Config {
	var found []string
	for _, name := range c.Programs {
		candidates := []string{name}
		if !strings.Contains(name, "/") {
			candidates = []string{filepath.Join(filepath.Dir(plugin), name), name}
		}
		for _, path := range candidates {
			if path, err := exec.LookPath(path); err == nil {
				found = append(found, path)
				break
			}
		}
	}
	c.Programs = found
	return c
}

// lacks returns why the host cannot run the plugin with a configuration, "" if it can.
func (s *Subject) lacks(ctx context.Context, c *Config, play trial.Player) (string, error) {
	if c.Needs == "" && c.Daemon == "" {
		return "", nil
	}
	x := &script.Scenario{Name: "needs", Programs: append([]string{s.Path}, c.Programs...)}
	if c.Needs != "" {
		x.Steps = []script.Step{{Shell: s.commands(c.Needs), Try: true, Quiet: true}}
	}
	r, err := play(ctx, &trial.Trial{Case: "needs/" + c.Name, Role: string(c.Role), Scenario: x})
	if err != nil {
		return "", err
	}
	if r.Broken != "" {
		return "", errors.New(r.Broken)
	}
	if c.Needs != "" && r.Events[0].Status != 0 {
		return "the host lacks a feature: " + strings.TrimSpace(r.Events[0].Output), nil
	}
	if c.Daemon == "" {
		return "", nil
	}
	setup := &Setup{Subject: s, Config: c, Role: c.Role, Version: slices.Max(s.Versions)}
	r, err = play(ctx, &trial.Trial{Case: "daemon/" + c.Name, Role: string(c.Role), Scenario: setup.Scenario(1)})
	if err != nil || r.Broken == "" {
		return "", err
	}
	return "the daemon does not start: " + strings.TrimSpace(r.Broken), nil
}

var placeholder = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\{n\+(\d+)\}$`)
})

// number returns a copy of a JSON value with the placeholders of container n replaced.
func number(value any, n int) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, member := range v {
			out[k] = number(member, n)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = number(v[i], n)
		}
		return out
	case string:
		if m := placeholder().FindStringSubmatch(v); m != nil {
			base, _ := strconv.Atoi(m[1]) // digits; an overflow gives the greatest number
			return base + n
		}
		return strings.ReplaceAll(v, "{n}", strconv.Itoa(n))
	}
	return value
}

// Drift is a change to an attachment behind the plugin's back.
type Drift struct {
	Name string `json:"name"`
	// Shell makes the change. $container is the name of the namespace for ip -n, $ifname the
	// interface, $peer its peer or parent on the host.
	Shell string `json:"shell"`
	// Optional leaves it to CHECK whether it notices the change. The report says what it does.
	Optional bool `json:"optional,omitzero"`
}

// ReadConfigs reads a file with a Config, or with an array of them. Unknown keys are errors.
func ReadConfigs(path string) ([]Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if b = bytes.TrimSpace(b); !bytes.HasPrefix(b, []byte("[")) {
		b = slices.Concat([]byte("["), b, []byte("]"))
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	d.UseNumber()
	var list []Config
	if err := d.Decode(&list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no configuration", path)
	}
	for _, c := range list {
		if err := c.validate(); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return list, nil
}

func (c *Config) validate() error {
	if _, err := cni.ParseVersion(c.Oldest); c.Oldest != "" && err != nil {
		return fmt.Errorf("oldest: %w", err)
	}
	return c.Role.validate()
}
