package ovs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/ovslab"
)

// pluginsEnv names the directory of the installed plugins.
const pluginsEnv = "TENON_PLUGINS"

// TestMain runs the tests with the plugins in the directory that the environment names. By default
// it installs the plugins of this tree first, and runs the tests in another process.
func TestMain(m *testing.M) {
	if os.Getenv(pluginsEnv) != "" {
		testnet.Main(m)
	}
	status, err := install(func(plugins string) (int, error) {
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Env = append(os.Environ(), pluginsEnv+"="+plugins)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		err := cmd.Run()
		if child := (*exec.ExitError)(nil); errors.As(err, &child) {
			return child.ExitCode(), nil
		}
		return 0, err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// install installs the plugins of this tree into a directory that exists until run returns.
func install(run func(plugins string) (int, error)) (int, error) {
	dir, err := os.MkdirTemp("", "tenon-ovs-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	for _, args := range [][]string{
		{"go", "-C", "../../cmd", "build", "-o", dir, "./tenon", "./tenon-dhcp"},
		{"go", "-C", "../../cmd/tenon-ovs", "build", "-o", dir + "/", "."},
		{dir + "/tenon", "install", dir + "/plugins"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("%v: %w\n%s", args, err, out)
		}
	}
	return run(dir + "/plugins")
}

// family is the address family of the underlay.
type family int

const (
	ipv4 family = 4
	ipv6 family = 6
)

// host is a node with Open vSwitch and bridge ovs0.
type host struct {
	*testnet.Net
	t       testing.TB
	sw      *ovslab.Switch
	plugins string
	number  int
	local   netip.Addr // its address in the underlay
}

// cluster is a number of hosts on one Ethernet.
type cluster struct {
	hosts   []*host
	remotes []netip.Addr // the addresses of all hosts in the underlay
}

// start starts Open vSwitch with one of the datapaths.
type start func(testing.TB, *testnet.Namespace) *ovslab.Switch

// datapaths are all datapaths.
var datapaths = map[string]start{"userspace": ovslab.Start, "kernel": ovslab.StartKernel}

// everywhere runs a test with each datapath and each family of the underlay.
func everywhere(t *testing.T, test func(*testing.T, start, family)) {
	for name, start := range datapaths {
		for _, f := range []family{ipv4, ipv6} {
			t.Run(fmt.Sprintf("%s over IPv%d", name, f), func(t *testing.T) {
				t.Parallel()
				test(t, start, f)
			})
		}
	}
}

func newCluster(t testing.TB, size int, start start, f family) *cluster {
	t.Helper()
	c := &cluster{}
	var switches []*ovslab.Switch
	for i := range size {
		n := testnet.New(t)
		n.Host.Name = fmt.Sprintf("host%d", i)
		h := &host{Net: n, t: t, sw: start(t, n.Host), plugins: os.Getenv(pluginsEnv), number: i}
		h.sw.Bridge("ovs0")
		v4, v6 := ovslab.Underlay(i)
		h.local = v4
		if f == ipv6 {
			h.local = v6
		}
		c.hosts = append(c.hosts, h)
		c.remotes = append(c.remotes, h.local)
		switches = append(switches, h.sw)
	}
	if size > 1 {
		ovslab.Connect(t, switches...)
	}
	return c
}

// conf is a configuration.
type conf map[string]any

// segment returns the configuration of a segment of all hosts, for one of them.
func (c *cluster) segment(h *host, vni int) conf {
	return conf{"vxlanID": vni, "vxlanRemotes": c.remotes, "vxlanLocalIP": h.local}
}

// with returns a copy with a static address.
func (c conf) with(address string) conf {
	c = maps.Clone(c)
	c["ipam"] = conf{"type": "static", "addresses": []conf{{"address": address}}}
	return c
}

// call runs the installed plugin on the host, for an attachment of a container.
func (h *host) call(verb cni.Command, container string, c conf) ([]byte, error) {
	netns := ""
	if verb != cni.GC && verb != cni.Status {
		netns = h.Container(container).Path()
	}
	return h.run(verb, cni.Env{ContainerID: container, IfName: "eth0", Netns: netns}, c)
}

// attach attaches a namespace that is not a container of the host.
func (h *host) attach(container, netns, ifName string, c conf) {
	h.t.Helper()
	_, err := h.run(cni.Add, cni.Env{ContainerID: container, IfName: ifName, Netns: netns}, c)
	if err != nil {
		h.t.Fatal(err)
	}
}

// run runs the installed plugin. It is started by a program with arguments if under names one.
func (h *host) run(verb cni.Command, env cni.Env, c conf, under ...string) ([]byte, error) {
	full := conf{"cniVersion": "1.1.0", "name": "net", "type": "ovs", "bridge": "ovs0",
		"socket_file": h.sw.Socket()}
	maps.Copy(full, c)
	stdin, err := json.Marshal(full)
	if err != nil {
		return nil, err
	}
	command := append(under, filepath.Join(h.plugins, "ovs"))
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+string(verb), "CNI_PATH="+h.plugins,
		"CNI_CONTAINERID="+env.ContainerID, "CNI_IFNAME="+env.IfName, "CNI_NETNS="+env.Netns)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(stdin), &stderr
	var out []byte
	err = h.Host.Run(func() (err error) {
		out, err = cmd.Output()
		return err
	})
	if err != nil {
		err = fmt.Errorf("%s %s on %s: %w: %s%s", verb, env.ContainerID, h.Host.Name, err, out, &stderr)
	}
	return out, err
}

// must is call for a call that succeeds.
func (h *host) must(verb cni.Command, container string, c conf) []byte {
	h.t.Helper()
	out, err := h.call(verb, container, c)
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

// add attaches a container with an address.
func (h *host) add(container string, c conf, address string) *testnet.Namespace {
	h.t.Helper()
	h.must(cni.Add, container, c.with(address))
	return h.Container(container)
}

// port returns the name of the host-side veth of a container.
func (h *host) port(container string) string {
	return attach.HostName(cni.Attachment{Network: "net", Container: container, IfName: "eth0"})
}

// addr returns an address of 10.9.0.0/16.
func addr(last ...int) netip.Addr {
	third := 0
	if len(last) == 2 {
		third = last[0]
	}
	return netip.AddrFrom4([4]byte{10, 9, byte(third), byte(last[len(last)-1])})
}

// raw is a result in the form of prevResult.
func raw(result []byte) json.RawMessage { return result }
