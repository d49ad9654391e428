package plugin_test

import (
	"context"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
)

// labeler changes the result of the plugins before it and keeps no state. It is also the
// configuration: the common part and one option.
type labeler struct {
	plugin.Common
	Domain string `json:"domain"`
}

func (l *labeler) Add(_ context.Context, c *plugin.Call) (*cni.Result, error) {
	if c.Prev == nil {
		return nil, cni.Errorf(cni.CodeInvalidConfig,
			"labeler needs a plugin before it in the list")
	}
	r := c.Prev.Clone()
	r.DNS.Domain = l.Domain
	return r, nil
}

func (l *labeler) Del(context.Context, *plugin.Call) error { return nil }

func (l *labeler) Check(_ context.Context, c *plugin.Call) error {
	if c.Prev == nil || c.Prev.DNS.Domain != l.Domain {
		return fmt.Errorf("expected domain %q in prevResult", l.Domain)
	}
	return nil
}

// A main program is: os.Exit(plugin.Main(definition, plugin.Caller(nil, false), version)).
func ExampleDefine() {
	definition := plugin.Define(plugin.Info{Name: "labeler", About: "adds a domain to the result"},
		func() plugin.Plugin { return new(labeler) })

	env := cni.Env{Command: cni.Add, ContainerID: "web-1", Netns: "/run/netns/web-1",
		IfName: "eth0"}
	out, err := definition.Serve(context.Background(), env, []byte(`{
		"cniVersion": "1.1.0", "name": "pods", "type": "labeler", "domain": "example.com",
		"prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}]}
	}`), invoke.Process{})
	fmt.Println(string(out), err)
	// Output:
	// {"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}],"dns":{"domain":"example.com"}} <nil>
}

// A program runs the plugins that are linked into it without their files, and executes all other
// plugins. The example of package plugins/all does so for whole networks, with
// network.Client.Caller.
func ExampleLinked() {
	definition := plugin.Define(plugin.Info{Name: "labeler"},
		func() plugin.Plugin { return new(labeler) })
	caller := plugin.Linked{Plugins: []plugin.Definition{definition}}

	path, err := caller.Find([]string{"/opt/cni/bin"}, "labeler")
	if err != nil {
		panic(err)
	}
	reply, err := caller.Call(context.Background(), invoke.Call{
		Path: path,
		Env: cni.Env{Command: cni.Add, ContainerID: "web-1", Netns: "/run/netns/web-1",
			IfName: "eth0"},
		Stdin: []byte(`{"cniVersion": "1.1.0", "name": "pods", "type": "labeler", "domain": "example.com",
			"prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}]}}`),
	})
	fmt.Println(string(reply.Stdout), err)
	// Output:
	// {"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}],"dns":{"domain":"example.com"}} <nil>
}
