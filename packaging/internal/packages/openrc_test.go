//go:build packages

package packages_test

import "testing"

// TestOpenRC unpacks the apk package next to OpenRC, runs its scripts as apk does, and runs the
// services. Debian has no apk.
func TestOpenRC(t *testing.T) {
	t.Parallel()
	// supervise-daemon waits until the first process has reaped its child, as the shell does.
	m := start(t, unpack(t, debianRoot), "sh", "-c", "while sleep 1; do :; done")
	m.run("for deb in /root/openrc/*.deb; do dpkg-deb --fsys-tarfile $deb | tar x --keep-directory-symlink -C /; done; ldconfig")
	m.run(`touch /etc/insserv.conf
for service in localmount net; do # of the distribution
	printf '#!/sbin/openrc-run\nstart() { :; }\n' >/etc/init.d/$service
	chmod +x /etc/init.d/$service
done`)
	before := m.state()
	apk := m.give(packageFile(t, older, "apk"))
	m.run("mkdir /root/control; tar --warning=no-unknown-keyword -xzf " + apk + " -C /root/control --wildcards '.*'")
	unpack := "tar --warning=no-unknown-keyword --exclude '.*' -f " + apk
	m.run(unpack + " -xzC /; " + unpack + " -tz | grep -v '/$' >/root/files")
	m.run("/root/control/.post-install")
	// As after boot.
	m.run(`cd /run && mkdir openrc && cd openrc && touch softlevel && mkdir starting started stopping inactive \
wasinactive failed hotplugged daemons options exclusive scheduled tmp init.d`)
	m.attach()

	m.run("rc-update add tenon-repair default; nft flush ruleset; rc-service tenon-repair start; tenon check pods web")
	m.run("nft flush ruleset; rc-service tenon-repair restart; tenon check pods web")
	m.run("rc-service tenon-dhcp start")
	m.wait("tenon dhcp list 2>&1")
	m.run("pkill -KILL -x tenon-dhcp")
	m.wait("pgrep -x tenon-dhcp && tenon dhcp list 2>&1")
	m.run("old=$(pgrep -x tenon-dhcp); /root/control/.post-upgrade; ! pgrep -x tenon-dhcp | grep -x $old")
	m.run("rc-service tenon-cluster start; pgrep -f 'supervise-daemon tenon-cluster'")
	m.refuse("/root/control/.pre-deinstall", "containers are attached: pods/web/eth0")
	m.run("tenon check pods web; tenon del pods web; tenon net rm pods; ip netns del web")

	m.run("/root/control/.pre-deinstall")
	m.run("! pgrep -x 'tenon-dhcp|tenon-cluster'")
	m.run("! rc-update show | grep tenon")
	m.run("while read -r file; do rm -f /$file; done </root/files")
	m.run("for dir in $(sed -n 's,/[^/]*$,,p' /root/files | sort -ru); do rmdir -p /$dir 2>/dev/null || :; done")
	m.run("/root/control/.post-deinstall; rm -r /run/openrc")
	m.unchanged(before)
}
