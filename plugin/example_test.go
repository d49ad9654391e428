package plugin_test

import (
	"context"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/plugin"
)

// labelConfig is the configuration of labeler: what every plugin has, and an option.
type labelConfig struct {
	plugin.Common
	Domain string `json:"domain"`
}

// labeler works on the result of the plugins before it, and keeps nothing.
type labeler struct{}

func (labeler) Add(_ context.Context, c *plugin.Call[labelConfig]) (*cni.Result, error) {
	if c.Prev == nil {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "labeler has to stand behind another plugin")
	}
	r := c.Prev.Clone()
	r.DNS.Domain = c.Conf.Domain
	return r, nil
}

func (labeler) Del(context.Context, *plugin.Call[labelConfig]) error { return nil }

func (labeler) Check(_ context.Context, c *plugin.Call[labelConfig]) error {
	if c.Prev == nil || c.Prev.DNS.Domain != c.Conf.Domain {
		return fmt.Errorf("expected domain %q in prevResult", c.Conf.Domain)
	}
	return nil
}

// A main program is: os.Exit(plugin.Main(definition, plugin.Caller(nil, false), version)).
func ExampleDefine() {
	definition := plugin.Define[labelConfig](plugin.Info{Name: "labeler", About: "puts a domain into the result"}, labeler{})

	env := cni.Env{Command: cni.Add, ContainerID: "web-1", Netns: "/run/netns/web-1", IfName: "eth0"}
	out, err := definition.Serve(context.Background(), env, []byte(`{
		"cniVersion": "1.1.0", "name": "pods", "type": "labeler", "domain": "example.com",
		"prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}]}
	}`), invoke.Process{})
	fmt.Println(string(out), err)
	// Output: {"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}],"dns":{"domain":"example.com"}} <nil>
}

// A program that has a plugin linked in calls it without a file, and executes others. As network.Client.Caller it does so for
// whole networks: see the example of package plugins/all.
func ExampleLinked() {
	definition := plugin.Define[labelConfig](plugin.Info{Name: "labeler"}, labeler{})
	caller := plugin.Linked{Plugins: []plugin.Definition{definition}}

	path, err := caller.Find([]string{"/opt/cni/bin"}, "labeler")
	if err != nil {
		panic(err)
	}
	reply, err := caller.Call(context.Background(), invoke.Call{
		Path: path,
		Env:  cni.Env{Command: cni.Add, ContainerID: "web-1", Netns: "/run/netns/web-1", IfName: "eth0"},
		Stdin: []byte(`{"cniVersion": "1.1.0", "name": "pods", "type": "labeler", "domain": "example.com",
			"prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}]}}`),
	})
	fmt.Println(string(reply.Stdout), err)
	// Output: {"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24"}],"dns":{"domain":"example.com"}} <nil>
}
