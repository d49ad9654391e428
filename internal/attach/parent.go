package attach

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/plugin"
)

// Parent returns the parent of the container's link, and where it is: in the host, or with
// inContainer in the container's namespace. name may be an alternative name; if name is "", the
// parent is the link of the default route there, of IPv4 before IPv6. If there is none, the error
// has the code [cni.CodeInvalidConfig].
func (s *Session) Parent(name string, inContainer bool) (kernel.Link, *kernel.Space, error) {
	space, where := s.Host, "the host"
	if inContainer {
		space, where = s.Sandbox, "the container (linkInContainer)"
	}
	if name == "" {
		l, err := defaultLink(space)
		if errors.Is(err, kernel.ErrNoLink) {
			err = cni.Errorf(cni.CodeInvalidConfig, "no default route interface found").
				WithDetails(where + " has no default route; set master to the name of an interface")
		}
		return l, space, err
	}
	l, err := space.Links.ByName(name)
	if errors.Is(err, kernel.ErrNoLink) {
		err = cni.Rephrase(cni.Errorf(cni.CodeInvalidConfig, "master: %w in %s", err, where).
			WithDetails("list the interfaces with: ip link"), "Link not found")
	}
	return l, space, err
}

// ParentStatus implements the part of [plugin.Statuser] for a parent: it reports a missing one. It
// cannot examine a container's namespace.
func ParentStatus(ctx context.Context, c *plugin.Call, name string, inContainer bool) error {
	if inContainer {
		return nil
	}
	s, err := session.Open(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	_, _, err = (&Session{Session: s}).Parent(name, false)
	return err
}

// CheckParent checks that the configured parent still exists. Without a name it cannot know the
// parent, because the default route may lead through another link now.
func (s *Session) CheckParent(name string, inContainer bool) error {
	if name == "" {
		return nil
	}
	_, _, err := s.Parent(name, inContainer)
	return err
}

// CheckMode compares the mode of a link with the configured one. text is the format of the upstream
// plugin for the modes found and expected.
func CheckMode(l kernel.Link, want, text string) error {
	if l.Mode == want {
		return nil
	}
	err := fmt.Errorf("interface %s: expected mode %s, found %s", l.Name, want, l.Mode)
	return cni.Rephrase(err, text, l.Mode, want)
}

// defaultLink returns the link of the default route. If there are several routes, the kernel's
// preferred one counts; of a multipath route, the first hop.
func defaultLink(space *kernel.Space) (kernel.Link, error) {
	routes, err := space.Routes.All(kernel.TableMain)
	if err != nil {
		return kernel.Link{}, err
	}
	var found []kernel.Route
	for _, r := range routes {
		if r.Dst.Bits() == 0 && r.Link != 0 {
			found = append(found, r)
		}
	}
	if found == nil {
		return kernel.Link{}, kernel.ErrNoLink
	}
	sort.SliceStable(found, func(i, j int) bool {
		if a, b := found[i].Dst.Addr().Is4(), found[j].Dst.Addr().Is4(); a != b {
			return a
		}
		return found[i].Priority < found[j].Priority
	})
	return space.Links.ByIndex(found[0].Link)
}

// CheckMTU refuses an MTU that is too large for a link on that parent. 0 stands for the parent's
// MTU.
func CheckMTU(mtu int, parent kernel.Link) error {
	if mtu < 0 || mtu > parent.MTU {
		return cni.Errorf(cni.CodeInvalidConfig, "invalid MTU %d, must be [0, master MTU(%d)]", mtu, parent.MTU)
	}
	return nil
}

const (
	minMTU = 68 // of veth and most other links (ETH_MIN_MTU), and of IPv4
	maxMTU = 65535
)

// ValidateMTU refuses an MTU that no interface can have. 0 stands for the kernel's default.
func ValidateMTU(mtu int) error {
	if mtu < 0 || mtu > maxMTU {
		return cni.Errorf(cni.CodeInvalidConfig, "mtu: %d is not within 0 to %d", mtu, maxMTU)
	}
	if mtu != 0 && mtu < minMTU {
		return cni.Errorf(cni.CodeInvalidConfig, "mtu: %d is less than %d", mtu, minMTU).
			WithDetails("use at least 68, or 0 for the default; IPv6 needs 1280")
	}
	return nil
}
