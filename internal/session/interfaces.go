package session

import (
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Inside returns the indexes of the interfaces of a result that are the container's: they have its name, and their sandbox
// is the namespace of the call, however its path is written.
func (s *Session) Inside(r *cni.Result) []int {
	return s.named(r, func(sandbox string) bool { return sandbox != "" && kernel.SameNamespace(sandbox, s.Netns) })
}

// Own returns the indexes of the interfaces of a result that count as the container's: the
// interfaces that [Session.Inside] finds, else all of its name with a sandbox that leads to no
// namespace, else all of its name without a sandbox. Results of other plugins often lack the right
// sandbox, and the upstream plugins look at the name.
func (s *Session) Own(r *cni.Result) []int {
	if own := s.Inside(r); own != nil {
		return own
	}
	if own := s.named(r, func(sandbox string) bool { return sandbox != "" && !s.elsewhere(sandbox) }); own != nil {
		return own
	}
	return s.named(r, func(sandbox string) bool { return sandbox == "" })
}

// elsewhere reports whether a sandbox is the namespace of another container. It must not be the sandbox of the call.
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

// PrevIPs are the addresses of the previous result that are the container's interface's
// ([Session.Own]), or no interface's.
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
