package bridge

import (
	"context"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Verify compares bridge and host's end with the previous result and the configuration.
func (maker) Verify(_ context.Context, s *attach.Session[Config], link kernel.Link) error {
	c := s.Conf
	br, err := s.Host.Link(c.bridge())
	if err != nil {
		return err
	}
	if br.Kind != "bridge" {
		return fmt.Errorf("interface %s: expected a bridge, found a %s", br.Name, br.Kind)
	}
	if c.PromiscMode && br.Promisc == 0 {
		return fmt.Errorf("bridge %s: expected it promiscuous", br.Name)
	}
	if link.Kind != "veth" {
		return fmt.Errorf("interface %s: expected a veth, found a %s", link.Name, link.Kind)
	}
	port, err := s.Host.LinkByIndex(link.Peer)
	if err != nil {
		return fmt.Errorf("host's end of interface %s: %w", link.Name, err)
	}
	switch {
	case port.Kind != "veth" || port.Peer != link.Index:
		return fmt.Errorf("host's end of interface %s: not found", link.Name)
	case port.Master != br.Index:
		return fmt.Errorf("interface %s: expected it on bridge %s", port.Name, br.Name)
	case !port.Up:
		return fmt.Errorf("interface %s: expected it up, found it down", port.Name)
	}
	for _, want := range s.Prev.Interfaces {
		if want.Sandbox != "" {
			continue
		}
		for _, have := range []kernel.Link{br, port} {
			if want.Name != have.Name {
				continue
			}
			if err := attach.CheckMAC(have, want); err != nil {
				return err
			}
		}
	}
	if err := checkGateway(s, br); err != nil {
		return err
	}
	if _, ours := cni.ParseTag(port.Alias); c.IPMasq && ours { // a pair of the reference plugin has that plugin's rules
		return s.CheckMasquerade()
	}
	return nil
}
