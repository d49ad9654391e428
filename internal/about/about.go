// Package about defines the log attributes that identify an attachment. Runtimes, plugins and the
// DHCP daemon share them, so that a search finds all log lines of an attachment, and its objects in
// the kernel. The package writes nothing.
package about

import (
	"github.com/tenon-cni/tenon/cni"
)

// Args returns attributes for package slog: the attachment by its owner, as in link aliases and
// rules, its key, and more, which contains keys and values. It omits empty values, so a may consist
// of only a network or a container.
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
