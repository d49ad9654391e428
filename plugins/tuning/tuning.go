package tuning

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of the plugin. Its Args replace the Args of [plugin.Common].
type Config struct {
	plugin.Common
	Settings

	// DataDir is the directory where ADD saves the values that DEL restores.
	DataDir string `json:"dataDir" default:"/run/cni/tuning"`

	// Args are the arguments of the runtime. They take precedence over the configuration.
	Args struct {
		// CNI are the arguments for CNI plugins.
		CNI Settings `json:"cni"`
	} `json:"args"`

	allowList string // file with the sysctls that the administrator allows

	// Derived from the call by [Config.Validate].
	settings settings
	wanted   Attributes
}

const defaultDataDir = "/run/cni/tuning"

// Settings are the settings that the plugin changes.
type Settings struct {
	// Sysctl holds settings below net that the container's network namespace has for itself,
	// written in their order. Keys contain dots or slashes; IFNAME stands for the container's
	// interface. Duplicate keys, and keys that act on the whole node, are refused. Values are up to
	// 4095 letters, digits, blanks, tabs and ",.:_-", written at once. Sysctls of args are merged
	// key by key.
	Sysctl Sysctls `json:"sysctl"`

	Attributes
}

// Plugin is the definition of tuning.
var Plugin = define("/etc/cni/tuning/allowlist.conf")

func define(allowList string) plugin.Definition {
	return chained.Define(plugin.Info{
		Name:         "tuning",
		About:        "changes sysctls of a container, and MAC, MTU, modes and queue length of its interface",
		Role:         plugin.RoleChained,
		Repeatable:   true,
		Capabilities: []string{"mac"},
		Args:         []string{"MAC"},
		Doc:          doc,
	}, chained.Traits{
		Inside: true, NoPrev: chained.NoPrev{Add: "Required prevResult missing"},
	}, func() chained.Decorator {
		return &Config{allowList: allowList}
	})
}

// Validate refuses values that no container can have, and combines the requests of configuration
// and arguments.
func (c *Config) Validate(call *plugin.Call) error {
	args := c.Args.CNI
	c.wanted = args.Attributes.or(c.Attributes)
	// As in upstream tuning, and unlike other plugins, args take precedence over the capability.
	c.wanted.MAC = cmp.Or(args.MAC, call.Asked.MAC, c.MAC)
	if err := c.wanted.clean(); err != nil {
		return err
	}
	s, err := c.Sysctl.resolve(call.IfName)
	if err != nil {
		return err
	}
	over, err := args.Sysctl.resolve(call.IfName)
	c.settings = s.merge(over)
	return err
}

// Status reports whether the list of allowed settings can be read and contains the configured ones.
func (c *Config) Status(context.Context, *plugin.Call) error {
	if err := c.allow(c.settings); err != nil {
		return cni.Errorf(cni.CodeNotAvailable, "%w", err)
	}
	return nil
}

// Apply saves the current values and changes them.
func (c *Config) Apply(_ context.Context, s *chained.Session, r *cni.Result) error {
	if err := c.allow(c.settings); err != nil {
		return err
	}
	var link kernel.Link
	var err error
	if !c.wanted.none() {
		if link, err = s.Sandbox.Links.ByName(s.IfName); err != nil {
			return cni.Rephrase(err, "failed to get %q: Link not found", s.IfName)
		}
	}
	if err := c.remember(s, c.wanted.of(link)); err != nil {
		return cni.Errorf(cni.CodeIOFailure, "dataDir: %w", err)
	}
	if err := set(s, c.settings); err != nil {
		return err
	}
	for _, d := range c.wanted.differ(s.Sandbox, link) {
		if err := d.set(); err != nil {
			return err
		}
	}
	c.wanted.show(s, r)
	return nil
}

// set writes the settings in the container. If the kernel refuses a value, the configuration is
// invalid.
func set(s *chained.Session, settings settings) error {
	if len(settings) == 0 {
		return nil
	}
	err := s.Sandbox.Sysctl.SetAll(settings.files())
	if !errors.As(err, new(*fs.PathError)) {
		return err
	}
	refused := cni.Errorf(cni.CodeInvalidConfig, "%w", err)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return refused.WithDetails("a network namespace has no such setting of its own: " +
			"it belongs to the host, or its kernel module is not loaded")
	}
	return refused
}

// Verify compares the requested values with the current ones, and ignores all others.
func (c *Config) Verify(_ context.Context, s *chained.Session) error {
	for _, want := range c.settings.files() {
		have, err := s.Sandbox.Sysctl.Read(want.Key)
		if errors.Is(err, fs.ErrPermission) { // write-only
			continue
		}
		if err != nil {
			return err
		}
		if !want.Is(have) {
			err := fmt.Errorf("sysctl %s: expected %q, found %q", want.Key, want.Value, have)
			return cni.Rephrase(err,
				"Error: Tuning configured value of /proc/sys/%s is %s, current value is %s",
				want.Key, want.Value, have)
		}
	}
	link, err := s.Sandbox.Links.ByName(s.IfName)
	if errors.Is(err, kernel.ErrNoLink) {
		return cni.Rephrase(err, "Cannot find container link %s", s.IfName)
	}
	if err != nil {
		return err
	}
	for _, d := range c.wanted.differ(s.Sandbox, link) {
		err := fmt.Errorf("interface %s: expected %s %s, found %s", link.Name, d.name,
			d.want, d.have)
		return cni.Rephrase(err, d.text, link.Name, d.want, d.have)
	}
	return nil
}
