package bridge

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
)

// Precheck requires the bridge in the previous result and on the host, with the same MAC address.
func (c *Config) Precheck(s *attach.Session) error {
	name := c.bridge()
	br, err := s.Host.Links.ByName(name)
	if err == nil {
		name = br.Name // the configuration may have an alternative name
	}
	var own *cni.Interface
	for i := range s.Prev.Interfaces {
		if s.Prev.Interfaces[i].Name == name {
			own = &s.Prev.Interfaces[i]
		}
	}
	if own == nil {
		return cni.Errorf(cni.CodeInvalidConfig, "Interface name missing ").
			WithDetails(fmt.Sprintf("prevResult has no interface %s", name)).Verbatim()
	}
	if errors.Is(err, kernel.ErrNoLink) {
		return cni.Rephrase(err, "Interface name %s not found", name)
	}
	if err != nil {
		return err
	}
	if own.Sandbox != "" {
		return cni.Errorf(cni.CodeInvalidConfig, "Interface %s should not be in sandbox", name).
			WithDetails(fmt.Sprintf("prevResult has bridge %s in %s", name, own.Sandbox)).Verbatim()
	}
	if br.Kind != "bridge" {
		err := fmt.Errorf("interface %s: expected a bridge, found a %s", br.Name, br.Kind)
		return cni.Rephrase(err, "Interface %s does not have link type of bridge", br.Name)
	}
	if err := attach.CheckMAC(br, *own); err != nil {
		return cni.Rephrase(err, "Bridge interface %s Mac doesn't match: %s", name, own.MAC)
	}
	return nil
}

// checkListed requires the port among the host interfaces of the previous result, and that all of
// these exist.
func checkListed(s *attach.Session, port, br kernel.Link) error {
	listed := false
	for _, i := range s.Prev.Interfaces {
		if i.Sandbox != "" || i.Name == br.Name {
			continue
		}
		l, err := s.Host.Links.ByName(i.Name)
		if errors.Is(err, kernel.ErrNoLink) {
			return cni.Rephrase(err, "Interface name %s not found", i.Name)
		}
		if err != nil {
			return err
		}
		listed = listed || l.Index == port.Index
	}
	if !listed {
		return cni.Errorf(cni.CodeInvalidConfig, "CNI veth created for bridge %s was not found",
			br.Name).
			WithDetails(fmt.Sprintf("prevResult has no interface %s", port.Name)).Verbatim()
	}
	return nil
}

// Verify compares the bridge and the host-side veth with the previous result and the configuration.
func (c *Config) Verify(_ context.Context, s *attach.Session, link kernel.Link) error {
	br, err := s.Host.Links.ByName(c.bridge())
	if err != nil {
		return err
	}
	if c.PromiscMode && br.Promisc == 0 {
		err := fmt.Errorf("bridge %s: expected promiscuous mode, found it off", br.Name)
		return cni.Rephrase(err,
			"Bridge interface %s configured Promisc Mode true doesn't match current state: false ",
			br.Name)
	}
	port, err := s.CheckPair(link)
	if err != nil {
		return err
	}
	if err := checkListed(s, port, br); err != nil {
		return err
	}
	if err := checkPort(port, br); err != nil {
		return err
	}
	_, ours := cni.ParseTag(port.Alias)
	if err := c.checkVLANs(s, br, port, ours); err != nil {
		return err
	}
	if err := c.checkGateway(s, br); err != nil {
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
	if port.Master != br.Index {
		return fmt.Errorf("interface %s: expected a port of bridge %s", port.Name, br.Name)
	}
	return session.CheckUp(port)
}
