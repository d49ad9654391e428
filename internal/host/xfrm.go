package host

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
)

// Policy is a policy of IPsec (ip-xfrm(8)).
type Policy struct {
	Src       netip.Prefix `json:"src"`
	Dst       netip.Prefix `json:"dst"`
	Protocol  uint8        `json:"protocol,omitzero"` // 0: any
	Direction string       `json:"direction"`         // in, out, fwd
	Blocks    bool         `json:"blocks,omitzero"`   // drops the packets
	Encrypts  bool         `json:"encrypts,omitzero"` // requires a transformation
}

// Constants of linux/xfrm.h.
const (
	xfrmGetPolicy = 0x15 // XFRM_MSG_GETPOLICY
	xfrmTemplates = 5    // XFRMA_TMPL
	xfrmBlock     = 1    // XFRM_POLICY_BLOCK

	// The layout of struct xfrm_userpolicy_info, which begins with struct xfrm_selector.
	xfrmDst, xfrmSrc, xfrmFamily, xfrmProtocol = 0, 16, 40, 44
	xfrmDirection, xfrmAction                  = 160, 161
	xfrmIDSize                                 = 64 // struct xfrm_userpolicy_id
)

// policies lists the policies of IPsec. A kernel without IPsec has none.
func policies(ns *netns.NS) ([]Policy, error) {
	fd, err := ns.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_XFRM)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	netlink.Prepare(fd)
	var exchange netlink.Exchange
	return netlink.List(&exchange, fd, xfrmGetPolicy, make([]byte, xfrmIDSize),
		func(list []Policy, b []byte) ([]Policy, error) {
			if p, ok := readPolicy(b); ok {
				list = append(list, p)
			}
			return list, nil
		})
}

// readPolicy decodes a policy; ok is false for the policy of a socket.
func readPolicy(b []byte) (p Policy, ok bool) {
	directions := []string{"in", "out", "fwd"}
	infoSize := 168
	if runtime.GOARCH == "386" { // where 8-byte numbers are aligned to 4
		infoSize = 164
	}
	if len(b) < infoSize || int(b[xfrmDirection]) >= len(directions) {
		return p, false
	}
	size := 16
	if binary.NativeEndian.Uint16(b[xfrmFamily:]) == unix.AF_INET {
		size = 4
	}
	prefix := func(at int, bits byte) netip.Prefix {
		a, _ := netip.AddrFromSlice(b[at : at+size])
		return netip.PrefixFrom(a, int(bits))
	}
	return Policy{
		Dst: prefix(xfrmDst, b[xfrmFamily+2]), Src: prefix(xfrmSrc, b[xfrmFamily+3]),
		Protocol: b[xfrmProtocol], Direction: directions[b[xfrmDirection]],
		Blocks:   b[xfrmAction] == xfrmBlock,
		Encrypts: netlink.Find(b[infoSize:], xfrmTemplates) != nil,
	}, true
}

// Policy returns the first policy of IPsec of a direction for a packet, nil if there is none.
func (n *Namespace) Policy(direction string, src, dst netip.Addr, protocol uint8) *Policy {
	for i := range n.Policies {
		p := &n.Policies[i]
		if p.Direction == direction && p.Src.Contains(src) && p.Dst.Contains(dst) &&
			(p.Protocol == 0 || p.Protocol == protocol) {
			return p
		}
	}
	return nil
}
