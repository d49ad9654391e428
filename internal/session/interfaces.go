package session

import (
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Inside returns the indexes of a result's interfaces that have the container's interface name and,
// as sandbox, the namespace of the call by any path.
func (s *Session) Inside(r *cni.Result) []int {
	return s.named(r, func(sandbox string) bool { return sandbox != "" && kernel.SameNamespace(sandbox, s.Netns) })
}

// Own returns the indexes of a result's interfaces that count as the container's: the interfaces
// that [Session.Inside] finds; otherwise all with the name and a sandbox that is not a namespace;
// otherwise all with the name and without a sandbox. Results of other plugins often lack the right
// sandbox, and the upstream plugins compare only the name.
func (s *Session) Own(r *cni.Result) []int {
	if own := s.Inside(r); own != nil {
		return own
	}
	if own := s.named(r, func(sandbox string) bool { return sandbox != "" && !s.elsewhere(sandbox) }); own != nil {
		return own
	}
	return s.named(r, func(sandbox string) bool { return sandbox == "" })
}

// elsewhere reports whether a sandbox is the namespace of another container. It must not be the
// sandbox of the call.
func (s *Session) elsewhere(sandbox string) bool {
	return kernel.IsNamespace(s.Netns) && kernel.IsNamespace(sandbox)
}

func (s *Session) named(r *cni.Result, in func(sandbox string) bool) (indexes []int) {
	for i, x := range r.Interfaces {
		if x.Name == s.IfName && in(x.Sandbox) {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// PrevIPs returns the addresses of the previous result that belong to the container's interface
// ([Session.Own]) or to no interface.
func (s *Session) PrevIPs() []cni.IP {
	own := s.Own(s.Prev)
	var list []cni.IP
	for _, ip := range s.Prev.IPs {
		if i, ok := ip.Interface.Get(); !ok || slices.Contains(own, i) {
			list = append(list, ip)
		}
	}
	return list
}
