package session

import (
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel/netns"
)

// Inside returns the indexes of the interfaces of a result that are the container's: they have its name, and their sandbox
// is the namespace of the call, however its path is written.
func (s *Core) Inside(r *cni.Result) []int {
	return s.named(r, func(sandbox string) bool { return sandbox != "" && netns.SamePath(sandbox, s.Netns) })
}

// Own returns the indexes of the interfaces of a result that count as the container's. Where none is [Core.Inside], those
// of its name do whose sandbox leads to no namespace, and where there are none, those without one: results of others are
// not always right about the sandbox, and the reference plugins go by the name.
func (s *Core) Own(r *cni.Result) []int {
	if own := s.Inside(r); own != nil {
		return own
	}
	if own := s.named(r, func(sandbox string) bool { return sandbox != "" && !s.elsewhere(sandbox) }); own != nil {
		return own
	}
	return s.named(r, func(sandbox string) bool { return sandbox == "" })
}

// elsewhere reports whether a sandbox that is not that of the call is the namespace of another container.
func (s *Core) elsewhere(sandbox string) bool {
	return netns.Leads(s.Netns) && netns.Leads(sandbox)
}

func (s *Core) named(r *cni.Result, in func(sandbox string) bool) (indexes []int) {
	for i, x := range r.Interfaces {
		if x.Name == s.IfName && in(x.Sandbox) {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// PrevIPs are the addresses of the previous result that are the container's interface's ([Core.Own]), or no interface's.
func (s *Core) PrevIPs() []cni.IP {
	own := s.Own(s.Prev)
	var list []cni.IP
	for _, ip := range s.Prev.IPs {
		if i, ok := ip.Interface.Get(); !ok || slices.Contains(own, i) {
			list = append(list, ip)
		}
	}
	return list
}
