package attach

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// AddVeth creates the container's veth pair. If its name is in use, the error has upstream's text.
func (s *Session) AddVeth(v kernel.Veth) (inside, host kernel.Link, err error) {
	inside, host, err = s.Sandbox.Links.AddVeth(v)
	if errors.Is(err, unix.EEXIST) {
		err = cni.Rephrase(err, "container veth name (%q) peer provided (%q) already exists", v.Name, v.HostName)
	}
	return inside, host, err
}

// AddLink creates the container's interface; it sets the name and the alias of l. If the name is in
// use, the error has upstream's text.
func (s *Session) AddLink(l kernel.NewLink) (kernel.Link, error) {
	l.Name, l.Alias = s.IfName, s.Tag
	link, err := s.Sandbox.Links.Add(l)
	if errors.Is(err, unix.EEXIST) && !errors.As(err, new(*kernel.VLANInUseError)) {
		err = cni.Rephrase(err, "failed to rename %s to %q: file exists", l.Kind, l.Name)
	}
	return link, err
}

// Distrust keeps containers from steering the host by router advertisements and redirects through
// links of the host to which they can send (CVE-2020-10749). DEL does not undo it: such links
// belong to the attachment alone, or are shared.
func (s *Session) Distrust(links ...kernel.Link) error {
	var list []kernel.Setting
	for _, l := range links {
		for _, key := range []string{"net/ipv6/conf/%/accept_ra", "net/ipv6/conf/%/accept_redirects", "net/ipv4/conf/%/accept_redirects"} {
			list = append(list, kernel.Setting{Key: strings.Replace(key, "%", l.Name, 1), Value: "0", Optional: true})
		}
	}
	return s.Host.Sysctl.Ensure(list)
}

// Forward turns on forwarding between the links of the host, for the families of the addresses. All
// networks share the setting; DEL does not undo it.
func (s *Session) Forward(ips []cni.IP) error {
	return s.Host.Sysctl.Ensure(forwarding(ips))
}

// forwarding returns the settings that turn on forwarding for the families of the addresses.
func forwarding(ips []cni.IP) (list []kernel.Setting) {
	for _, ip := range ips {
		key := "net/ipv6/conf/all/forwarding"
		if ip.Address.Addr().Is4() {
			key = "net/ipv4/ip_forward"
		}
		list = append(list, kernel.Setting{Key: key, Value: "1"})
	}
	return list
}

// Announce makes the kernel announce the container's addresses to the neighbours again, for plugins
// with a link that does not forward yet when the container's interface comes up. It requires
// [Options.Announce].
func (s *Session) Announce() error {
	inside, err := s.Sandbox.Links.ByName(s.IfName)
	if err != nil {
		return err
	}
	return s.Sandbox.Links.SetMAC(inside, inside.MAC)
}
