//go:build packages

package packages_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// packageFile returns the package of a version for this test, which scripts/test-packages built.
func packageFile(t *testing.T, version, format string) string {
	t.Helper()
	pattern := filepath.Join(os.Getenv("TENON_PACKAGES"), "tenon_"+version+"_linux_*."+format)
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %q, %v: run scripts/test-packages", pattern, found, err)
	}
	return found[0]
}

// The versions of the packages; the later one is a pre-release.
const older, newer = "0.1.0", "0.2.0-rc.1"

var gateway = net.IPv4(10, 99, 0, 1)

// upstreamPackage installs the upstream plugins as a user of Debian does.
const upstreamPackage = "dpkg -i /root/debs/containernetworking-plugins_*.deb"

// attach creates a network and attaches a container, as in the first steps of the README.
func (m *machine) attach() {
	m.Helper()
	m.run("tenon net new pods --type bridge --subnet 10.99.0.0/24 --with portmap,firewall")
	m.run("sed -i 's/1.1.0/1.0.0/' /etc/cni/net.d/10-pods.conflist") // Debian's upstream plugins are older
	m.run("ip netns add web")
	m.run("tenon add pods web")
	m.run("ip netns exec web ping -c 1 -W 5 " + gateway.String())
}

// detached removes the objects that stay after the last container: the bridge and the configuration.
func (m *machine) detached() {
	m.Helper()
	m.run("ip netns del web")
	m.run("for link in $(ip -o link | awk -F'[ :@]+' '/tenon|cni/ {print $2}'); do ip link del $link; done")
	m.run("rm -rf /etc/cni")
}

// TestDebian installs, upgrades, downgrades, hands over and purges the package. The attachment of a
// container and its traffic survive each step, and nothing is left at the end.
func TestDebian(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.state()
	first, second := m.give(packageFile(t, older, "deb")), m.give(packageFile(t, newer, "deb"))

	start := time.Now()
	m.run("dpkg -i " + first)
	m.attach()
	t.Logf("from the package to a container that pings: %.1f s", time.Since(start).Seconds())
	runs(m, "0.1.0")
	if links := m.run("find /opt/cni/bin -lname '/usr/lib/tenon/cni/*' | wc -l"); links != "20\n" {
		t.Errorf("%s links", links)
	}

	p := m.ping("web", gateway)
	m.run(upstreamPackage) // the trigger diverts its files
	m.run(`update-alternatives --query usr-lib-cni-bridge | grep -x 'Value: /usr/lib/tenon/cni/bridge'`)
	m.run("tenon plugin bridge --help >/dev/null && cmp /usr/lib/cni/bridge /usr/bin/tenon")
	m.run("update-alternatives --set usr-lib-cni-bridge /usr/lib/cni/bridge.distrib")
	m.run("! cmp -s /usr/lib/cni/bridge /usr/bin/tenon")
	m.run("tenon install --system") // respects the choice
	m.run("! cmp -s /usr/lib/cni/bridge /usr/bin/tenon")
	m.run("update-alternatives --auto usr-lib-cni-bridge")

	m.run("dpkg -i " + second)
	runs(m, newer)
	m.run("tenon check pods web")
	m.run("dpkg -i " + first) // a downgrade
	runs(m, "0.1.0")
	m.run("tenon check pods web")

	links := m.run("find /opt/cni/bin /usr/lib/cni -type l | sort")
	m.refuse("dpkg -r tenon", "containers are attached: pods/web/eth0", "tenon uninstall --keep-attachments",
		"tenon: the package stays")
	m.run("dpkg-query -W -f '${db:Status-Abbrev}' tenon | grep '^[ir]i' # dpkg keeps the wish")
	m.run("tenon net new later --type bridge --subnet 10.98.0.0/24; tenon add later web --ifname eth1") // CNI 1.1.0
	m.refuse("dpkg -r tenon", "containers in later cannot be detached with bridge, host-local",
		"in /usr/lib/cni: no support for CNI 1.1.0", "hint: detach these containers first, or install newer")
	m.run("tenon del later web --ifname eth1; tenon net rm later")
	if now := m.run("find /opt/cni/bin /usr/lib/cni -type l | sort"); now != links {
		t.Errorf("links after a refused removal:\n%s\nbefore:\n%s", now, links)
	}
	m.run("tenon check pods web")
	runs(m, "0.1.0")

	m.run("tenon uninstall --keep-attachments --dry-run")
	m.run("tenon uninstall --keep-attachments")
	m.run("dpkg -r tenon")
	m.run("test ! -e /usr/bin/tenon && test ! -L /usr/lib/cni/bridge && test ! -e /opt/cni")
	p.done()
	m.upstreamDel()
	m.detached()
	m.run("dpkg -P tenon containernetworking-plugins")
	m.run("iptables -F; iptables -X; iptables -t nat -F; iptables -t nat -X; nft flush ruleset")
	m.unchanged(before)
}

// runs compares the version of the installed program.
func runs(m *machine, want string) {
	m.Helper()
	if got := m.run("tenon --version"); got != "tenon version "+want+"\n" {
		m.Errorf("%s, expected version %s", got, want)
	}
}

// upstreamDel detaches the container with the upstream plugins, as a runtime with libcni does.
func (m *machine) upstreamDel() {
	m.Helper()
	var cached struct {
		Config []byte
		Result json.RawMessage
	}
	must(m.T, json.Unmarshal([]byte(m.run("cat /var/lib/cni/results/pods-*-eth0")), &cached))
	var list struct {
		CNIVersion, Name string
		Plugins          []map[string]any
	}
	must(m.T, json.Unmarshal(cached.Config, &list))
	for _, plugin := range slices.Backward(list.Plugins) {
		conf := map[string]any{"cniVersion": list.CNIVersion, "name": list.Name, "prevResult": cached.Result}
		maps.Copy(conf, plugin)
		stdin, err := json.Marshal(conf)
		must(m.T, err)
		cmd := m.command(m.Context(), fmt.Sprintf(`CNI_COMMAND=DEL CNI_CONTAINERID=$(basename /var/lib/cni/results/pods-*-eth0 |
			sed 's/pods-\(.*\)-eth0/\1/') CNI_NETNS=/run/netns/web CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni
			export CNI_COMMAND CNI_CONTAINERID CNI_NETNS CNI_IFNAME CNI_PATH; /usr/lib/cni/%s`, plugin["type"]))
		cmd.Stdin = strings.NewReader(string(stdin))
		if out, err := cmd.CombinedOutput(); err != nil {
			m.Errorf("DEL of %v: %v\n%s", plugin["type"], err, out)
		}
	}
	m.run("! ip -n web link show eth0")
	m.run("rm /var/lib/cni/results/pods-*-eth0; rm -r /var/lib/cni/networks")
}

// TestDebianRestores installs the package on a host with plugins of another package and of no package, and
// purges it. Both are as before.
func TestDebianRestores(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.run(upstreamPackage)
	m.run("mkdir -p /opt/cni/bin; cp /usr/lib/cni/bridge /opt/cni/bin/bridge; echo other >/opt/cni/bin/calico")
	m.run("ln -s /usr/lib/cni/ptp /opt/cni/bin/ptp")
	before := m.state()
	m.run("dpkg -i " + m.give(packageFile(t, older, "deb")))
	m.run("cmp /opt/cni/bin/bridge /usr/bin/tenon && cmp /usr/lib/cni/bridge /usr/bin/tenon")
	m.run("dpkg --verify containernetworking-plugins && dpkg --verify tenon")
	m.run("dpkg -i /root/debs/containernetworking-plugins_*.deb") // its upgrade goes to the diverted names
	m.run("cmp /usr/lib/cni/bridge /usr/bin/tenon && dpkg --verify containernetworking-plugins")
	m.run("dpkg -P tenon")
	m.unchanged(before)
}

// TestDebianOtherPackageRemoved removes the package of the upstream plugins first.
func TestDebianOtherPackageRemoved(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.state()
	m.run(upstreamPackage)
	m.run("dpkg -i " + m.give(packageFile(t, older, "deb")))
	m.run("dpkg -P containernetworking-plugins")
	m.run("test ! -e /usr/lib/cni && cmp /opt/cni/bin/bridge /usr/bin/tenon")
	m.run("dpkg -P tenon")
	m.unchanged(before)
}

// TestRPM installs, upgrades and removes the rpm package in a root. rpm runs on the host, in the
// namespaces of the machine.
func TestRPM(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	rpm := func(args string) string { return "rpm --root " + m.root + " " + args }
	m.inside(rpm("--initdb"))
	before := m.state()
	m.inside(rpm("--nodeps --ignoreos -i " + packageFile(t, older, "rpm")))
	m.inside(rpm("-V --nodeps tenon"))
	m.attach()
	p := m.ping("web", gateway)
	m.inside(rpm("--nodeps --ignoreos -U " + packageFile(t, newer, "rpm")))
	runs(m, newer)
	m.run("tenon check pods web")
	m.inside(rpm("--nodeps --ignoreos -U --oldpackage " + packageFile(t, older, "rpm")))
	runs(m, "0.1.0")
	m.run("tenon check pods web")
	if out, err := m.insideTry(rpm("-e tenon")); err == nil ||
		!strings.Contains(out, "tenon uninstall --keep-attachments") {
		t.Errorf("removal with an attachment: %v\n%s", err, out)
	}
	m.run("tenon check pods web")
	p.done()
	m.run("tenon del pods web; ip netns del web; tenon net rm pods")
	m.inside(rpm("-e tenon"))
	m.unchanged(before)
}

// inside runs a command of the host in the namespaces of the machine.
func (m *machine) inside(line string) {
	m.Helper()
	if out, err := m.insideTry(line); err != nil {
		m.Fatalf("%s: %v\n%s", line, err, out)
	}
}
