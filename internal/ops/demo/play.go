package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/internal/ops/install"
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

const (
	bridge = "demo0"
	ifName = "eth0"
)

// list is the configuration of the network, a format for the data directory.
const list = `{
  "cniVersion": "1.1.0",
  "name": "demo",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "` + bridge + `",
      "isDefaultGateway": true,
      "hairpinMode": true,
      "ipMasq": true,
      "ipam": {
        "type": "host-local",
        "ranges": [
          [{"subnet": "10.88.0.0/24"}],
          [{"subnet": "fd00:88::/64"}]
        ],
        "dataDir": %q
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`

// play is the demonstration in its namespaces.
type play struct {
	story
	dir     string
	host    *kernel.Namespace
	client  network.Client
	network *config.Network
	web, db *container
	lost    []string // rules that flush has deleted
}

// Play runs the demonstration. The process must be in its own network and mount namespaces, as root
// of their user namespace; dir is an empty directory.
func (d Demo) Play(ctx context.Context, dir string) error {
	p := &play{story: story{out: d.Out, colour: d.Colour}, dir: dir}
	defer p.close()
	fmt.Fprintln(
		d.Out,
		p.bold(
			"Tenon attaches two containers to a network, maintains them, and leaves nothing behind.",
		),
	)
	fmt.Fprintln(d.Out, "The demo runs in its own namespaces: nothing on this host changes.")
	start := time.Now()
	for _, s := range []struct {
		title string
		run   func(context.Context) error
	}{
		{"A host: an empty network namespace, and a temporary directory", p.makeHost},
		{"Install the plugins: one binary under several names", func(ctx context.Context) error { return p.install(ctx, d.Plugins) }},
		{"A network: a bridge as gateway for IPv4 and IPv6, and host ports", p.configure},
		{"ADD: attach the containers web and db", p.add},
		{"Ping, from inside web", p.ping},
		{fmt.Sprintf("Host port %d leads to port %d of web, from everywhere", hostPort, containerPort), p.ports},
		{"Another container requests the same port: ADD names the holder", p.portConflict},
		{"List attachments: tenon ps", p.ps},
		{"CHECK: is everything as ADD left it?", p.check},
		{"An address of web is deleted: CHECK names it", p.drift},
		{"DEL and ADD repair web", p.repair},
		{"The rules of all containers are flushed: CHECK names a missing one", p.flush},
		{"Restore the rules: tenon repair", func(ctx context.Context) error { return p.restore(ctx, d.Repair) }},
		{"db dies with its namespace: DEL still works", p.kill},
		{"DEL web", func(ctx context.Context) error { return p.del(ctx, p.web) }},
		{"Proof: nothing is left", p.prove},
	} {
		if err := p.step(s.title, func() error { return s.run(ctx) }); err != nil {
			return fmt.Errorf("step %d: %w", p.chapter, err)
		}
	}
	fmt.Fprintf(d.Out, "\n%s %s\n", p.bold("Done."), p.faint(took(start)))
	return nil
}

func (p *play) close() {
	if p.host != nil {
		p.host.Close()
	}
	p.web.close()
	p.db.close()
}

// makeHost prepares the namespaces of the process. The kernel removes what it mounts together with
// the namespaces.
func (p *play) makeHost(ctx context.Context) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return noNamespaces(fmt.Errorf("mount: %w", err))
	}
	if err := unix.Mount("tenon-demo", p.dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return noNamespaces(fmt.Errorf("mount tmpfs: %w", err))
	}
	var err error
	if p.host, err = kernel.CurrentNamespace(); err != nil {
		return err
	}
	p.client = network.Client{
		Caller:     invoke.Process{},
		PluginDirs: []string{filepath.Join(p.dir, "plugins")},
		StateDir:   filepath.Join(p.dir, "state"),
		CacheDir:   network.NoCacheDir,
		Isolated:   true,
	}
	p.say("%s, %s", p.host, p.dir)
	return change(ctx, p.host, func(s *kernel.Space) error {
		lo, err := s.Links.ByName("lo")
		if err != nil {
			return err
		}
		return s.Links.Up(lo)
	})
}

// change runs fn in a namespace and commits its changes.
func change(ctx context.Context, ns *kernel.Namespace, fn func(*kernel.Space) error) error {
	tx := kernel.Begin(ctx)
	s, err := tx.Open(ns)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := fn(s); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	tx.Keep()
	return nil
}

func (p *play) install(ctx context.Context, names []string) error {
	_, err := install.Run(ctx, install.Request{Dir: p.client.PluginDirs[0], Names: names})
	p.say("%s in %s", strings.Join(names, ", "), p.client.PluginDirs[0])
	return err
}

func (p *play) configure(context.Context) error {
	path := filepath.Join(p.dir, "net.d", "demo.conflist")
	text := fmt.Sprintf(list, filepath.Join(p.dir, "networks"))
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	p.say("%s:\n%s", path, text)
	var err error
	p.network, err = config.Load(filepath.Dir(path), "demo")
	return err
}

func (p *play) add(ctx context.Context) error {
	for _, c := range []struct {
		name         string
		into         **container
		capabilities map[string]json.RawMessage
	}{{"web", &p.web, published()}, {"db", &p.db, nil}} {
		var err error
		if *c.into, err = newContainer(c.name, c.capabilities); err != nil {
			return err
		}
		if err := p.attach(ctx, *c.into); err != nil {
			return err
		}
		if err := p.show(func(b *bytes.Buffer) error { return text.Result(b, (*c.into).result) }); err != nil {
			return err
		}
	}
	return nil
}

func (p *play) attach(ctx context.Context, c *container) error {
	start := time.Now()
	r := network.Request{
		Container: c.name, IfName: ifName, Parameters: network.Parameters{Netns: c.path, Capabilities: c.capabilities},
	}
	var err error
	if c.result, err = p.client.Add(ctx, p.network, r); err != nil {
		return err
	}
	p.say("%s %s", p.bold(c.name), p.faint(took(start)))
	return nil
}

// show prints the output of fn, indented.
func (p *play) show(fn func(*bytes.Buffer) error) error {
	var b bytes.Buffer
	if err := fn(&b); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		p.say("  %s", line)
	}
	return nil
}

func (p *play) attachment(c *container) cni.Attachment {
	return cni.Attachment{Network: p.network.Name, Container: c.name, IfName: ifName}
}

func (p *play) ping(ctx context.Context) error {
	type target struct {
		name string
		addr netip.Addr
	}
	var targets []target
	for _, ip := range p.db.result.IPs {
		targets = append(targets, target{p.db.name, ip.Address.Addr()})
	}
	for _, ip := range p.web.result.IPs {
		targets = append(targets, target{"the gateway", ip.Gateway})
	}
	for _, t := range targets {
		rtt, err := ping(ctx, p.web.ns, t.addr)
		if err != nil {
			return err
		}
		p.say(
			"%s, %s: answer after %.2f ms",
			t.name,
			t.addr,
			float64(rtt)/float64(time.Millisecond),
		)
	}
	return nil
}

func (p *play) ps(context.Context) error {
	records, err := p.client.List()
	if err != nil {
		return err
	}
	list, err := inspect.Attachments(records)
	if err != nil {
		return err
	}
	return p.show(func(b *bytes.Buffer) error { return text.Attachments(b, list, text.AttachmentColumns{}) })
}

func (p *play) check(ctx context.Context) error {
	for _, c := range []*container{p.web, p.db} {
		if err := p.client.Check(ctx, p.attachment(c), p.network); err != nil {
			return err
		}
		p.say("%s: no differences", c.name)
	}
	return nil
}

func (p *play) drift(ctx context.Context) error {
	address := p.web.result.IPs[0].Address
	err := change(ctx, p.web.ns, func(s *kernel.Space) error {
		l, err := s.Links.ByName(ifName)
		if err != nil {
			return err
		}
		return s.Addrs.Delete(l, address)
	})
	if err != nil {
		return err
	}
	p.say("deleted %s from %s of web", address, ifName)
	return p.checkFails(ctx, "an address is missing")
}

// checkFails prints the error of CHECK for web.
func (p *play) checkFails(ctx context.Context, why string) error {
	err := p.client.Check(ctx, p.attachment(p.web), p.network)
	if err == nil {
		return fmt.Errorf("CHECK did not notice that %s", why)
	}
	p.say("CHECK: %v", err)
	return nil
}

func (p *play) repair(ctx context.Context) error {
	if err := p.del(ctx, p.web); err != nil {
		return err
	}
	if err := p.attach(ctx, p.web); err != nil {
		return err
	}
	return p.check(ctx)
}

func (p *play) del(ctx context.Context, c *container) error {
	return p.client.Del(ctx, p.attachment(c), network.Fallback{})
}

func (p *play) kill(ctx context.Context) error {
	p.db.close()
	if err := p.ps(ctx); err != nil {
		return err
	}
	return p.del(ctx, p.db)
}
