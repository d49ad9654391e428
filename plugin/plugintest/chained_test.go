package plugintest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// marker is a chained plugin that is correct except for its planted bugs. It marks the host-side
// veth with an alias.
type marker struct {
	plugin.Common
	Loud bool `json:"loud"`

	bugs
}

const chainedDoc = "### Example\n```json\n" +
	`{"cniVersion": "1.1.0", "name": "net", "type": "marker", "loud": true}` + "\n```\n"

func defineChained(b bugs) plugin.Definition {
	info := plugin.Info{Name: "marker", Role: plugin.RoleChained, Doc: chainedDoc}
	if !b.has("versions without interfaces are announced") {
		info.Versions = slices.DeleteFunc(cni.Versions(),
			func(v cni.Version) bool { return v < cni.V030 })
	}
	return plugin.DefineFlow(info, func() (plugin.Configuration, plugin.Plugin) {
		m := &marker{bugs: b}
		return m, chainedSample{&chained.Plugin{Decorator: m, Traits: chained.Traits{Inside: true}},
			b}
	})
}

func chainedSuite(b bugs) plugintest.Suite {
	return plugintest.Suite{
		Plugin: defineChained(b),
		Drifts: []plugintest.Drift{{Name: "mark gone",
			Break: func(_ testing.TB, a plugintest.Attached) string {
				end := a.Result.Interfaces[0].Name
				a.Host.Command("ip", "link", "set", end, "alias", "")
				return end
			}}},
	}
}

type decoration = chained.Session

// end returns the host-side veth.
func end(s *decoration) (kernel.Link, error) {
	for _, i := range s.Prev.Interfaces {
		if i.Sandbox == "" {
			return s.Host.Links.ByName(i.Name)
		}
	}
	return kernel.Link{},
		cni.Errorf(cni.CodeInvalidConfig, "prevResult has no interface of the host")
}

func (m *marker) Apply(_ context.Context, s *decoration, r *cni.Result) error {
	l, err := end(s)
	if err != nil {
		return err
	}
	if m.has("undo is forgotten") {
		s.Host = s.Host.Shared()
	}
	if m.has("second ADD is refused") && l.Alias != "" {
		return errors.New("marked already")
	}
	if err := s.Host.Links.SetAlias(l, s.Tag); err != nil {
		return err
	}
	inside, err := s.Sandbox.Links.ByName(s.IfName)
	if err != nil {
		return err
	}
	return s.Sandbox.Links.SetAlias(inside, s.Tag)
}

func (m *marker) Verify(_ context.Context, s *decoration) error {
	if m.has("CHECK is blind") {
		return nil
	}
	if own := len(s.Prev.IPs); m.has("CHECK counts addresses") && own != 2 {
		return fmt.Errorf("%d addresses", own)
	}
	l, err := end(s)
	if err == nil && l.Alias != s.Tag {
		err = fmt.Errorf("%s has alias %q, want %q", l.Name, l.Alias, s.Tag)
	}
	return err
}

func (m *marker) Remove(_ context.Context, s *decoration, gone chained.Gone) error {
	if m.has("GC does nothing") && gone.All() {
		return nil
	}
	if m.has("DEL needs the namespace") && !gone.All() && s.Sandbox == nil {
		return errors.New("no namespace")
	}
	if m.has("DEL needs the interface") && s.Sandbox != nil {
		if _, err := s.Sandbox.Links.ByName(s.IfName); err != nil {
			return err
		}
	}
	if m.has("DEL needs the previous result") && !gone.All() && s.Prev == nil {
		return nil
	}
	var spaces []*kernel.Space
	if s.Sandbox != nil || gone.All() || !m.has("DEL without namespace leaves the host marked") {
		spaces = append(spaces, s.Host)
	}
	if s.Sandbox != nil && !m.has("DEL leaves the container marked") {
		spaces = append(spaces, s.Sandbox)
	}
	var errs []error
	for _, space := range spaces {
		links, err := space.Links.All()
		errs = append(errs, err)
		for _, l := range links {
			if gone.Tag(l.Alias) || m.has("DEL removes all marks") &&
				strings.HasPrefix(l.Alias, "tenon:") {
				errs = append(errs, space.Links.SetAlias(l, ""))
			}
		}
	}
	return errors.Join(errs...)
}

// chainedSample has the bugs that the archetype keeps a Decorator from.
type chainedSample struct {
	*chained.Plugin
	bugs
}

func (s chainedSample) Add(ctx context.Context, c *plugin.Call) (*cni.Result, error) {
	if c.Prev == nil && s.has("missing previous result is accepted") {
		return &cni.Result{IPs: []cni.IP{{Address: netip.MustParsePrefix("10.0.0.2/24")}}}, nil
	}
	if c.Prev != nil && len(c.Prev.Interfaces) == 0 && s.has("poor previous result has no code") {
		return nil, errors.New("no interface")
	}
	r, err := s.Plugin.Add(ctx, c)
	if err != nil {
		return nil, err
	}
	switch {
	case s.has("DNS is lost"):
		r.DNS = cni.DNS{}
	case s.has("interfaces are in another order"):
		r.Interfaces[0], r.Interfaces[1] = r.Interfaces[1], r.Interfaces[0]
	case s.has("interface is lost"):
		r.Interfaces, r.IPs = r.Interfaces[:0], nil
	case s.has("result is another each time"):
		r.Interfaces = append(r.Interfaces, cni.Interface{Name: rand.Text()})
	case s.has("result contains the program's name"):
		r.Interfaces = append(r.Interfaces, cni.Interface{Name: os.Args[0]})
	}
	return r, nil
}
