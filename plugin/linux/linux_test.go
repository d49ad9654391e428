package linux_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/linux"
	"github.com/tenon-cni/tenon/plugin/plugintest"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
)

func TestMain(m *testing.M) { plugintest.Main(m, wire, quarantine, hostlocal.Plugin) }

// wire is an interface plugin with a veth pair. It uses features that the guide's macvlan does not:
// the host-side link, changes of its own, and a Remover.
var wire = linux.DefineInterface(plugin.Info{Name: "wire"}, "veth", func() linux.Maker {
	return new(wireConfig)
})

type wireConfig struct {
	linux.Common
	DataDir string `json:"dataDir"` // holds a file with the name of each owner
	MTU     int    `json:"mtu"`     // bytes, of both ends

	fail func(*linux.Session, linux.Link) error // called last by Make in tests, or nil
}

func (c *wireConfig) Validate(*plugin.Call) error {
	if c.MTU < 0 || c.MTU > 65535 {
		return cni.Errorf(cni.CodeInvalidConfig, "mtu: %d is not within 0 to 65535", c.MTU)
	}
	return nil
}

func (c *wireConfig) Make(_ context.Context, s *linux.Session) ([]cni.Interface, error) {
	file := filepath.Join(c.DataDir, string(s.Attachment().Owner()))
	if err := s.Do("write "+file, func() error {
		f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL, 0o600) // an existing file is not undone
		if err == nil {
			err = f.Close()
		}
		return err
	}, func() error { return remove(file) }); err != nil {
		return nil, err
	}
	inside, host, err := s.AddVeth(linux.Veth{MTU: c.MTU})
	if err != nil {
		return nil, err
	}
	if err := host.SetUp(); err != nil {
		return nil, err
	}
	if err := s.Host.EnsureSysctl("net.ipv4.ip_forward", "1"); err != nil {
		return nil, err
	}
	if c.fail != nil {
		return nil, c.fail(s, host)
	}
	return s.Made(inside, host), nil
}

// Finish makes the container reachable from the host.
func (c *wireConfig) Finish(_ context.Context, s *linux.Session, r *cni.Result) error {
	host, err := s.Host.Link(r.Interfaces[0].Name)
	if err != nil {
		return err
	}
	for _, ip := range r.IPs {
		if err := host.AddRoute(toContainer(ip)); err != nil {
			return err
		}
	}
	return nil
}

func toContainer(ip cni.IP) cni.Route {
	a := ip.Address.Addr()
	return cni.Route{Dst: netip.PrefixFrom(a, a.BitLen()), Scope: cni.Some(253)}
}

func (c *wireConfig) Verify(_ context.Context, s *linux.Session, link linux.Link) error {
	host, err := s.Peer(link)
	if err != nil {
		return err
	}
	if !host.Up {
		return fmt.Errorf("interface %s: expected it up, found it down", host.Name)
	}
	have, err := host.Routes()
	for _, ip := range s.PrevIPs() {
		want := toContainer(ip).Dst
		if err == nil && !slices.ContainsFunc(have,
			func(rt cni.Route) bool { return rt.Dst == want }) {
			err = fmt.Errorf("interface %s: expected a route to %s, found none", host.Name, want)
		}
	}
	return err
}

func (c *wireConfig) Remove(_ context.Context, s *linux.Session, gone linux.Gone) error {
	files, err := os.ReadDir(c.DataDir)
	errs := []error{err}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, f := range files {
		if file := filepath.Join(c.DataDir, f.Name()); gone.Owner(cni.Owner(f.Name())) {
			errs = append(errs, s.Do("remove "+file, func() error { return remove(file) }, nil))
		}
	}
	return errors.Join(errs...)
}

func remove(file string) error {
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func TestSuite(t *testing.T) {
	plugintest.Run(t, plugintest.Suite{
		Plugin: wire,
		Examples: []plugin.Example{{Name: "addresses", Config: `{
			"cniVersion": "1.1.0", "name": "net", "type": "wire", "mtu": 1400,
			"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/16"}]],
				"routes": [{"dst": "0.0.0.0/0"}]}
		}`}},
		Rewrite: func(conf map[string]any, dir string) { conf["dataDir"] = dir },
		Setup: func(_ testing.TB, n *plugintest.Net) { // shared settings stay
			n.Host.Command("sysctl", "-qw", "net.ipv4.ip_forward=1")
		},
		Drifts: []plugintest.Drift{
			{Name: "route gone", Break: deleteRoute},
			{Name: "host side down", Break: setHostSideDown},
		},
	})
}

func deleteRoute(_ testing.TB, a plugintest.Attached) string {
	address := a.Result.IPs[0].Address.Addr().String()
	a.Host.Command("ip", "route", "delete", address)
	return address
}

func setHostSideDown(_ testing.TB, a plugintest.Attached) string {
	host := a.Result.Interfaces[0].Name
	a.Host.Command("ip", "link", "set", host, "down")
	return host
}

// failing returns wire with a last step that fails.
func failing(change func(*linux.Session, linux.Link) error) plugin.Definition {
	return linux.DefineInterface(plugin.Info{Name: "wire"}, "veth", func() linux.Maker {
		return &wireConfig{fail: change}
	})
}

// TestUndo makes each kind of change on an existing link and then fails: no change may remain. Each
// change must have an effect, or its undo would prove nothing.
func TestUndo(t *testing.T) {
	t.Parallel()
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	address := netip.MustParsePrefix("10.8.0.1/24")
	route := cni.Route{Dst: netip.MustParsePrefix("10.9.0.0/16")}
	old := netip.MustParsePrefix("10.7.0.1/24")
	oldRoute := cni.Route{Dst: netip.MustParsePrefix("10.6.0.0/16"), Scope: cni.Some(253)}
	forward := "net.ipv4.conf.eth1.forwarding"
	setForward := func(s *linux.Session, _ linux.Link) error {
		return s.Host.SetSysctl(forward, "0")
	}
	for name, change := range map[string]func(*linux.Session, linux.Link) error{
		"down":  func(_ *linux.Session, l linux.Link) error { return l.SetDown() },
		"mtu":   func(_ *linux.Session, l linux.Link) error { return l.SetMTU(1300) },
		"mac":   func(_ *linux.Session, l linux.Link) error { return l.SetMAC(mac) },
		"alias": func(_ *linux.Session, l linux.Link) error { return l.SetAlias("mine") },
		"address": func(_ *linux.Session, l linux.Link) error {
			return l.AddAddress(address)
		},
		"delete address": func(_ *linux.Session, l linux.Link) error {
			return l.DeleteAddress(old)
		},
		"route": func(_ *linux.Session, l linux.Link) error { return l.AddRoute(route) },
		"delete route": func(_ *linux.Session, l linux.Link) error {
			return l.DeleteRoute(oldRoute)
		},
		"sysctl": setForward,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var host *plugintest.Namespace
			before, during := "", ""
			def := failing(func(s *linux.Session, _ linux.Link) error {
				l, err := s.Host.Link("eth1")
				if err != nil {
					return err
				}
				before = state(host)
				if err := change(s, l); err != nil {
					return err
				}
				during = state(host)
				return errors.New("last step")
			})
			r := plugintest.NewRuntime(t, def, `{"cniVersion":"1.1.0","name":"net","type":"wire"}`)
			r.Conf["dataDir"] = t.TempDir()
			host = r.Host
			host.Wire("eth1")
			host.Batch("address add 10.5.0.1/24 dev eth1",
				"address add "+old.String()+" broadcast + dev eth1")
			if name != "down" { // setting the link down deletes its routes
				host.Batch("route add 10.6.0.0/16 dev eth1")
			}
			host.Command("sysctl", "-qw", "net.ipv4.ip_forward=1", forward+"=1")
			r.Container("c")
			all := r.State()
			plugintest.Says(t, r.Refused(r.Request(cni.Add, "c"), cni.CodeInternal), "last step")
			r.Unchanged(all)
			if before == during {
				t.Errorf("the change has had no effect:\n%s", during)
			}
		})
	}
}

// state returns the state of eth1.
func state(ns *plugintest.Namespace) string {
	return ns.Command("ip", "-d", "address", "show", "dev", "eth1") +
		ns.Command("ip", "route", "show", "dev", "eth1") +
		ns.Command("sysctl", "net.ipv4.conf.eth1.forwarding")
}

// TestLookups reads what the package can read.
func TestLookups(t *testing.T) {
	t.Parallel()
	r := plugintest.NewRuntime(t, failing(func(s *linux.Session, _ linux.Link) error {
		l, err := s.Host.Link("eth1")
		if err != nil {
			return err
		}
		same, err := s.Host.LinkByIndex(l.Index)
		if err != nil || same.Name != "eth1" || !same.Up || same.Kind == "" {
			return fmt.Errorf("link %d is %+v: %w", l.Index, same, err)
		}
		addresses, err := l.Addresses()
		if err != nil || !slices.Contains(addresses, netip.MustParsePrefix("10.7.0.1/24")) {
			return fmt.Errorf("addresses %v: %w", addresses, err)
		}
		routes, err := l.Routes()
		if err != nil || !strings.Contains(fmt.Sprint(routes), "{10.6.0.0/16 ") {
			return fmt.Errorf("routes %v: %w", routes, err)
		}
		if parent, err := s.Parent(""); err != nil || parent.Name != "eth1" {
			return fmt.Errorf("parent %q: %w", parent.Name, err)
		}
		if _, err := s.Sandbox.Link("eth1"); !errors.Is(err, linux.ErrNoLink) {
			return fmt.Errorf("link of the host in the container: %w", err)
		}
		if value, err := s.Host.Sysctl("net.ipv4.conf.eth1.forwarding"); err != nil ||
			value != "1" {
			return fmt.Errorf("forwarding %q: %w", value, err)
		}
		return s.Sandbox.Run(func() error {
			links, err := net.Interfaces()
			if err != nil || len(links) != 2 { // lo, and the container's
				return fmt.Errorf("interfaces %v: %w", links, err)
			}
			return errors.New("found everything")
		})
	}), `{"cniVersion":"1.1.0","name":"net","type":"wire"}`)
	r.Conf["dataDir"] = t.TempDir()
	r.Host.Wire("eth1")
	r.Host.Command("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.eth1.forwarding=1")
	r.Host.Batch("address add 10.7.0.1/24 dev eth1", "route add 10.6.0.0/16 dev eth1",
		"route add default dev eth1")
	r.Container("c")
	plugintest.Says(t, r.Refused(r.Request(cni.Add, "c"), cni.CodeInternal), "found everything")
}

// TestRules refuses values of the keys in Common that the flow does not know, before ADD changes
// anything.
func TestRules(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"dad", "secondDefaultRoute"} {
		r := plugintest.NewRuntime(t, wire, `{"cniVersion":"1.1.0","name":"net","type":"wire"}`)
		r.Conf[key] = "sometimes"
		r.Container("c")
		plugintest.Says(t, r.Refused(r.Request(cni.Add, "c"), cni.CodeInvalidConfig), key)
	}
}
