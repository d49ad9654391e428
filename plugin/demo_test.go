package plugin_test

import (
	"context"
	"net/netip"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

func TestMain(m *testing.M) { plugintest.Main(m, files, delegator) }

// config has a member of each JSON type.
type config struct {
	plugin.Common
	Dir    string   `json:"dir"`
	Mode   string   `json:"mode"`
	MTU    int      `json:"mtu"`
	On     bool     `json:"on"`
	List   []string `json:"list"`
	Nested struct {
		A     string           `json:"a"`
		B     int              `json:"b"`
		Inner struct{ C bool } `json:"inner"`
		Addr  netip.Addr       `json:"addr"`
	} `json:"nested"`
}

// call is a call and its configuration.
type call struct {
	*plugin.Call
	Conf *config
}

// verbs implements all verbs of a demo.
type verbs func(context.Context, *call) (*cni.Result, error)

// demo is a plugin that runs the same function for every verb.
type demo struct {
	config
	do verbs
}

func define(i plugin.Info, do verbs) plugin.Definition {
	return plugin.Define(i, func() plugin.Plugin { return &demo{do: do} })
}

func (d *demo) call(ctx context.Context, c *plugin.Call) (*cni.Result, error) {
	return d.do(ctx, &call{c, &d.config})
}

func (d *demo) Add(ctx context.Context, c *plugin.Call) (*cni.Result,
	error) {
	return d.call(ctx, c)
}
func (d *demo) Del(ctx context.Context,
	c *plugin.Call) error {
	return second(d.call(ctx, c))
}
func (d *demo) Check(ctx context.Context,
	c *plugin.Call) error {
	return second(d.call(ctx, c))
}
func (d *demo) Status(ctx context.Context,
	c *plugin.Call) error {
	return second(d.call(ctx, c))
}
func (d *demo) GC(ctx context.Context,
	c *plugin.Call) error {
	return second(d.call(ctx, c))
}

func second(_ *cni.Result, err error) error { return err }

// result can be expressed in every version.
var result = &cni.Result{IPs: []cni.IP{{Address: netip.MustParsePrefix("10.1.2.3/24")}}}

// recorder records the calls that reach the plugin.
type recorder struct{ calls []*call }

func (r *recorder) define(i plugin.Info) plugin.Definition {
	if i.Name == "" {
		i.Name = "demo"
	}
	return define(i, verbs(func(_ context.Context, c *call) (*cni.Result, error) {
		r.calls = append(r.calls, c)
		return result, nil
	}))
}

// only returns the only call.
func (r *recorder) only(t *testing.T) *call {
	t.Helper()
	if len(r.calls) != 1 {
		t.Fatalf("plugin was called %d times, want once", len(r.calls))
	}
	return r.calls[0]
}

// environment returns a complete environment for a verb. The namespace does not exist.
func environment(verb cni.Command) cni.Env {
	return cni.Env{Command: verb, ContainerID: "c-1", Netns: "/run/netns/absent", IfName: "eth0",
		Path: "/absent"}
}

func serve(t *testing.T, d plugin.Definition, env cni.Env, stdin string) ([]byte, error) {
	t.Helper()
	return d.Serve(t.Context(), env, []byte(stdin), invoke.Fake{})
}

func wantCode(t *testing.T, err error, want cni.Code) {
	t.Helper()
	if got := cni.CodeOf(err); got != want {
		t.Errorf("code %d, want %d: %v", got, want, err)
	}
}
