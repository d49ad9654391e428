//go:build packages

package packages_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// masked lists units that would change settings of the host's kernel, or wait for devices.
var masked = []string{"systemd-sysctl.service", "systemd-modules-load.service", "systemd-udevd.service",
	"systemd-remount-fs.service", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
	"sys-kernel-config.mount", "sys-fs-fuse-connections.mount", "dev-hugepages.mount", "dev-mqueue.mount",
	"getty.target", "console-getty.service", "timers.target", "e2scrub_reap.service"}

// bootSystemd starts systemd in a machine, in a control group of its own.
func bootSystemd(t *testing.T) *machine {
	t.Helper()
	m := unpack(t, debianRoot)
	units := filepath.Join(m.root, "etc/systemd/system")
	for _, unit := range masked {
		_ = os.Remove(filepath.Join(units, unit))
		must(t, os.Symlink("/dev/null", filepath.Join(units, unit)))
	}
	must(t, os.WriteFile(filepath.Join(m.root, "etc/machine-id"), []byte(strings.Repeat("1", 32)+"\n"), 0o444))
	group := newGroup(t)
	m.cgroup = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	const init = `mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=0755 dev "$root/dev"
mkdir "$root/dev/shm" "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx" # PrivateDevices= requires it
for node in "null 3" "zero 5" "full 7" "random 8" "urandom 9"; do
	mknod -m 666 "$root/dev/${node% *}" c 1 "${node#* }"
done
cd "$root"
pivot_root . . # systemd makes sandboxes only in the root of its mount namespace
umount -l .
cd /
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
	/lib/systemd/systemd --system --unit=multi-user.target --show-status=no`
	m.pivoted = true
	start(t, m, "env", "root="+m.root, "sh", "-ec", init)
	for {
		state, _ := m.try("systemctl is-system-running --wait || :")
		if s := strings.TrimSpace(state); strings.HasSuffix(s, "running") || strings.HasSuffix(s, "degraded") {
			return m
		}
		if t.Context().Err() != nil {
			t.Fatal("systemd does not run")
		}
	}
}

// newGroup makes a control group below the unified hierarchy, and removes it after the test.
func newGroup(t *testing.T) *os.File {
	t.Helper()
	top := "/sys/fs/cgroup"
	if _, err := os.Stat(top + "/unified/cgroup.procs"); err == nil {
		top += "/unified"
	}
	dir, err := os.MkdirTemp(top, "tenon-packages-")
	must(t, err)
	t.Cleanup(func() { must(t, removeGroup(dir)) })
	f, err := os.Open(dir)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// removeGroup removes a control group and the groups below it, when their last processes have ended.
func removeGroup(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0); err != nil {
		return err
	}
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	for _, d := range slices.Backward(dirs) {
		for {
			err := syscall.Rmdir(d)
			if err == nil || !errors.Is(err, syscall.EBUSY) {
				break
			}
		}
	}
	return err
}

// TestUnitsRun runs the units under systemd: each does its work inside its sandbox.
func TestUnitsRun(t *testing.T) {
	m := bootSystemd(t)
	m.run("dpkg -i " + m.give(packageFile(t, older, "deb")))

	m.attach()
	m.Cleanup(func() {
		if m.Failed() {
			_, _ = m.try("journalctl --no-pager --unit 'tenon-*'; systemctl --failed --no-pager")
		}
	})
	m.run("nft flush ruleset; systemctl enable --now tenon-repair.service")
	m.run("tenon check pods web")
	m.run("nft flush ruleset; systemctl reload tenon-repair.service; tenon check pods web")

	m.run("systemctl enable --now tenon-watch.service") // until its first comparison has ended
	m.run("nft flush ruleset; ip address flush dev cni0")
	m.wait("tenon check pods web")
	m.run("systemctl reload tenon-watch.service; systemctl restart tenon-watch.service")
	m.run("systemctl is-active tenon-watch.service; journalctl --unit tenon-watch.service | grep 'flushed table inet tenon'")

	m.run("ip link add lan0 type bridge; ip address add 10.98.0.1/24 dev lan0; ip link set lan0 up")
	m.inside("dnsmasq --conf-file=/dev/null --port=0 --interface=lan0 --dhcp-range=10.98.0.10,10.98.0.20,2m " +
		"--dhcp-leasefile=/dev/null --pid-file= --user=root")
	m.run("systemctl enable --now tenon-dhcp.socket tenon-dhcp.service")
	m.run(`echo '{"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": "bridge", "bridge": "lan0",
		"ipam": {"type": "dhcp"}}]}' >/etc/cni/net.d/20-lan.conflist; ip netns add phone; tenon add lan phone`)
	m.run("ip netns exec phone ping -c 1 -W 5 10.98.0.1")
	m.run("systemctl restart tenon-dhcp.service; tenon dhcp list | grep ' phone '")

	m.inside("etcd --data-dir " + m.root + "/root/etcd --log-level error >/dev/null 2>&1 &")
	m.run(`mkdir /etc/tenon; echo '{"endpoints": ["http://127.0.0.1:2379"], "node": "n1",
		"routes": {"mode": "vxlan", "addresses": ["10.98.0.1"]}}' >/etc/tenon/cluster.json`)
	m.run("tenon-cluster init; tenon-cluster pool create shared 10.64.0.0/16")
	m.run("systemctl enable --now tenon-cluster.service") // until it is ready
	m.run(`echo '{"cniVersion": "1.0.0", "name": "shared", "plugins": [{"type": "bridge", "bridge": "shared0",
		"isGateway": true, "ipMasq": true, "ipam": {"type": "cluster", "pool": "shared"}}]}' >/etc/cni/net.d/30-shared.conflist`)
	m.run("ip netns add db; tenon add shared db; tenon-cluster status")
	m.wait("ip route show type blackhole proto 117 | grep 10.64.") // the pool and the own block
	m.wait("nft list ruleset | grep 10.64.0.0")
	m.run("systemctl restart tenon-cluster.service; tenon check shared db")
	if failed := m.run("systemctl --failed --plain --no-legend | grep tenon || :"); failed != "" {
		t.Error(failed)
	}
	m.refuse("dpkg -r tenon", "containers are attached")
	m.run("tenon del pods web; tenon del lan phone; tenon del shared db; dpkg -P tenon")
	m.run("! systemctl is-active --quiet tenon-dhcp.service tenon-dhcp.socket tenon-cluster.service tenon-watch.service")
	m.run("! find /etc/systemd/system -name 'tenon*' | grep .")
	m.run("! nft list tables | grep tenon")
	m.run("! ip route show proto 117 | grep .")
}

// wait runs a command until it succeeds.
func (m *machine) wait(line string) {
	m.Helper()
	m.run("for i in $(seq 60); do if " + line + "; then exit 0; fi; sleep 1; done; journalctl --no-pager; exit 1")
}
