package topology

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host/nat"
	"github.com/tenon-cni/tenon/internal/session"
)

// unknown is the owner of a virtual device that no alias, record, path or name explains.
const unknown = "unknown"

// names are the names of interfaces that programs use by default.
var names = []struct{ pattern, owner string }{
	{`docker0|docker_gwbridge|br-[0-9a-f]{12}`, "docker"}, {`virbr\d+(-nic)?|vnet\d+`, "libvirt"},
	{`podman\d+|cni-podman\d+`, "podman"}, {`nerdctl\d+`, "nerdctl"}, {`lxcbr\d+`, "lxc"},
	{`lxdbr\d+`, "lxd"}, {`kube-.*|nodelocaldns`, "kubernetes"}, {`cali.*|vxlan\.calico|tunl0`,
		"calico"},
	{`cilium_.*|lxc[0-9a-f_]+`, "cilium"}, {`flannel[.-].*`, "flannel"}, {`weave|vethwe-.*`, "weave"},
	{`ovs-system|ovs-.*`, "openvswitch"}, {`tailscale\d+`, "tailscale"}, {`zt[a-z0-9]+`, "zerotier"},
	{`antrea-gw\d+`, "antrea"}, {`ovn-k8s-.*`, "ovn"}, {`wg\d+`, "wireguard"},
	{`(sit|ip6tnl|gre|gretap|erspan|ip_vti|ip6_vti|ip6gre)0`, "kernel"},
}

var patterns = func() (list []*regexp.Regexp) {
	for _, n := range names {
		list = append(list, regexp.MustCompile(`^(`+n.pattern+`)$`))
	}
	return list
}

// tables are the names of tables and chains of programs that translate.
var tables = []struct{ prefix, owner string }{
	{"DOCKER", "docker"}, {"KUBE-", "kubernetes"}, {"CNI-", "upstream plugins"}, {"cni_",
		"upstream plugins"},
	{"LIBVIRT_", "libvirt"}, {"libvirt", "libvirt"}, {"NETAVARK", "podman"}, {"netavark", "podman"},
	{"firewalld", "firewalld"}, {"kube-proxy", "kubernetes"}, {"docker-", "docker"}, {"cali",
		"calico"},
}

// ruleOwner returns the program that made a rule, and how it is known.
func ruleOwner(t nat.Translation) (owner, by string) {
	if t.Tenon {
		return "tenon", "table"
	}
	if _, ok := cni.ParseTag(t.Comment); ok {
		return "tenon", "comment"
	}
	for _, x := range tables {
		if strings.HasPrefix(t.Chain, x.prefix) || strings.HasPrefix(t.Table, x.prefix) {
			return x.owner, "table"
		}
	}
	return unknown, ""
}

// upstreamID is the comment of rules of upstream's plugins: name: "pods" id: "web".
var upstreamID = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`name: "([^"]*)" id: "([^"]*)"`)
})

// attachmentOf returns the attachment that a comment names, nil if it is not recorded here.
func (b *builder) attachmentOf(comment string) *Node {
	if o, ok := cni.ParseTag(comment); ok {
		return b.attachments[string(o)]
	}
	if m := upstreamID().FindStringSubmatch(comment); m != nil {
		return b.attachments[m[1]+" "+m[2]]
	}
	return nil
}

// owners sets the owners of interfaces and namespaces: by alias, path or name, and of devices in
// the namespace of another program, that program.
func (b *builder) owners() {
	matchers := patterns()
	for _, n := range b.m.Nodes {
		switch {
		case n.Kind == Namespace:
			for _, path := range n.Paths {
				if strings.HasPrefix(path, "/run/docker/") {
					n.Owner, n.OwnerBy = "docker", "path"
				}
			}
		case n.Kind == Interface:
			b.deviceOwner(n, matchers)
		}
	}
	for _, e := range b.m.Edges { // the host side of a pair belongs to the owner of the namespace
		if e.Kind != PeerOf {
			continue
		}
		from, to := b.m.byID[e.From], b.m.byID[e.To]
		if ns := b.m.byID["ns:"+to.Namespace]; from.Owner == unknown && ns != nil && ns.Owner != "" {
			from.Owner, from.OwnerBy = ns.Owner, ns.OwnerBy
		}
	}
}

func (b *builder) deviceOwner(n *Node, matchers []*regexp.Regexp) {
	if _, ok := cni.ParseTag(n.Device.Alias); ok {
		n.Owner, n.OwnerBy = "tenon", "alias"
		if a, ok := session.Tagged(n.Device.Alias); ok && !slices.Contains(n.Device.Networks, a.Network) {
			n.Device.Networks = append(n.Device.Networks, a.Network)
		}
		return
	}
	if n.Owner != "" || n.Device.Kind == "" {
		return
	}
	if ns := b.m.byID["ns:"+n.Namespace]; ns != nil && ns.Owner != "" {
		n.Owner, n.OwnerBy = ns.Owner, ns.OwnerBy
		return
	}
	n.Owner = unknown
	if n.Namespace != b.own().ID {
		return
	}
	for i, m := range matchers {
		if m.MatchString(n.Name) {
			n.Owner, n.OwnerBy = names[i].owner, "name"
			return
		}
	}
}
