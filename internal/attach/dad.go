package attach

import (
	"cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Segment is the part of a configuration of plugins whose link is in a network with nodes that nobody here has given their
// addresses. Configuration types embed it.
type Segment struct {
	// DAD is how duplicates of the container's IPv6 addresses are looked for (RFC 4862): "optimistic" lets it use them
	// meanwhile (RFC 4429; kernels without that wait), "wait" lets ADD take the one or two seconds, and fail if there is
	// one, "off" looks for none.
	DAD DAD `json:"dad" enum:"optimistic,wait,off" default:"optimistic"`
}

// Options implements [Maker].
func (s *Segment) Options() Options {
	return Options{DAD: cmp.Or(s.DAD, DADOptimistic), Announce: true}
}

// DAD is a way to look for duplicates of IPv6 addresses.
type DAD string

// The ways. The empty one is [DADOff].
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
	return cni.Errorf(cni.CodeInvalidConfig, "dad: %q is neither %q nor %q nor %q", d, DADOptimistic, DADWait, DADOff)
}

// settings are the sysctls of a link, whose keys begin with v6.
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
