package firewall

import (
	"errors"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// isolationOf returns the bridge of the previous result, or otherwise the host-side interface of
// the container, such as the veth of ptp. The host's rules do not see packets that a bridge
// forwards, so isolated also closes the bridge port.
func (c *Config) isolationOf(s *chained.Session) (i kernel.Isolation, err error) {
	i.Inside = c.IngressPolicy == policyIsolated
	links, err := c.hostLinks(s)
	if err != nil {
		return i, err
	}
	i.Interface = links[0].Name
	for _, l := range links {
		if l.Kind != "bridge" {
			continue
		}
		i.Interface = l.Name
		if i.Inside {
			i.Port, err = portOf(l, links)
		}
		return i, err
	}
	return i, nil
}

// hostLinks returns the host interfaces of the previous result.
func (c *Config) hostLinks(s *chained.Session) (links []kernel.Link, err error) {
	for _, i := range s.Prev.Interfaces {
		if i.Sandbox != "" {
			continue
		}
		l, err := s.Host.Links.ByName(i.Name)
		if errors.Is(err, kernel.ErrNoLink) {
			continue
		}
		if err != nil {
			return nil, err
		}
		links = append(links, l)
	}
	if len(links) == 0 {
		return nil, cni.Errorf(cni.CodeInvalidConfig,
			"interface needs to be set for ingress policy %q, make sure to chain %q plugin with %q",
			c.IngressPolicy, "firewall", "bridge").
			WithDetails("prevResult contains no interface of the host; " +
				"put firewall after bridge or ptp in the plugins of the network")
	}
	return links, nil
}

func portOf(bridge kernel.Link, links []kernel.Link) (string, error) {
	for _, l := range links {
		if l.Master == bridge.Index {
			return l.Name, nil
		}
	}
	return "", cni.Errorf(cni.CodeInvalidConfig,
		"ingressPolicy: isolated: prevResult contains no port of bridge %s", bridge.Name).
		WithDetails("put firewall directly after bridge in the plugins of the network")
}
