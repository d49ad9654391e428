package attach

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// AddVeth makes the container's veth pair. If its name is in use, the message is the upstream plugins' text.
func (s *Session) AddVeth(v kernel.Veth) (inside, host kernel.Link, err error) {
	inside, host, err = s.Sandbox.Links.AddVeth(v)
	if errors.Is(err, unix.EEXIST) {
		err = cni.Rephrase(err, "container veth name (%q) peer provided (%q) already exists", v.Name, v.HostName)
	}
	return inside, host, err
}

// AddLink makes the container's interface; it sets the name and the alias of l. If the name is in
// use, the message is the upstream plugins' text.
func (s *Session) AddLink(l kernel.NewLink) (kernel.Link, error) {
	l.Name, l.Alias = s.IfName, s.Tag
	link, err := s.Sandbox.Links.Add(l)
	if errors.Is(err, unix.EEXIST) && !errors.As(err, new(*kernel.VLANInUseError)) {
		err = cni.Rephrase(err, "failed to rename %s to %q: file exists", l.Kind, l.Name)
	}
	return link, err
}

// Distrust keeps containers from steering the host by router advertisements and redirects through links of the host that
// they can send to (CVE-2020-10749). It is not taken back: such a link is the attachment's own, or shared.
func (s *Session) Distrust(links ...kernel.Link) error {
	var list []kernel.Setting
	for _, l := range links {
		for _, key := range []string{"net/ipv6/conf/%/accept_ra", "net/ipv6/conf/%/accept_redirects", "net/ipv4/conf/%/accept_redirects"} {
			list = append(list, kernel.Setting{Key: strings.Replace(key, "%", l.Name, 1), Value: "0", Optional: true})
		}
	}
	return s.Host.Sysctl.Ensure(list)
}

// Forward turns on forwarding between the links of the host, for the families of the addresses. It is shared by all
// networks and not taken back.
func (s *Session) Forward(ips []cni.IP) error {
	var list []kernel.Setting
	for _, ip := range ips {
		key := "net/ipv6/conf/all/forwarding"
		if ip.Address.Addr().Is4() {
			key = "net/ipv4/ip_forward"
		}
		list = append(list, kernel.Setting{Key: key, Value: "1"})
	}
	return s.Host.Sysctl.Ensure(list)
}

// Announce makes the kernel tell the neighbours once more whose addresses the container's are, for plugins whose link does
// not forward yet when the container's interface comes up. It needs [Options.Announce].
func (s *Session) Announce() error {
	inside, err := s.Sandbox.Links.ByName(s.IfName)
	if err != nil {
		return err
	}
	return s.Sandbox.Links.SetMAC(inside, inside.MAC)
}
