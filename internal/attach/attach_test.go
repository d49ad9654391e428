package attach_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
)

func TestMain(m *testing.M) { testnet.Main(m) }

type config struct {
	attach.Common
	KeepDown  bool `json:"keepDown"`
	EnableDAD bool `json:"enabledad"`
	Masq      bool `json:"masq"`
}

type session = attach.Session

func (c *config) Options() attach.Options {
	o := attach.Options{KeepDown: c.KeepDown, Announce: true}
	if c.EnableDAD {
		o.DAD = attach.DADWait
	}
	return o
}

// pair is the smallest interface plugin: it creates only a veth pair. Tests can replace its
// functions.
type pair struct {
	config
	make   func(context.Context, *session) ([]cni.Interface, error)
	finish func(context.Context, *session, *cni.Result) error
	status func() error
}

func (p *pair) Make(ctx context.Context, s *session) ([]cni.Interface, error) {
	if p.make != nil {
		return p.make(ctx, s)
	}
	inside, host, err := s.Sandbox.Links.AddVeth(kernel.Veth{Name: s.IfName, Host: s.Host, HostName: s.HostName(), Alias: s.Tag})
	if err != nil {
		return nil, err
	}
	if err := s.Host.Links.Up(host); err != nil {
		return nil, err
	}
	return []cni.Interface{{Name: host.Name, MAC: host.MAC.String()}, {Name: inside.Name, MAC: inside.MAC.String(), Sandbox: s.Netns}}, nil
}

func (p *pair) Status(context.Context, *plugin.Call) error {
	if p.status != nil {
		return p.status()
	}
	return nil
}

func (p *pair) Finish(ctx context.Context, s *session, r *cni.Result) error {
	if p.finish != nil {
		return p.finish(ctx, s, r)
	}
	if p.Masq {
		return s.Masquerade(r.IPs)
	}
	return nil
}

func define(p pair) plugin.Definition {
	return attach.Define(plugin.Info{Name: "pair"}, attach.Traits{Kind: "veth"}, func() attach.Maker {
		p := p
		return &p
	})
}

// bench is a host with a network and a scripted IPAM plugin.
type bench struct {
	*testnet.Net
	t      *testing.T
	plugin plugin.Definition
	ipam   invoke.Recorder
	conf   map[string]any
	args   string
}

type verbs = map[cni.Command]invoke.Handler

// newBench returns a bench. pool are the verbs of its IPAM plugin; if pool is nil, the network has
// no IPAM.
func newBench(t *testing.T, p pair, pool verbs) *bench {
	t.Helper()
	b := &bench{
		Net: testnet.New(t, "c"), t: t, plugin: define(p),
		conf: map[string]any{"cniVersion": "1.1.0", "name": "net", "type": "pair"},
	}
	b.ipam.Caller = invoke.Fake{"pool": pool}
	if pool != nil {
		b.conf["ipam"] = map[string]any{"type": "pool"}
	}
	return b
}

// give returns the verbs of an IPAM plugin that prints a result of 1.1.0 with these members.
func give(members string) verbs {
	return verbs{cni.Add: invoke.Print(`{"cniVersion":"1.1.0",` + members + `}`)}
}

const address = `"ips":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"}]`

func (b *bench) env(verb cni.Command) cni.Env {
	return cni.Env{
		Command: verb, ContainerID: "c-1", Netns: b.Container("c").Path(), IfName: "eth0", Path: "/plugins", Args: b.args,
	}
}

func (b *bench) serve(ctx context.Context, env cni.Env) (out []byte, err error) {
	stdin, err := json.Marshal(b.conf)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Host.Do(func() { out, err = b.plugin.Serve(ctx, env, stdin, &b.ipam) })
	return out, err
}

func (b *bench) call(verb cni.Command) error {
	_, err := b.serve(b.t.Context(), b.env(verb))
	return err
}

// add attaches the container and makes the result the previous one.
func (b *bench) add() *cni.Result {
	b.t.Helper()
	out, err := b.serve(b.t.Context(), b.env(cni.Add))
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := cni.DecodeResultStrict(out, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	b.conf["prevResult"] = json.RawMessage(out)
	return r
}

// asked returns the verbs that IPAM has been called with.
func (b *bench) asked() string {
	var all []string
	for _, e := range b.ipam.Exchanges() {
		all = append(all, string(e.Call.Env.Command))
	}
	return strings.Join(all, " ")
}

func (b *bench) state() string { return testnet.Snapshot(b.t, b.Spaces()) }

func (b *bench) unchanged(before string) {
	b.t.Helper()
	if diff := testnet.Diff(before, b.state()); diff != "" {
		b.t.Errorf("state has changed:\n%s", diff)
	}
}

// inside returns the output of a command in the container.
func (b *bench) inside(args ...string) string {
	b.t.Helper()
	return b.Container("c").Command(args[0], args[1:]...)
}

func wantError(t *testing.T, err error, code cni.Code, says ...string) {
	t.Helper()
	if got := cni.CodeOf(err); got != code {
		t.Errorf("code %d, want %d: %v", got, code, err)
	}
	for _, text := range says {
		if !strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("error does not contain %q: %v", text, err)
		}
	}
}
