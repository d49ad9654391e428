// Package about has the words in which logs say what a line is about: the same for runtimes, plugins and the DHCP daemon, so that the
// lines of one attachment are found together, and with what the kernel has of it. It writes nothing.
package about

import (
	"github.com/tenon-cni/tenon/cni"
)

// Args returns attributes for package slog: the attachment by its owner, as link aliases and rules name it, then its key, then
// more, which are keys and values. What is empty is left out: a may be a network or a container alone.
func Args(a cni.Attachment, more ...string) []any {
	var args []any
	if a.IfName != "" {
		args = append(args, "attachment", string(a.Owner()))
	}
	pairs := append([]string{"network", a.Network, "container", a.Container, "ifname", a.IfName}, more...)
	for i := 1; i < len(pairs); i += 2 {
		if pairs[i] != "" {
			args = append(args, pairs[i-1], pairs[i])
		}
	}
	return args
}
