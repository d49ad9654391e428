package network_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
)

// CONV-25: typed capability arguments reach the plugins that declare them, and the pod's arguments
// reach all plugins. ADD refuses values that CNI_ARGS cannot express before it calls a plugin.
func TestAskedInTypes(t *testing.T) {
	t.Parallel()
	r := &invoke.Recorder{Caller: invoke.Fake{"main": {}, "ports": {}}}
	c := &network.Client{Isolated: true, Caller: r, StateDir: t.TempDir(), Log: quiet}
	n := list(t, "1.1.0", "red", "main", `{"type":"ports","capabilities":{"portMappings":true}}`)
	capabilities, err := cni.Capabilities{
		PortMappings: []cni.PortMapping{{HostPort: 8080, ContainerPort: 80}}, CgroupPath: "/pod1",
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	q := request("c1")
	q.Capabilities = capabilities
	for _, pod := range []cni.Pod{{Namespace: "shop", Name: "web;0"},
		{Namespace: "shop", Name: "web=0"}} {
		q.Args = pod.Args()
		if _, err := c.Add(t.Context(), n, q); cni.CodeOf(err) != cni.CodeInvalidEnvironment ||
			len(r.Exchanges()) > 0 {
			t.Errorf("%s: %v, %d calls", pod.Name, err, len(r.Exchanges()))
		}
	}
	q.Args = cni.Pod{Namespace: "shop", Name: "web-0"}.Args()
	if _, err := c.Add(t.Context(), n, q); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range r.Exchanges() {
		var in struct{ RuntimeConfig json.RawMessage }
		if err := json.Unmarshal(e.Call.Stdin, &in); err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Call.Env.Args+" "+string(in.RuntimeConfig))
	}
	const args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0 "
	want := args + "\n" + args +
		`{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}
}
