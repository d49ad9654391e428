//go:build packages

package packages_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// release copies the archive of a version and install.sh into a directory below /root, with the
// checksums that a user would download too, and returns the directory.
func (m *machine) release(version string) string {
	m.Helper()
	dir := "/root/release-" + version
	must(m.T, os.Mkdir(filepath.Join(m.root, dir), 0o755))
	for _, file := range []string{
		packageFile(m.T, version, "tar.gz"), filepath.Join(os.Getenv("TENON_PACKAGES"), "install.sh"),
	} {
		m.run("mv " + m.give(file) + " " + dir)
	}
	m.run("cd " + dir + " && sha256sum *.tar.gz >SHA256SUMS")
	return dir
}

// TestInstallScript installs the archive with the install script next to plugins of the distribution
// and copies of them, upgrades and downgrades under traffic, hands the attachment over, and removes
// everything. The machine is as before.
func TestInstallScript(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.run(upstreamPackage)
	m.run("mkdir -p /opt/cni/bin; cp -a /usr/lib/cni/. /opt/cni/bin; echo other >/opt/cni/bin/calico")
	before := m.state()
	first, second := m.release(older), m.release(newer)

	start := time.Now()
	m.run("sh " + first + "/install.sh --from " + first)
	m.attach()
	t.Logf("from the archive to a container that pings: %.1f s", time.Since(start).Seconds())
	runs(m, "0.1.0")
	m.run("test -e /usr/local/share/man/man8/tenon.8 -a -e /usr/local/share/bash-completion/completions/tenon")
	m.run("! grep -rE '/usr/bin/tenon' /usr/local/lib/systemd/system")
	m.run("systemd-analyze --man=no verify /usr/local/lib/systemd/system/tenon-*; rm -r /run/systemd")
	m.run("cmp /opt/cni/bin/bridge /usr/local/bin/tenon && cmp /opt/cni/bin/ovs /usr/local/bin/tenon-ovs")
	m.run("cmp /opt/cni/bin/bridge.before-tenon /usr/lib/cni/bridge")

	p := m.ping("web", gateway)
	m.run("cd " + second + " && tar xzf *.tar.gz && sh tenon_*/install.sh") // an unpacked archive
	runs(m, newer)
	m.run("tenon check pods web")
	m.run("sh " + first + "/install.sh --from " + first)
	runs(m, "0.1.0")
	m.run("tenon check pods web")
	m.run("mkdir -p /usr/lib/tenon/cni") // as a package has it
	m.refuse("sh "+first+"/install.sh --from "+first, "Tenon is installed as a package")
	m.run("rm -r /usr/lib/tenon")

	m.refuse("tenon uninstall", "containers are attached: pods/web/eth0", "--keep-attachments")
	plan := m.run("tenon uninstall --keep-attachments --dry-run 2>/dev/null")
	done := m.run("/usr/local/bin/tenon uninstall --keep-attachments 2>/dev/null")
	if strings.ReplaceAll(plan, "would ", "") != done {
		t.Errorf("the list of --dry-run is\n%s\nand the removal printed\n%s", plan, done)
	}
	p.done()
	m.upstreamDel()
	m.detached()
	m.run("rm -r /var/lib/cni") // libcni's directories, which the handover fills
	m.run("iptables -F; iptables -X; iptables -t nat -F; iptables -t nat -X; nft flush ruleset")
	m.unchanged(before)
}
