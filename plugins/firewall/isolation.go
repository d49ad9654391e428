package firewall

import (
	"errors"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// isolationOf finds what the previous result says the container to be behind: a bridge, or else the host's end of its link,
// as that of ptp. What a bridge forwards itself the host's rules do not see, so that isolated its port is closed.
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

// hostLinks are the interfaces of the host that the previous result names.
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
		return nil, cni.Errorf(cni.CodeInvalidConfig, "interface needs to be set for ingress policy %q, make sure to chain %q plugin with %q",
			c.IngressPolicy, "firewall", "bridge").
			WithDetails("prevResult names no interface that the host has; firewall belongs behind bridge or ptp in the plugins of a network")
	}
	return links, nil
}

func portOf(bridge kernel.Link, links []kernel.Link) (string, error) {
	for _, l := range links {
		if l.Master == bridge.Index {
			return l.Name, nil
		}
	}
	return "", cni.Errorf(cni.CodeInvalidConfig, "ingressPolicy: isolated: prevResult names no port of bridge %s", bridge.Name).
		WithDetails("firewall belongs right behind bridge in the plugins of a network")
}
