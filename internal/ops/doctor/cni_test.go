package doctor

import (
	"encoding/json"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/nft"
	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// configured returns the healthy host with the state of the CNI side.
func configured() *State {
	s := healthy()
	pods := &s.Networks[0]
	pods.Plugins = append(pods.Plugins, Plugin{"portmap", json.RawMessage(`{"type":"portmap"}`)})
	s.Options.Records, s.Options.CacheDir = s.Records, "/var/lib/cni/cache"
	s.Options.NetDir, s.Options.PluginDirs = "/etc/cni/net.d", []string{"/opt/cni/bin"}
	web := s.Records[0].Attachment
	s.CNI = CNI{
		Files: []ConfigFile{{Path: pods.Source, Use: config.Chosen, Name: "pods", Default: true,
			Candidate: true}},
		Directories: []PluginDir{{Path: "/opt/cni/bin"}},
		Attachments: []Attachment{{Attachment: web, State: inspect.OK, Age: time.Hour,
			Runtime: "tenon", Netns: "/run/netns/web"}},
		Pools: []Pool{{Network: "pods", Dir: "/var/lib/cni/networks",
			Sets: []RangeSet{{"10.77.0.0/24", 253, 1}},
			Leases: []Lease{
				{Addr: netip.MustParseAddr("10.77.0.2"), Container: "web", IfName: "eth0",
					Age: time.Hour},
			}}},
	}
	for _, name := range []string{"bridge", "host-local", "portmap", "loopback"} {
		s.CNI.Plugins = append(
			s.CNI.Plugins,
			PluginFile{Dir: "/opt/cni/bin", Name: name, Mode: 0o755,
				Module: tenonModule, Version: "v1.0.0", Sum: "aa"},
		)
	}
	return s
}

// second adds attachment db with an address of network pods.
func second(s *State) *Attachment {
	rec := s.Options.Records[0]
	rec.Attachment.Container, rec.Netns = "db", "/run/netns/db"
	rec.Result = &cni.Result{IPs: []cni.IP{{Address: netip.MustParsePrefix("10.77.0.3/24")}}}
	rec.Capabilities = nil
	s.Options.Records = append(slices.Clone(s.Options.Records), rec)
	s.Records = s.Options.Records
	s.CNI.Attachments = append(s.CNI.Attachments, Attachment{Attachment: rec.Attachment,
		State: inspect.OK, Age: time.Hour, Runtime: "tenon", Netns: rec.Netns})
	return &s.CNI.Attachments[1]
}

// container adds the namespace of db, on the bridge of web.
func container(s *State) {
	db := s.Host.Namespaces[1]
	db.ID, db.Paths = "db", []string{"/run/netns/db"}
	db.Links = slices.Clone(db.Links)
	db.Links[0].Lower = otherLink
	db.Addrs = []host.Addr{address(2, "10.77.0.3/24")}
	own := s.Host.Own()
	own.Links[4].Kind, own.Links[4].Master = "veth", bridgeLink
	s.Host.Namespaces = append(s.Host.Namespaces, db)
}

// element returns an element of a rule set of Tenon.
func element(tag, address string) nftmsg.ListedSet {
	return nftmsg.ListedSet{Table: nftmsg.Table{Family: nftmsg.INet, Name: "tenon"}, Name: "masq4",
		Elements: []nftmsg.Element{{Key: netip.MustParseAddr(address).AsSlice(), Comment: tag}}}
}

var forgotten = cni.Attachment{Network: "pods", Container: "lost", IfName: "eth0"}

// cniFaults break the configured host in one way each. want is text of the finding.
var cniFaults = []struct {
	name     string
	damage   func(*State)
	id       string // "" if nothing is wrong
	severity Severity
	want     string
}{
	{"a file that sorts first is broken", func(s *State) {
		s.CNI.Files[0].Default = false
		s.CNI.Files = slices.Insert(
			s.CNI.Files,
			0,
			ConfigFile{Path: "/etc/cni/net.d/00-new.conflist",
				Use: config.Broken, Default: true, Candidate: true, Error: "unexpected end of JSON input"},
		)
	}, "config.broken", Error, "00-new.conflist: unexpected end of JSON input; it sorts before 10-pods.conflist"},
	{"a file that sorts last is broken", func(s *State) {
		s.CNI.Files = append(
			s.CNI.Files,
			ConfigFile{Path: "/etc/cni/net.d/99.conflist", Candidate: true,
				Use: config.Broken, Error: "bad"},
		)
	}, "config.broken", Error, "Runtimes use 10-pods.conflist by default"},
	{"no file is left", func(s *State) { s.CNI.Files = nil }, "config.none", Warning,
		"/etc/cni/net.d has no network configuration"},
	{"two files have one name", func(s *State) {
		s.CNI.Files = append(
			s.CNI.Files,
			ConfigFile{Path: "/etc/cni/net.d/20.conflist", Name: "pods",
				Candidate: true, Use: config.Shadowed, ShadowedBy: "/etc/cni/net.d/10-pods.conflist"},
		)
	}, "config.duplicate-name", Error, "two files define network pods; 10-pods.conflist wins"},
	{"a mistake", func(s *State) {
		s.CNI.Mistakes = []Mistake{
			{Severity: Error, Rule: "type", File: "/etc/cni/net.d/10-pods.conflist",
				Line: 3, Message: "mtu is not a JSON integer"},
		}
	}, "config.type", Error, "10-pods.conflist line 3: mtu is not a JSON integer"},
	{"a possible mistake", func(s *State) {
		s.CNI.Mistakes = []Mistake{{Severity: Warning, Rule: "unknown-key", File: "/etc/x"}}
	}, "config.warnings", Info, "1 possible mistake in x"},

	{
		"a plugin is missing",
		func(s *State) { s.CNI.Plugins = s.CNI.Plugins[:2] },
		"plugins.missing",
		Error,
		"network pods needs plugin portmap, which is in none of the plugin directories",
	},
	{
		"the IPAM plugin is missing",
		func(s *State) { s.CNI.Plugins = slices.Delete(s.CNI.Plugins, 1, 2) },
		"plugins.missing",
		Error,
		"needs plugin host-local",
	},
	{"no plugin is installed, and only tenon attaches", func(s *State) { s.CNI.Plugins = nil },
		"plugins.not-installed", Info, "no plugin is installed in /opt/cni/bin"},
	{"a plugin is not executable", func(s *State) { s.CNI.Plugins[2].Mode = 0o644 },
		"plugins.not-executable", Error, "plugin portmap is not executable (mode 0644)"},
	{
		"a plugin that no network needs is not executable",
		func(s *State) { s.CNI.Plugins[3].Mode = 0o644 },
		"",
		"",
		"",
	},
	{"the directory is noexec", func(s *State) {
		s.CNI.Directories[0].NoExec, s.CNI.Directories[0].Mount = true, "/opt"
	}, "plugins.noexec", Error, "mount -o remount,exec /opt"},
	{"a plugin is truncated", func(s *State) { s.CNI.Plugins[0].Damage = "the file is truncated" },
		"plugins.damaged", Error, "plugin bridge cannot start: the file is truncated"},
	{
		"a plugin is writable",
		func(s *State) { s.CNI.Plugins[3].Mode = 0o777 },
		"plugins.owner",
		Warning,
		"/opt/cni/bin/loopback is writable by all users",
	},
	{"the directory belongs to a user", func(s *State) { s.CNI.Directories[0].UID = 1000 },
		"plugins.owner", Warning, "/opt/cni/bin belongs to user 1000"},
	{"plugins of two builds", func(s *State) {
		s.CNI.Plugins[0].Sum, s.CNI.Plugins[0].Version = "bb", "v0.9.0"
	}, "plugins.versions", Warning, "v0.9.0 (bb): bridge"},
	{"plugins of two projects", func(s *State) {
		s.CNI.Plugins[3].Module = "github.com/containernetworking/plugins"
	}, "plugins.mixed", Info, "3 plugins are Tenon's, and 1 of github.com/containernetworking/plugins v1.0.0"},

	{"the namespace is gone", func(s *State) {
		second(s).State = inspect.NamespaceGone
	}, "attachments.namespace-gone", Warning, "the network namespace of db no longer exists"},
	{"the namespace of a container of libcni is gone", func(s *State) {
		a := second(s)
		a.State, a.Runtime = inspect.NamespaceGone, "libcni"
	}, "attachments.namespace-gone", Warning, "tenon prune --all-runtimes"},
	{"an earlier boot", func(s *State) { second(s).State = inspect.EarlierBoot },
		"attachments.interrupted", Warning, "pods/db/eth0 (attached before the last boot)"},
	{
		"an interrupted ADD",
		func(s *State) { second(s).State = inspect.Adding },
		"attachments.interrupted",
		Warning,
		"pods/db/eth0 (adding for 60m)",
	},
	{"an ADD in progress", func(s *State) {
		a := second(s)
		a.State, a.Age = inspect.Adding, time.Second
	}, "", "", ""},
	{"missing rules", func(s *State) {
		s.CNI.Broken = []BrokenRules{
			{s.Records[0].Attachment, "bridge", []string{"masq4 10.77.0.2"}},
		}
	}, "attachments.rules-missing", Error, "masquerade rules of web are missing"},
	{"a lost interface", func(s *State) {
		s.Host.Namespaces[1].Links[0].Name = "eth1"
		s.CNI.Attachments[0].State = inspect.InterfaceGone
	}, "attachments.interface-gone", Error, "web has lost its interface eth0 (network pods)"},
	{
		"a lost address",
		func(s *State) { s.Host.Namespaces[1].Addrs = s.Host.Namespaces[1].Addrs[1:] },
		"attachments.address-lost",
		Error,
		"web has lost its address 10.77.0.2/24",
	},
	{"a lost route", func(s *State) {
		s.Options.Records[0].Result.Routes = []cni.Route{{Dst: netip.MustParsePrefix("10.5.0.0/16"),
			GW: netip.MustParseAddr("10.77.0.9")}}
	}, "attachments.route-lost", Error, "ip route add 10.5.0.0/16 via 10.77.0.9 dev eth0"},
	{"two containers publish a port", func(s *State) {
		second(s)
		s.Options.Records[1].Capabilities = s.Options.Records[0].Capabilities
	}, "attachments.port-conflict", Error,
		"port 8080/tcp of the host is published by container web (network pods, eth0) and by db"},
	{"the same port of two addresses", func(s *State) {
		second(s)
		for i, ip := range []string{"192.0.2.1", "192.0.2.7"} {
			s.Options.Records[i].Capabilities = map[string]json.RawMessage{
				"portMappings": json.RawMessage(
					`[{"hostPort":8080,"containerPort":80,"hostIP":"` + ip + `"}]`),
			}
		}
	}, "", "", ""},

	{
		"a full pool",
		func(s *State) { s.CNI.Pools[0].Sets[0].Used = 253 },
		"addresses.pool-full",
		Error,
		"pool 10.77.0.0/24 of network pods is full: 253 of 253",
	},
	{"a nearly full pool", func(s *State) { s.CNI.Pools[0].Sets[0].Used = 228 },
		"addresses.pool-nearly-full", Warning, "228 of 253"},
	{
		"a pool that is not nearly full",
		func(s *State) { s.CNI.Pools[0].Sets[0].Used = 220 },
		"",
		"",
		"",
	},
	{"a leaked address", func(s *State) { lease(s, "10.77.0.9", "ghost", 9*24*time.Hour) },
		"addresses.leaked", Warning, "1 address of network pods belongs to no attachment (oldest 9d)"},
	{
		"a young address without a record",
		func(s *State) { lease(s, "10.77.0.9", "ghost", time.Second) },
		"addresses.leaked",
		Info,
		"younger than 1m0s",
	},
	{"an address without a record that a container has", func(s *State) {
		container(s)
		lease(s, "10.77.0.3", "ghost", time.Hour)
	}, "", "", ""},
	{"an address of another runtime", func(s *State) {
		lease(s, "10.77.0.9", "ghost", time.Hour)
		s.Records = append(s.Records, network.Record{StateDir: "/var/lib/other/cni",
			Attachment: cni.Attachment{Network: "pods", Container: "ghost", IfName: "eth0"}})
	}, "", "", ""},
	{"a duplicate address", func(s *State) {
		container(s)
		s.Host.Namespaces[2].Addrs = append(s.Host.Namespaces[2].Addrs, address(2, "10.77.0.2/24"))
	}, "addresses.duplicate", Error, "10.77.0.2 is on web and on db (eth0)"},
	{"the same address on another bridge", func(s *State) {
		container(s)
		s.Host.Namespaces[2].Addrs = append(s.Host.Namespaces[2].Addrs, address(2, "10.77.0.2/24"))
		s.Host.Own().Links[4].Master = upLink
	}, "", "", ""},

	{"an interface without an attachment", func(s *State) {
		l := &s.Host.Own().Links[4]
		l.Kind, l.Alias, l.Lower = "veth", forgotten.Tag(), upLink
	}, "leftovers.links", Warning, "1 interface belongs to no attachment: vpn0"},
	{"an interface of a container without a record", func(s *State) {
		container(s)
		l := &s.Host.Own().Links[4]
		l.Alias, l.Lower, l.LowerNSID = forgotten.Tag(), 2, new(int)
	}, "", "", ""},
	{"an interface with an invisible peer", func(s *State) {
		l, nsid := &s.Host.Own().Links[4], 7
		l.Kind, l.Alias, l.Lower, l.LowerNSID = "veth", forgotten.Tag(), 2, &nsid
	}, "leftovers.links", Info, "1 interface belongs to no attachment: vpn0"},
	{"rules without an attachment", func(s *State) {
		s.Host.Own().Ruleset.Sets = []nftmsg.ListedSet{element(forgotten.Tag(), "10.77.0.9")}
	}, "leftovers.rules", Warning, "1 rule of Tenon belongs to containers that no longer exist: container lost"},
	{"rules for an address that a container has", func(s *State) {
		s.Host.Own().Ruleset.Sets = []nftmsg.ListedSet{element(forgotten.Tag(), "10.77.0.2")}
	}, "", "", ""},
	{"rules of an attachment", func(s *State) {
		s.Host.Own().Ruleset.Sets = []nftmsg.ListedSet{
			element(s.Records[0].Attachment.Tag(), "10.77.0.9"),
		}
	}, "", "", ""},
	{"a rule of upstream for a container without an address", func(s *State) {
		upstream(s, "6fd94d501e58f0aa-287fc69eff0574a2, net: net1, if: eth0, id: cid2")
	}, "leftovers.upstream", Warning, "1 rule of upstream's plugins belongs to containers that no longer exist: cid2"},
	{"a rule of upstream for a recorded container", func(s *State) {
		upstream(s, "6fd94d501e58f0aa-287fc69eff0574a2, net: pods, if: eth0, id: web")
	}, "", "", ""},
	{"a rule of another program", func(s *State) { upstream(s, "of another program") }, "", "", ""},

	{"the DHCP daemon is down", func(s *State) {
		s.CNI.Sockets = []Socket{
			{Daemon: daemonDHCP, Path: "/run/cni/dhcp.sock", Networks: []string{"lan"},
				Error: "no such file or directory"},
		}
	}, "dhcp.down", Error, "cannot connect to the DHCP daemon; the daemon is not running (network lan needs it)"},
	{"the DHCP daemon has few files", func(s *State) {
		s.CNI.Sockets = []Socket{
			{Daemon: daemonDHCP, Path: "/run/cni/dhcp.sock", Networks: []string{"lan"},
				Exists: true, PID: 7, Limit: 8, Open: 7},
		}
	}, "dhcp.open-files", Error, "the limit of open files of the DHCP daemon is 8"},
	{"the DHCP daemon has enough files", func(s *State) {
		s.CNI.Sockets = []Socket{
			{Daemon: daemonDHCP, Path: "/run/cni/dhcp.sock", Exists: true, PID: 7,
				Limit: 1024, Open: 40, Leases: 10},
		}
	}, "", "", ""},
	{"the agent is down", func(s *State) {
		s.CNI.Sockets = []Socket{
			{Daemon: daemonCluster, Path: clusterSocket, Networks: []string{"c"},
				Exists: true, Error: "connection refused"},
		}
	}, "cluster.down", Error, "is a socket without a listener"},
	{"the database is down", func(s *State) {
		s.CNI.Sockets = []Socket{{Daemon: daemonOVS, Path: ovsSocket, Networks: []string{"o"},
			Error: "no such file or directory"}}
	}, "ovs.down", Error, "cannot connect to the database of Open vSwitch"},
}

func lease(s *State, addr, container string, age time.Duration) {
	p := &s.CNI.Pools[0]
	p.Leases = append(p.Leases, Lease{Addr: netip.MustParseAddr(addr), Container: container,
		IfName: "eth0", Age: age})
}

func upstream(s *State, comment string) {
	s.Host.Own().Ruleset.Rules = []nftmsg.ListedRule{{
		Table: nft.Table{
			Family: nft.INet,
			Name:   masqTable,
		}, Chain: "masq_checks", Comment: comment}}
}

// TestCNIChecks breaks the configured host in one way at a time. Exactly the expected finding
// appears; a state that was stored and read again gives the same one.
func TestCNIChecks(t *testing.T) {
	t.Parallel()
	if got := worseThan("", Run(t.Context(), configured(), cniChecks(), nil)); got != "" {
		t.Fatalf("the healthy host: %s", got)
	}
	for _, x := range cniFaults {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			s := configured()
			x.damage(s)
			examineFault(t, s, cniChecks(), Finding{ID: x.id, Severity: x.severity, Text: x.want})
		})
	}
}

// TestMistakeFix: the advice of package lint is what to do, not a side effect of it.
func TestMistakeFix(t *testing.T) {
	t.Parallel()
	const hint = "use other ranges in one of the networks"
	for _, row := range []struct{ name, rule, hint, want string }{
		{"with advice", "range-overlap", hint, "edit /etc/cni/net.d/20.conflist: " + hint},
		{"without", "shared-bridge", "", "edit /etc/cni/net.d/20.conflist"},
	} {
		s := configured()
		s.CNI.Mistakes = []Mistake{{Severity: Warning, Rule: row.rule, Message: "overlaps",
			File: "/etc/cni/net.d/20.conflist", Hint: row.hint}}
		r := Run(t.Context(), s, configChecks(), nil)
		if len(r.Findings) != 1 || len(r.Findings[0].Fix) != 1 {
			t.Fatalf("%s: %+v", row.name, r.Findings)
		}
		if f := r.Findings[0].Fix[0]; f.Command != row.want || f.Effect != "" || f.Safe {
			t.Errorf("%s: %+v, want command %q", row.name, f, row.want)
		}
	}
}

// TestUnknownHolders: checks that look for objects without an owner are skipped if an owner could be
// unknown.
func TestUnknownHolders(t *testing.T) {
	t.Parallel()
	for name, hide := range map[string]func(*State){
		"records are damaged":    func(s *State) { s.Options.Damaged = []string{"x"} },
		"a namespace is unknown": func(s *State) { s.Host.Skipped = []host.Skipped{{What: "x", Reason: "y"}} },
		"libcni is ignored":      func(s *State) { s.Options.CacheDir = "" },
	} {
		s := configured()
		lease(s, "10.77.0.9", "ghost", time.Hour)
		s.Host.Own().Ruleset.Sets = []nftmsg.ListedSet{element(forgotten.Tag(), "10.77.0.9")}
		upstream(s, "6fd94d501e58f0aa-287fc69eff0574a2, net: net1, if: eth0, id: cid2")
		hide(s)
		for _, c := range Run(t.Context(), s, cniChecks(), nil).Checks {
			if want := c.ID == "addresses.leaked" || strings.HasPrefix(c.ID, "leftovers."); want !=
				(c.Status == Skipped && !c.Unused) {
				t.Errorf("%s: %s is %s: %s", name, c.ID, c.Status, c.Reason)
			}
		}
	}
}

// TestReadPluginFiles reads plugin directories: programs of this architecture, damaged ones, and
// files that are no plugins.
func TestReadPluginFiles(t *testing.T) {
	t.Parallel()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	other := slices.Clone(self[:4096])
	other[18], other[19] = 22, 0 // s390x
	if runtime.GOARCH == "s390x" {
		other[18], other[19] = 62, 0
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"bridge": string(self), "cut": string(self[:len(self)/2]), "empty": "", "script": "#!/bin/sh\n",
		"other": string(other), "text": "hello", "README.md": "x", ".created-by-tenon": "x",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	s := &State{Options: Options{PluginDirs: []string{dir, filepath.Join(dir, "missing")}}}
	read, err := s.readPlugins(t.Context())
	if err != nil || len(read.dirs) != 2 || !read.dirs[1].Missing {
		t.Fatalf("%+v, %v", read.dirs, err)
	}
	got := map[string]string{}
	for _, f := range read.files {
		got[f.Name] = f.Damage
		if f.Name == "bridge" &&
			(f.Module != tenonModule || f.Version == "" || f.Mode != fs.FileMode(0o755)) {
			t.Errorf("bridge: %+v", f)
		}
	}
	for name, want := range map[string]string{"bridge": "", "script": "", "cut": "the file is truncated",
		"empty": "the file is empty", "other": "the program is for ", "text": "the file is not a program"} {
		if damage, ok := got[name]; !ok || !strings.HasPrefix(damage, want) ||
			want == "" && damage != "" {
			t.Errorf("%s: %q, want %q", name, damage, want)
		}
	}
	if len(got) != 6 {
		t.Errorf("files: %v", got)
	}
}
