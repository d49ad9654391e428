package interop

import (
	"encoding/json"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// podman is a node with Podman, a plugin directory that can change, and Tenon.
type podman struct {
	*node
	tenon   string
	outside *testnet.Namespace
}

const podmanConf = `
[containers]
cgroups = "disabled"
apparmor_profile = "unconfined"
default_sysctls = []
log_driver = "k8s-file"
[engine]
runtime = "crun"
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
[network]
network_backend = "cni"
cni_plugin_dirs = ["/opt/cni/current"]
network_config_dir = "` + netDir + `"
`

func newPodman(t *testing.T) *podman {
	t.Helper()
	testnet.Require(t, testnet.Tool("podman"), testnet.Tool("conmon"), testnet.Tool("crun"))
	p := &podman{node: newNode(t)}
	p.tenon = p.install()
	p.outside = p.Uplink()
	p.plugins(plugins)
	p.write("/run/containers.conf", podmanConf)
	p.write("/run/storage.conf", "[storage]\ndriver = \"vfs\"\ngraphroot = \"/var/lib/containers\"\nrunroot = \"/run/containers\"\n")
	conf, err := os.ReadFile("../chain/testdata/87-podman-bridge.conflist") // the default network
	must(t, err)
	p.write(netDir+"/87-podman-bridge.conflist", strings.Replace(string(conf), `{`, `{"cniVersions": ["0.4.0", "1.1.0"],`, 1))
	p.podman("load", "--quiet", "--input", image(t))
	return p
}

// plugins makes Podman use the plugins of a directory from now on.
func (p *podman) plugins(dir string) {
	p.t.Helper()
	p.run("ln", "-sfn", dir, "/opt/cni/current")
}

func (p *podman) podman(args ...string) string {
	p.t.Helper()
	return p.run(append([]string{"env", "CONTAINERS_CONF=/run/containers.conf", "CONTAINERS_STORAGE_CONF=/run/storage.conf", "podman"}, args...)...)
}

// serve starts a container, with further options, that serves the greeting at port 8080 of the
// host.
func (p *podman) serve(name string, options ...string) {
	p.t.Helper()
	p.podman(append(append([]string{"run", "--detach", "--name", name, "--publish", "8080:80"}, options...), imageName)...)
}

func (p *podman) remove(name string) {
	p.t.Helper()
	p.podman("rm", "--force", "--time", "0", name)
}

// addresses returns the addresses of a container in its networks.
func (p *podman) addresses(name string) map[string][]string {
	p.t.Helper()
	var networks map[string]struct{ IPAddress, GlobalIPv6Address string }
	must(p.t, json.Unmarshal([]byte(p.podman("inspect", name, "--format", "{{json .NetworkSettings.Networks}}")), &networks))
	all := make(map[string][]string)
	for network, a := range networks {
		all[network] = append(all[network], a.IPAddress)
		if a.GlobalIPv6Address != "" {
			all[network] = append(all[network], a.GlobalIPv6Address)
		}
	}
	return all
}

// published checks whether a container is reachable at its host port.
func (p *podman) published(hosts ...string) {
	p.t.Helper()
	for _, host := range hosts {
		greeted(p.t, p.Host, net.JoinHostPort(host, "8080"), true)
		greeted(p.t, p.outside, net.JoinHostPort(host, "8080"), true)
	}
}

// TestPodman: Podman with Tenon's plugins, in its default network and in networks that containers
// join and leave while they run.
func TestPodman(t *testing.T) {
	t.Parallel()
	p := newPodman(t)
	dual := func() {
		t.Helper()
		p.podman("network", "create", "--subnet", "10.89.1.0/24", "--subnet", "fd00:89:1::/64", "dual")
	}
	dual()
	for _, network := range []string{"podman", "dual"} {
		p.serve("first", "--network", network)
		p.remove("first") // leaves the shared objects
	}
	p.podman("network", "rm", "dual")
	before := p.snapshot()
	p.serve("web")
	p.published("192.0.2.1")
	p.remove("web")
	p.unchanged(before)

	dual()
	p.podman("network", "create", "--subnet", "10.89.2.0/24", "other")
	if conf := p.run("cat", netDir+"/dual.conflist"); strings.Contains(conf, "dnsname") {
		t.Logf("Podman uses the plugin dnsname:\n%s", conf)
	}
	p.serve("web", "--network", "dual")
	p.published("192.0.2.1", "2001:db8::1")
	p.podman("network", "connect", "other", "web") // Podman requests the port again for this network
	addresses := p.addresses("web")
	if len(addresses["dual"]) != 2 || len(addresses["other"]) != 1 {
		t.Fatalf("addresses %q, want two and one", addresses)
	}
	for _, list := range addresses {
		for _, a := range list {
			greeted(t, p.Host, net.JoinHostPort(a, "80"), true)
		}
	}
	p.Host.Command("nft", "flush", "ruleset")
	p.podman("network", "reload", "web")
	p.published("192.0.2.1", "2001:db8::1")
	p.podman("network", "disconnect", "other", "web")
	greeted(t, p.Host, net.JoinHostPort(addresses["other"][0], "80"), false)
	p.published("192.0.2.1", "2001:db8::1")
	p.remove("web")
	p.serve("both", "--network", "dual:ip=10.89.1.77,ip=fd00:89:1::77,mac=02:00:00:aa:bb:cc", "--network", "other")
	p.published("192.0.2.1", "2001:db8::1")
	if got, want := p.addresses("both")["dual"], []string{"10.89.1.77", "fd00:89:1::77"}; !slices.Equal(got, want) {
		t.Errorf("addresses %q, want %q", got, want)
	}
	if links := p.podman("exec", "both", "busybox", "ip", "link"); !strings.Contains(links, "02:00:00:aa:bb:cc") {
		t.Errorf("the MAC address is not the requested one: %s", links)
	}
	p.remove("both")
	p.podman("network", "rm", "dual", "other")
	p.unchanged(before)
	p.nothingKept()
}

// TestPodmanTakeover: Podman detaches containers with the plugins of the other implementation.
// Tenon's GC removes objects that the upstream plugins do not know.
func TestPodmanTakeover(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	testnet.Require(t, testnet.Tool(upstream+"/bridge"), testnet.Tool("iptables"))
	p := newPodman(t)
	for _, dir := range []string{upstream, plugins} {
		p.plugins(dir)
		p.serve("first")
		p.remove("first") // leaves the shared objects
	}
	before := p.snapshot()

	p.plugins(upstream)
	p.serve("theirs")
	p.plugins(plugins)
	p.published("192.0.2.1")
	p.remove("theirs")
	p.unchanged(before)

	p.serve("ours")
	p.plugins(upstream)
	p.published("192.0.2.1")
	p.remove("ours")
	left := testnet.Diff(before, p.snapshot())
	for line := range strings.Lines(left) { // the upstream plugins do not know these
		if !strings.Contains(line, `inet tenon `) {
			t.Errorf("left: %s", line)
		}
	}
	if left == "" {
		t.Error("nothing is left for GC")
	}
	p.run(p.tenon, "gc", "podman", "--keep-none", "--all-runtimes", "--net-dir", netDir)
	p.unchanged(before)
	p.nothingKept()
}
