package attach

import (
	"cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Segment is the part of a configuration for plugins with a link that shares a network with nodes
// outside Tenon's control. Configuration types embed it.
type Segment struct {
	// DAD selects duplicate address detection for the container's IPv6 addresses (RFC 4862). With
	// "optimistic" the container can use them meanwhile (RFC 4429); kernels without RFC 4429 wait.
	// With "wait" ADD waits one or two seconds and fails if it finds a duplicate. "off" turns
	// detection off.
	DAD DAD `json:"dad" enum:"optimistic,wait,off" default:"optimistic"`
}

// Options implements [Maker].
func (s *Segment) Options() Options {
	return Options{DAD: cmp.Or(s.DAD, DADOptimistic), Announce: true}
}

// DAD is a mode of duplicate address detection for IPv6.
type DAD string

// The modes. The empty one is [DADOff].
const (
	DADOff        DAD = "off"
	DADOptimistic DAD = "optimistic"
	DADWait       DAD = "wait"
)

func (d DAD) validate() error {
	switch d {
	case "", DADOff, DADOptimistic, DADWait:
		return nil
	}
	return cni.Errorf(cni.CodeInvalidConfig, "dad: %q is unknown; use %q, %q or %q", d, DADOptimistic, DADWait, DADOff)
}

// settings returns the sysctls of a link; v6 is the prefix of their keys.
func (d DAD) settings(v6 string) []kernel.Setting {
	set := func(key, value string) kernel.Setting {
		return kernel.Setting{Key: v6 + key, Value: value, Optional: true}
	}
	switch d {
	case DADWait:
		return []kernel.Setting{set("enhanced_dad", "1"), set("accept_dad", "1")}
	case DADOptimistic:
		return []kernel.Setting{set("enhanced_dad", "1"), set("accept_dad", "1"), set("optimistic_dad", "1"), set("use_optimistic", "1")}
	}
	return []kernel.Setting{set("accept_dad", "0")}
}
