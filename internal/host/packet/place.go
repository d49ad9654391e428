package packet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/nft/nftmsg"
)

// Bridged reports whether the chain sees frames of bridges.
func (p Place) Bridged() bool { return p.Table.Family == nftmsg.Bridge }

// Title names the chain as its program does.
func (p Place) Title() string {
	if program, table := p.Program(); program != "" {
		return fmt.Sprintf("chain %s of %s (table %s)", p.Chain, program, table)
	}
	return fmt.Sprintf("chain %s %s %s", p.Table.Family, p.Table.Name, p.Chain)
}

// Command returns the command that lists the chain.
func (p Place) Command() string {
	if program, table := p.Program(); program != "" {
		return fmt.Sprintf("%s -t %s -S %s", program, table, p.Chain)
	}
	return fmt.Sprintf("nft -a list chain %s %s %s", p.Table.Family, p.Table.Name, p.Chain)
}

// tableOwners and chainOwners are the programs that name their tables of nftables, or their chains,
// with a prefix.
var (
	tableOwners = []struct{ prefix, owner string }{
		{"tenon", "tenon"}, {"firewalld", "firewalld"}, {"kube-proxy", "kube-proxy"},
		{"docker", "docker"}, {"netavark", "podman"}, {"libvirt", "libvirt"}, {"cni_", "cni"},
		{"calico", "calico"}, {"fw4", "OpenWrt"},
	}
	chainOwners = []struct{ prefix, owner string }{
		{"DOCKER", "docker"}, {"KUBE-NWPLCY", "network policy"}, {"KUBE-POD-FW", "network policy"},
		{"KUBE-", "kube-proxy"}, {"ufw-", "ufw"}, {"ufw6-", "ufw"}, {"CNI-", "cni"},
		{"LIBVIRT", "libvirt"}, {"cali-", "calico"}, {"CILIUM", "cilium"}, {"FLANNEL", "flannel"},
		{"NETAVARK", "podman"}, {"ts-", "tailscale"}, {"f2b-", "fail2ban"}, {"TENON", "tenon"},
	}
)

// Owner returns the program that owns a rule or a policy, by the names that it uses, "" if it is not
// known. A policy of iptables belongs to the program with chains in the same table that sets it.
func Owner(r *nftmsg.Ruleset, p Place) string {
	for _, x := range tableOwners {
		if strings.HasPrefix(p.Table.Name, x.prefix) {
			return x.owner
		}
	}
	for _, x := range chainOwners {
		if strings.HasPrefix(p.Chain, x.prefix) {
			return x.owner
		}
	}
	if program, _ := p.Program(); program == "" || p.Number > 0 {
		return ""
	}
	for _, x := range []struct{ prefix, owner string }{{"ufw", "ufw"}, {"DOCKER", "docker"}} {
		if slices.ContainsFunc(r.Chains, func(c nftmsg.ListedChain) bool {
			return c.Table == p.Table && strings.HasPrefix(c.Name, x.prefix)
		}) {
			return x.owner
		}
	}
	return ""
}
