//go:build packages

package packages_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestDebianOverScript installs the package on a host where the install script installed Tenon and
// a container is attached, and then removes the files of the script. The attachment survives, and the
// machine is as before when the package is purged.
func TestDebianOverScript(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.run("mkdir -p /opt/cni/bin; echo upstream >/opt/cni/bin/ptp")
	before := m.state()
	first := m.release(older)
	m.run("sh " + first + "/install.sh --from " + first)
	m.attach()
	p := m.ping("web", gateway)

	out := m.run("dpkg -i " + m.give(packageFile(t, newer, "deb")))
	if !strings.Contains(out, "hint: remove it: /usr/local/bin/tenon uninstall") {
		t.Errorf("no hint in %s", out)
	}
	m.run("cmp /opt/cni/bin/bridge /usr/bin/tenon && cmp /opt/cni/bin/ptp /usr/bin/tenon")
	m.run("/usr/bin/tenon check pods web")
	m.refuse("dpkg -r tenon", "containers are attached: pods/web/eth0")
	m.refuse("sh "+first+"/install.sh --from "+first, "Tenon is installed as a package")

	plan := m.run("/usr/local/bin/tenon uninstall --dry-run 2>/dev/null")
	if done := m.run("/usr/local/bin/tenon uninstall 2>/dev/null"); strings.ReplaceAll(plan, "would ", "") != done {
		t.Errorf("--dry-run printed\n%s\nand the removal\n%s", plan, done)
	}
	m.run("! find /usr/local /opt/cni/bin -name '*tenon*' -type f | grep -vE '/(ptp.before|.created-by)-tenon'")
	runs(m, newer)
	m.run("tenon check pods web")
	p.done()
	m.run("tenon del pods web; tenon net rm pods; ip netns del web; dpkg -P tenon")
	m.unchanged(before)
}

// TestDebianOverInstall installs the package over plugins that "tenon install" installed over plugins
// of the distribution and of no package, and purges it. The upstream plugins are as before.
func TestDebianOverInstall(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.run(upstreamPackage)
	m.run("mkdir -p /opt/cni/bin; echo upstream >/opt/cni/bin/ptp")
	before := m.state()
	deb := m.give(packageFile(t, older, "deb"))
	m.run("dpkg-deb -x " + deb + " /root/unpacked; ! /root/unpacked/usr/bin/tenon install /opt/cni/bin | grep -q Error")
	m.run("/root/unpacked/usr/bin/tenon install /usr/lib/cni")
	m.run("dpkg -i " + deb + "; dpkg --verify tenon")
	m.run("cmp /usr/lib/cni/bridge.distrib /usr/lib/cni/bridge.before-tenon") // the upstream plugin
	m.run("tenon install --system; cmp /usr/lib/cni/bridge /usr/bin/tenon")
	m.attach()
	m.refuse("tenon install /opt/cni/bin", "the package tenon has linked its plugins in /opt/cni/bin", "apt remove tenon")
	m.refuse("tenon install /usr/lib/cni", "the package tenon has linked its plugins in /usr/lib/cni")
	m.run("tenon del pods web; tenon net rm pods; ip netns del web; dpkg -P tenon")
	m.unchanged(before)
}

// TestDebianBothUpgraded upgrades the package and the distribution's plugins in one run, in both
// orders, under traffic.
func TestDebianBothUpgraded(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	// A later version of the distribution's package, with another plugin.
	m.run(`cd /root; dpkg-deb -R debs/containernetworking-plugins_*.deb next; echo new >next/usr/lib/cni/new
echo >>next/usr/lib/cni/bridge; sed -i 's/^Version: .*/&+b9/' next/DEBIAN/control; dpkg-deb -Zgzip -b next next.deb`)
	first, second := m.give(packageFile(t, older, "deb")), m.give(packageFile(t, newer, "deb"))
	m.run("dpkg -i /root/next.deb")
	before := m.state()
	m.run(upstreamPackage)
	m.run("dpkg -i " + first)
	m.attach()
	p := m.ping("web", gateway)
	for _, run := range []string{"/root/next.deb " + second, first + " /root/debs/*.deb"} {
		m.run("dpkg -i " + run)
		m.run("cmp /usr/lib/cni/bridge /usr/bin/tenon && cmp /opt/cni/bin/bridge /usr/bin/tenon")
		m.run("tenon check pods web; dpkg --verify tenon containernetworking-plugins")
	}
	m.run("dpkg --unpack /root/next.deb " + second + "; dpkg --configure -a")
	m.run("tenon check pods web; dpkg --verify tenon containernetworking-plugins")
	m.run("test ! -L /usr/lib/cni/new")
	runs(m, newer)
	p.done()
	m.run("tenon del pods web; tenon net rm pods; ip netns del web; dpkg -P tenon")
	m.unchanged(before)
}

// killer replaces a program of dpkg by a script that counts its runs. In the run with the given
// number, it kills tenon and the maintainer script above it, and dpkg too if that is requested.
const killer = `#!/bin/sh
n=$(cat /root/runs 2>/dev/null || echo 0)
n=$((n + 1))
echo $n >/root/runs
if [ $n = "$(cat /root/kill-at)" ]; then
	script=$(ps -o ppid= -p $PPID)
	[ ! -e /root/kill-dpkg ] || kill -9 $(ps -o ppid= -p $script) $(pidof dpkg)
	kill -9 $script $PPID
	exit 1
fi
exec /usr/bin/${0##*/} "$@"
`

// TestDebianInterrupted kills the scripts of the package in the middle of the installation and of the
// removal, and dpkg with them, at several points. Afterwards, dpkg finishes both.
func TestDebianInterrupted(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.run(upstreamPackage)
	m.run("mkdir -p /opt/cni/bin; echo upstream >/opt/cni/bin/ptp")
	before := m.state()
	first := m.give(packageFile(t, older, "deb"))
	m.run("dpkg -i " + first)
	installed := m.state()
	m.run("dpkg -P tenon")
	m.write("/root/killer", killer)
	// dpkg and the scripts find these programs first.
	kill := func(at int, line string) {
		m.run(fmt.Sprintf("echo 0 >/root/runs; echo %d >/root/kill-at; chmod +x /root/killer", at))
		m.run("for p in update-alternatives dpkg-divert; do cp /root/killer /usr/local/bin/$p; done")
		m.refuse(line)
		m.run("rm /usr/local/bin/update-alternatives /usr/local/bin/dpkg-divert")
		m.run("! dpkg-query -W -f '${db:Status-Abbrev}' tenon | grep '^ii'")
	}
	for _, at := range []int{1, 2, 3, 17, 48} {
		for _, dpkg := range []string{"rm -f /root/kill-dpkg", "touch /root/kill-dpkg"} {
			m.run(dpkg)
			kill(at, "dpkg -i "+first)
			m.run("dpkg --configure -a")
			m.same(installed, m.state())
			kill(at, "dpkg -r tenon")
			m.run("dpkg --configure -a; dpkg -P tenon")
			m.same(before, m.state())
		}
	}
	// An installation that was killed can also be removed at once.
	kill(17, "dpkg -i "+first)
	m.run("dpkg -P tenon")
	m.same(before, m.state())
}

// TestDebianNoSpace installs the package while /opt is read-only, and while it is full: the
// installation fails with a reason, dpkg finishes it later, or removes it.
func TestDebianNoSpace(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	first := m.give(packageFile(t, older, "deb"))
	for name, c := range map[string]struct{ options, repair, want string }{
		"read-only":      {"ro", "rw", "read-only file system"},
		"full directory": {"nr_inodes=9", "nr_inodes=0", "no space left on device"},
		"full":           {"nr_inodes=2", "nr_inodes=0", "no space left on device"},
	} {
		t.Log(name)
		mount := "mount -t tmpfs -o "
		m.run(mount + c.options + " opt /opt")
		before := m.state()
		m.refuse("dpkg -i "+first, c.want, "hint: ")
		m.run("dpkg -P tenon")
		m.unchanged(before)
		m.refuse("dpkg -i "+first, c.want)
		m.run("mount -o remount," + c.repair + " /opt")
		m.run("dpkg --configure -a; dpkg --verify tenon")
		m.attach()
		m.run("mount -o remount," + c.options + " /opt || :")    // a full directory cannot shrink
		m.run("dpkg -i " + m.give(packageFile(t, newer, "deb"))) // has nothing to write there
		m.run("tenon check pods web; tenon del pods web; tenon net rm pods; ip netns del web")
		m.run("mount -o remount," + c.repair + " /opt; dpkg -P tenon")
		m.unchanged(before)
		m.run("umount /opt")
	}
}

// TestScriptNoSpace runs the install script with a full or read-only file system. It changes nothing,
// or a second run or "tenon uninstall" cleans up.
func TestScriptNoSpace(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	first := m.release(older)
	install := "sh " + first + "/install.sh --from " + first
	for _, c := range []struct {
		dir, options, want string
		files              bool // are installed
	}{
		{"/opt", "ro", "no permission to write to /opt", false},
		{"/usr/local", "ro", "no permission to write to /usr/local", false},
		{"/usr/local", "size=16m", "cannot write /usr/local/bin/tenon", false},
		{"/usr/local", "size=8k", "cannot write /usr/local/share/", false},
		{"/opt", "nr_inodes=9", "hint: run the script again when this is fixed, or remove Tenon", true},
	} {
		m.run("mount -t tmpfs -o " + c.options + " full " + c.dir)
		before := m.state()
		m.refuse(install, c.want)
		if c.files {
			m.run("tenon uninstall")
		}
		m.unchanged(before)
		m.run("mount -o remount,rw,size=90%,nr_inodes=0 " + c.dir)
		m.run(install)
		m.run("tenon uninstall")
		m.unchanged(before)
		m.run("umount " + c.dir)
	}
}

// write writes a file of the machine.
func (m *machine) write(path, content string) {
	m.Helper()
	cmd := m.command(m.Context(), "cat >"+path)
	cmd.Stdin = strings.NewReader(content)
	if out, err := cmd.CombinedOutput(); err != nil {
		m.Fatalf("%s: %v\n%s", filepath.Base(path), err, out)
	}
}
