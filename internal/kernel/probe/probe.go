// Package probe asks the running kernel what it can do. It changes nothing and starts nothing; asking may load the module
// that is asked for. It does not know which plugin needs what.
package probe

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netlink/tun"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/nft"
)

// Feature is something a kernel may be built without.
type Feature string

// The features: kinds of links by their rtnetlink names, VLAN filtering of bridges, rules that choose a routing table,
// traffic shaping (tbf and filters of what a link receives), nftables, IPv6, and SELinux.
const (
	Veth    Feature = "veth"
	Bridge  Feature = "bridge"
	Macvlan Feature = "macvlan"
	IPvlan  Feature = "ipvlan"
	VLAN    Feature = "vlan"
	Dummy   Feature = "dummy"
	VRF     Feature = "vrf"
	IFB     Feature = "ifb"
	Tun     Feature = "tun"
	SELinux Feature = "selinux"
	NFT     Feature = "nftables"
	IPv6    Feature = "ipv6"

	VLANFiltering Feature = "bridge-vlan-filtering"
	PolicyRules   Feature = "policy-rules"
	Shaping       Feature = "traffic-shaping"
)

// Help says in a sentence what is missing and how to get it.
func (f Feature) Help() string {
	switch f {
	case IPv6:
		return "the kernel has no IPv6; boot it without ipv6.disable=1, or leave IPv6 addresses out of the configuration"
	case NFT:
		return "the kernel has no nftables; load module nf_tables, or install a kernel built with CONFIG_NF_TABLES_INET"
	case Shaping:
		return "the kernel cannot shape traffic; load modules sch_tbf, sch_ingress, cls_u32 and act_mirred, or install a kernel that has them"
	case SELinux:
		return "SELinux is not enabled; boot with security=selinux, or leave security contexts out of the configuration"
	case Tun:
		return "the kernel cannot make tap devices, or /dev/net/tun is missing; load module tun, or install a kernel that has it"
	case VLANFiltering:
		return "the kernel has no VLAN filtering of bridges; install one built with CONFIG_BRIDGE_VLAN_FILTERING, or leave vlan and vlanTrunk out of the configuration"
	case PolicyRules:
		return "the kernel has one routing table for all; install one built with CONFIG_IP_MULTIPLE_TABLES"
	}
	module := string(f)
	if f == VLAN {
		module = "8021q"
	}
	return fmt.Sprintf("the kernel cannot make %s interfaces; load module %s, or install a kernel that has it", string(f), module)
}

// Missing returns those of the features that the kernel lacks. An error says that it could not be asked, for lack of
// privilege (CAP_NET_ADMIN) for example.
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
		var has bool
		var err error
		switch f {
		case NFT:
			has, err = hasNFT(ns)
		case IPv6:
			has, err = hasIPv6()
		case Tun:
			has, err = there(tun.Available(), tun.ErrMissing)
		case SELinux:
			has, err = there(tun.Labels(), tun.ErrNoSELinux)
		case VLANFiltering:
			has, err = conn.HasVLANFiltering()
		case PolicyRules:
			has, err = conn.Routes.HasRules()
		case Shaping:
			has, err = conn.HasShaping()
		default:
			has, err = conn.Links.HasKind(string(f))
		}
		if err != nil {
			return nil, fmt.Errorf("ask the kernel for %s: %w", string(f), err)
		}
		if !has {
			missing = append(missing, f)
		}
	}
	return missing, nil
}

func hasNFT(ns *netns.NS) (bool, error) {
	c, err := nft.Open(ns)
	if err == nil {
		err = errors.Join(c.Available(), c.Close())
	}
	return there(err, nft.ErrNoNFT)
}

// there tells what an error means that is nil if something is there, and wraps missing if it is not.
func there(err, missing error) (bool, error) {
	if errors.Is(err, missing) {
		return false, nil
	}
	return err == nil, err
}

func hasIPv6() (bool, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, unix.Close(fd)
}
