package hostnat

import (
	"slices"
	"strings"
)

// knownChains are prefixes of the chains of software that adds its own rules to the nat tables.
// Such rules are not exemptions by an operator.
var knownChains = []string{
	"CNI-",               // CNI plugins
	"KUBE-", "OVN-KUBE-", // kube-proxy, kubelet, OVN-Kubernetes
	"cali-",    // Calico
	"NETAVARK", // Podman
	"ts-",      // Tailscale
	"DOCKER", "LIBVIRT_", "FLANNEL", "CILIUM_", "OLD_CILIUM_", "ANTREA-", "WEAVE", "ISTIO_",
}

// known reports whether a chain belongs to known software.
func known(chain string) bool {
	return slices.ContainsFunc(knownChains,
		func(p string) bool { return strings.HasPrefix(chain, p) }) ||
		ofFirewalld(chain)
}

// ofFirewalld reports whether a base chain leads to the chain in the backend iptables of firewalld.
func ofFirewalld(chain string) bool {
	base, kind, _ := strings.Cut(chain, "_")
	return slices.Contains([]string{prerouting, output, postrouting, "INPUT"}, base) &&
		slices.Contains([]string{"direct", "ZONES", "ZONES_SOURCE", "POLICIES_pre",
			"POLICIES_post"}, kind)
}

// Comments of rules that flannel and kube-proxy put into base chains.
var knownComments = []string{
	"flanneld masq", "kubernetes service portals", "kubernetes postrouting rules",
}

// knownComment reports whether the comment of a rule belongs to known software.
func knownComment(comment string) bool {
	return slices.Contains(knownComments, comment) || strings.HasPrefix(comment, "cali:")
}
