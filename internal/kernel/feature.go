package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/nft"
)

// Feature is an optional part of the kernel.
type Feature string

// The features: kinds of links by their rtnetlink names, VLAN filtering of bridges, rules that
// choose a routing table, traffic shaping (tbf, and filters of the packets that a link receives),
// nftables, IPv6, and SELinux.
const (
	FeatureVeth    Feature = "veth"
	FeatureBridge  Feature = "bridge"
	FeatureMacvlan Feature = "macvlan"
	FeatureIPvlan  Feature = "ipvlan"
	FeatureVLAN    Feature = "vlan"
	FeatureDummy   Feature = "dummy"
	FeatureVRF     Feature = "vrf"
	FeatureIFB     Feature = "ifb"
	FeatureVXLAN   Feature = "vxlan"
	FeatureTun     Feature = "tun"
	FeatureSELinux Feature = "selinux"
	FeatureNFT     Feature = "nftables"
	FeatureIPv6    Feature = "ipv6"

	FeatureVLANFiltering Feature = "bridge-vlan-filtering"
	FeaturePolicyRules   Feature = "policy-rules"
	FeatureShaping       Feature = "traffic-shaping"
)

// help contains the hints for features other than kinds of links.
var help = map[Feature]string{
	FeatureIPv6: "the kernel has no IPv6; boot it without ipv6.disable=1, " +
		"or leave IPv6 addresses out of the configuration",
	FeatureNFT: "the kernel has no nftables; load module nf_tables, " +
		"or install a kernel built with CONFIG_NF_TABLES_INET",
	FeatureShaping: "the kernel cannot shape traffic; " +
		"load modules sch_tbf, sch_ingress, cls_u32 and act_mirred, or install a kernel that has them",
	FeatureSELinux: "SELinux is not enabled; boot with security=selinux, " +
		"or leave security contexts out of the configuration",
	FeatureTun: "the kernel cannot make tap devices, or /dev/net/tun is missing; " +
		"load module tun, or install a kernel that has it",
	FeatureVLANFiltering: "the kernel has no VLAN filtering of bridges; " +
		"install one built with CONFIG_BRIDGE_VLAN_FILTERING, " +
		"or leave vlan and vlanTrunk out of the configuration",
	FeaturePolicyRules: "the kernel has only one routing table; " +
		"install one built with CONFIG_IP_MULTIPLE_TABLES",
}

// Help states in a sentence which feature is missing and how to get it.
func (f Feature) Help() string {
	if text, ok := help[f]; ok {
		return text
	}
	module := string(f)
	if f == FeatureVLAN {
		module = "8021q"
	}
	return fmt.Sprintf("the kernel cannot make %s interfaces; "+
		"load module %s, or install a kernel that has it", string(f), module)
}

// Missing returns the features that the running kernel lacks. It changes nothing, except that the
// kernel may load the module of a feature. It returns an error if it cannot ask the kernel, for
// lack of privilege (CAP_NET_ADMIN) for example.
func Missing(features ...Feature) ([]Feature, error) {
	ns, err := netns.Current()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	conn, err := netlink.Open(ns)
	if err != nil {
		return nil, fmt.Errorf("ask the kernel for %v: %w", features, err)
	}
	defer conn.Close()
	var missing []Feature
	for _, f := range features {
		has, err := f.available(ns, conn)
		if err != nil {
			return nil, fmt.Errorf("ask the kernel for %s: %w", string(f), err)
		}
		if !has {
			missing = append(missing, f)
		}
	}
	return missing, nil
}

func (f Feature) available(ns *netns.NS, conn *netlink.Conn) (bool, error) {
	switch f {
	case FeatureNFT:
		return unless(nft.ErrNoNFT, nftAvailable(ns))
	case FeatureIPv6:
		return unless(unix.EAFNOSUPPORT, ipv6Available())
	case FeatureTun:
		return unless(netlink.ErrNoTun, netlink.TapAvailable())
	case FeatureSELinux:
		return unless(netlink.ErrNoSELinux, netlink.SELinuxAvailable())
	case FeatureVLANFiltering:
		return conn.HasVLANFiltering()
	case FeaturePolicyRules:
		return conn.Routes.HasRules()
	case FeatureShaping:
		return conn.HasShaping()
	}
	return conn.Links.HasKind(string(f))
}

// unless returns true if err is nil, false if it wraps missing, and otherwise err.
func unless(missing, err error) (bool, error) {
	if errors.Is(err, missing) {
		return false, nil
	}
	return err == nil, err
}

func nftAvailable(ns *netns.NS) error {
	c, err := nft.Open(ns)
	if err != nil {
		return err
	}
	return errors.Join(c.Available(), c.Close())
}

func ipv6Available() error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
