package interop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
)

const (
	containerdSocket = "/run/containerd/containerd.sock"
	netDir           = "/run/net.d"
	podNetwork       = netDir + "/10-pods.conflist"
)

// containerd is a node with containerd. Its pods serve a greeting.
type containerd struct {
	*node
	client string // the program of directory cri
	config string
}

// newContainerd starts containerd on a node. It uses the default plugin directory and networks in
// netDir.
func newContainerd(t *testing.T) *containerd {
	t.Helper()
	testnet.Require(t, testnet.Tool("containerd"), testnet.Tool("ctr"))
	return newContainerdOn(newNode(t))
}

// newContainerdOn starts containerd on a node. The PATH of the node selects the version.
func newContainerdOn(n *node) *containerd {
	t := n.t
	t.Helper()
	testnet.Require(t, testnet.Tool("runc"))
	c := &containerd{node: n}
	c.client = c.build("cri", "client")
	c.config = "/run/config.toml"
	c.write(c.config, fmt.Sprintf(`
		version = 2
		disabled_plugins = ["io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
		[plugins."io.containerd.grpc.v1.cri"]
			sandbox_image = %q
			disable_apparmor = true
			restrict_oom_score_adj = true
			[plugins."io.containerd.grpc.v1.cri".containerd]
				snapshotter = "native"
			[plugins."io.containerd.grpc.v1.cri".cni]
				bin_dir = %q
				conf_dir = %q`, imageName, plugins, netDir))
	c.write(netDir+"/.keep", "")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.try("grep", "-v", "level=info", "/run/containerd.log"))
		}
	})
	c.start()
	c.load()
	return c
}

// load imports the image.
func (c *containerd) load() {
	c.t.Helper()
	c.run("ctr", "--namespace", "k8s.io", "image", "import", image(c.t))
}

// start starts containerd, which ends with the node or with stop.
func (c *containerd) start() {
	c.t.Helper()
	c.run("sh", "-c", `containerd --config "$0" >>/run/containerd.log 2>&1 & echo $! >/run/containerd.pid`, c.config)
	c.await("containerd", func() error {
		_, err := c.call("Version", object{})
		return err
	})
}

// kill kills containerd and waits for its end.
func (c *containerd) kill() {
	c.t.Helper()
	c.run("sh", "-c", `kill -KILL $(cat /run/containerd.pid); while kill -0 $(cat /run/containerd.pid) 2>/dev/null; do sleep 0.02; done`)
}

// call makes one call of the Container Runtime Interface.
func (c *containerd) call(method string, request object) (response object, err error) {
	c.t.Helper()
	cmd := c.command(c.client, containerdSocket, method)
	cmd.Stdin = bytes.NewReader(encode(c.t, request))
	out, err := output(cmd)
	if err == nil {
		err = json.Unmarshal([]byte(out), &response)
	}
	return response, err
}

func (c *containerd) must(method string, request object) object {
	c.t.Helper()
	response, err := c.call(method, request)
	must(c.t, err)
	return response
}

// pod returns the configuration of a sandbox. It publishes port 80 at a host port, unless that is
// 0.
func (c *containerd) pod(name string, hostPort int) object {
	config := object{
		"metadata": object{"name": name, "uid": "uid-of-" + name, "namespace": "default"},
		"hostname": name, "linux": object{"cgroup_parent": "/" + c.cgroup},
	}
	if hostPort != 0 {
		config["port_mappings"] = []object{{"protocol": "TCP", "host_port": hostPort, "container_port": 80}}
	}
	return object{"config": config}
}

// sandbox runs a pod and returns its ID.
func (c *containerd) sandbox(name string, hostPort int) (id string) {
	c.t.Helper()
	return c.must("RunPodSandbox", c.pod(name, hostPort))["podSandboxId"].(string)
}

// remove stops and removes a pod.
func (c *containerd) remove(id string) {
	c.t.Helper()
	c.must("StopPodSandbox", object{"pod_sandbox_id": id})
	c.must("RemovePodSandbox", object{"pod_sandbox_id": id})
}

// sandboxes returns the IDs of all pods.
func (c *containerd) sandboxes() (ids []string) {
	c.t.Helper()
	list, _ := c.must("ListPodSandbox", object{})["items"].([]any)
	for _, item := range list {
		ids = append(ids, item.(object)["id"].(string))
	}
	return ids
}

// addresses returns a pod's addresses and the path of its network namespace, as the runtime reports
// them.
func (c *containerd) addresses(id string) (addresses []string, netns string) {
	c.t.Helper()
	response := c.must("PodSandboxStatus", object{"pod_sandbox_id": id, "verbose": true})
	var status struct {
		Network struct {
			IP            string
			AdditionalIPs []struct{ IP string }
		}
	}
	must(c.t, json.Unmarshal(encode(c.t, response["status"]), &status))
	addresses = []string{status.Network.IP}
	for _, a := range status.Network.AdditionalIPs {
		addresses = append(addresses, a.IP)
	}
	var info struct {
		RuntimeSpec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string }
			}
		}
	}
	must(c.t, json.Unmarshal([]byte(response["info"].(object)["info"].(string)), &info))
	for _, ns := range info.RuntimeSpec.Linux.Namespaces {
		if ns.Type == "network" {
			netns = ns.Path
		}
	}
	return addresses, netns
}

// networkReady returns the network status that the runtime reports.
func (c *containerd) networkReady() (ready bool, message string) {
	c.t.Helper()
	response := c.must("Status", object{"verbose": true})
	for _, condition := range response["status"].(object)["conditions"].([]any) {
		if condition := condition.(object); condition["type"] == "NetworkReady" {
			ready, _ = condition["status"].(bool)
			message, _ = condition["message"].(string)
		}
	}
	loaded, _ := response["info"].(object)["lastCNILoadStatus"].(string)
	return ready, message + ": " + loaded
}

// configure writes a network with more plugins after portmap and waits until the runtime has loaded
// it. The network offers a version that containerd supports and one with GC.
func (c *containerd) configure(more string) {
	c.t.Helper()
	c.write(podNetwork, `{"cniVersion":"1.0.0","cniVersions":["1.0.0","1.1.0"],"name":"pods","plugins":[
		{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"hairpinMode":true,"ipam":{"type":"host-local",
			"ranges":[[{"subnet":"10.85.0.0/16"}],[{"subnet":"fd00:85::/64"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}},
		{"type":"portmap","capabilities":{"portMappings":true}}`+more+`]}`)
	c.await("network", c.ready)
}

// ready returns an error unless the runtime reports a network.
func (c *containerd) ready() error {
	if ready, message := c.networkReady(); !ready {
		return errors.New(message)
	}
	return nil
}

// served checks that a pod is reachable at its addresses and at its host port.
func (c *containerd) served(id string, hostPort string, outside *testnet.Namespace) {
	c.t.Helper()
	addresses, _ := c.addresses(id)
	if len(addresses) != 2 {
		c.t.Errorf("addresses %q, want one per family", addresses)
	}
	for _, a := range addresses {
		greeted(c.t, c.Host, net.JoinHostPort(a, "80"), true)
	}
	for _, host := range []string{"192.0.2.1", "2001:db8::1"} {
		greeted(c.t, c.Host, net.JoinHostPort(host, hostPort), true)
		greeted(c.t, outside, net.JoinHostPort(host, hostPort), true)
	}
}
