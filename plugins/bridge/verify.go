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
	port, err := s.CheckPair(link)
	if err != nil {
		return err
	}
	if err := checkPort(port, br); err != nil {
		return err
	}
	if err := s.CheckHostMAC(br); err != nil {
		return err
	}
	_, ours := cni.ParseTag(port.Alias)
	if err := checkVLANs(s, br, port, ours); err != nil {
		return err
	}
	if err := checkGateway(s, br); err != nil {
		return err
	}
	if c.IPMasq {
		if err := s.CheckMasquerade(); err != nil {
			return err
		}
	}
	if c.MACSpoofChk {
		return checkGuard(s, port, link)
	}
	return nil
}

func checkPort(port, br kernel.Link) error {
	switch {
	case port.Master != br.Index:
		return fmt.Errorf("interface %s: expected it on bridge %s", port.Name, br.Name)
	case !port.Up:
		return fmt.Errorf("interface %s: expected it up, found it down", port.Name)
	}
	return nil
}
