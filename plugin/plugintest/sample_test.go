package plugintest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/plugin"
)

// sample is an interface plugin that is correct except for its planted bugs.
type sample struct {
	*attach.Plugin
	conf *config
}

// bugs lists names of bugs, separated by commas.
type bugs string

func (b bugs) has(bug string) bool { return slices.Contains(strings.Split(string(b), ","), bug) }

type config struct {
	attach.Common
	MTU any `json:"mtu"`

	bugs
}

const doc = "### Example\n```json\n" + `{
  "cniVersion": "1.1.0", "name": "net", "type": "sample", "mtu": 1400,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/16"}]]}
}` + "\n```\n"

func define(b bugs) plugin.Definition {
	doc := doc
	if b.has("examples have no addresses") {
		doc = strings.Replace(doc, `"ipam"`, `"noipam"`, 1)
	}
	return plugin.DefineFlow(plugin.Info{Name: "sample", Doc: doc},
		func() (plugin.Configuration, plugin.Plugin) {
			c := &config{bugs: b}
			return c, sample{&attach.Plugin{Maker: c}, c}
		})
}

func (m *config) Make(_ context.Context, s *attach.Session) ([]cni.Interface, error) {
	sandbox := s.Sandbox
	if m.has("link stays when ADD fails") {
		var err error
		if sandbox, err = kernel.Begin(context.Background()).Open(s.Sandbox.NS); err != nil {
			return nil, err
		}
		defer sandbox.Close()
	}
	inside, port, err := sandbox.Links.AddVeth(kernel.Veth{Name: s.IfName, Host: s.Host,
		HostName: s.HostName(), Alias: s.Tag})
	if err != nil {
		return nil, err
	}
	err = s.Host.Links.Up(port)
	if m.has("error is swallowed") {
		err = nil
	}
	return []cni.Interface{{Name: port.Name},
		{Name: inside.Name, MAC: inside.MAC.String(), Sandbox: s.Netns}}, err
}

func (*config) Verify(context.Context, *attach.Session, kernel.Link) error { return nil }

func (m *config) Validate(c *plugin.Call) error {
	if m.has("unknown key is refused without its name") &&
		strings.Contains(string(c.Stdin()), "unknown") {
		return cni.Errorf(cni.CodeUnsupportedField, "unknown key")
	}
	if _, ok := m.MTU.(float64); ok {
		return nil
	}
	err := fmt.Errorf("mtu: %v is not a number", m.MTU)
	if m.has("error has a reserved code") {
		return cni.Errorf(42, "%w", err)
	}
	if m.has("ADD has a code of STATUS") {
		return cni.Errorf(cni.CodeNotAvailable, "%w", err)
	}
	if m.has("wrong configuration has no code") {
		return err
	}
	return cni.Errorf(cni.CodeInvalidConfig, "%w", err)
}

func (s sample) Add(ctx context.Context, c *plugin.Call) (*cni.Result, error) {
	if s.conf.has("note stays when ADD is killed") {
		remove, err := note(c)
		if err != nil {
			return nil, err
		}
		defer remove()
	}
	if s.conf.has("SIGTERM ends ADD") {
		signal.Reset(syscall.SIGTERM)
	}
	r, err := s.Plugin.Add(ctx, c)
	if err != nil && s.conf.has("second ADD succeeds") {
		return &cni.Result{}, nil
	}
	if err != nil {
		return nil, err
	}
	if s.conf.has("descriptor stays open") {
		if _, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0); err != nil {
			return nil, err
		}
	}
	if s.conf.has("result has another sandbox") {
		r.Interfaces[1].Sandbox = "/another"
	}
	if s.conf.has("address is given twice") {
		r.IPs[0].Address = netip.MustParsePrefix("10.1.0.7/16")
	}
	if s.conf.has("result contains the program's name") {
		r.DNS.Domain = os.Args[0]
	}
	return r, nil
}

// note creates a file next to the reservations for the duration of a call.
func note(c *plugin.Call) (remove func(), err error) {
	var conf struct{ IPAM struct{ DataDir string } }
	if err := json.Unmarshal(c.Stdin(), &conf); err != nil {
		return nil, err
	}
	name := filepath.Join(conf.IPAM.DataDir, "note")
	if err := os.WriteFile(name, []byte("in ADD"), 0o600); err != nil {
		return nil, err
	}
	return func() { _ = os.Remove(name) }, nil
}

func (s sample) Del(ctx context.Context, c *plugin.Call) error {
	switch _, number := s.conf.MTU.(float64); {
	case s.conf.has("DEL needs the namespace") && c.Netns == "":
		return errors.New("no namespace")
	case s.conf.has("DEL needs the previous result") && c.Prev == nil:
		return errors.New("no previous result")
	case s.conf.has("DEL needs the configuration") && !number:
		return errors.New("no mtu")
	}
	ipam := c.IPAM.Type
	if s.conf.has("DEL detaches all") {
		c.IPAM.Type = ""
		if err := s.Plugin.GC(ctx, c); err != nil {
			return err
		}
	}
	if c.IPAM.Type = ipam; s.conf.has("DEL forgets the address") {
		c.IPAM.Type = ""
	}
	return s.Plugin.Del(ctx, c)
}

func (s sample) Check(ctx context.Context, c *plugin.Call) error {
	if s.conf.has("CHECK does not look") {
		return nil
	}
	err := s.Plugin.Check(ctx, c)
	if err != nil && s.conf.has("CHECK repairs") {
		_ = s.Plugin.Del(ctx, c)
	}
	if err != nil && s.conf.has("CHECK does not say what") {
		return errors.New("something is wrong")
	}
	return err
}

func (s sample) GC(ctx context.Context, c *plugin.Call) error {
	if s.conf.has("GC does nothing") {
		return nil
	}
	if s.conf.has("GC collects all") {
		c.Valid = nil
	}
	return s.Plugin.GC(ctx, c)
}
