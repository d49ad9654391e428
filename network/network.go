// Package network is the runtime side of CNI: it runs the plugins of networks for ADD, DEL, CHECK, STATUS, GC and
// VERSION, and records each attachment. Package network/config reads the networks.
//
// A [Manager] gives containers all networks of a configuration directory, or none; container runtimes embed it. A
// [Client] below it attaches to one network. docs/embedding.md is a guide, with a table of what libcni and go-cni call the
// same things.
//
// # Lifecycle
//
// A network that offers several versions runs in the newest that its plugins support: see [Client.Negotiate].
// [Client.Add] attaches or leaves nothing behind: when a plugin fails, DEL runs for the whole list
// before Add returns. What Add was given and what came out is recorded under [Client.StateDir], so
// [Client.Del] and [Client.Check] need only the key of the attachment and work as at the time of the
// ADD, whatever has become of the configuration file. A record stays until every plugin has succeeded
// on DEL. An ADD or a DEL that a crash has cut short leaves a record too: [Client.Recover] runs DEL for it. So it does for a
// [Manager.Setup] or [Manager.Remove] of several networks that was cut short between two of them.
//
// Several runtimes may share a host: records name the runtime ([Client.Runtime]), clients register their state
// directories ([RegistryDir]), and GC keeps the attachments of other runtimes, libcni's included ([Client.CacheDir]).
//
// # Concurrency
//
// Operations exclude each other as the specification demands, across goroutines and processes that
// share a state directory: one at a time per container, and none on a network while its GC runs. They wait
// until their context ends. A plugin that outlives a killed runtime counts as an operation. [Client.Status],
// [Client.Negotiate], [Client.Versions], [Client.Validate], [Client.List], [Client.Record], [Manager.Status],
// [Manager.Config] and [Manager.Sandbox] take no locks and never wait for an operation.
//
// # Errors
//
// Errors name the attachment or network, the plugin and the verb, and keep the code that the plugin
// gave ([cni.CodeOf]) and the [*invoke.Error] itself. Several errors are joined.
//
// # Observing
//
// An [Observer] is told of operations, calls of plugins and waits for locks: package metrics makes figures of them for
// Prometheus, module otel spans. [Client.Log] has them at level Debug. Plugins get the trace of the context
// ([invoke.WithTrace]). All of them name an attachment as link aliases and rules in the kernel do: [cni.Attachment.Owner].
//
// # Systems
//
// The package works on Linux, macOS, FreeBSD and Windows. Only Linux has network namespaces that a client can compare with
// its own, names the boot of a record, so that [Client.Recover] finds attachments of an earlier boot, and has the registry
// of state directories. On Windows a plugin that outlives a killed runtime holds no lock.
//
// What a plugin does, and how it is started, is not here: see packages plugin and invoke.
package network

import (
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/network/config"
)

// Default paths. The plugin directory and the cache directory are those of all runtimes.
const (
	DefaultPluginDir = "/opt/cni/bin"
	DefaultStateDir  = "/var/lib/cni/tenon"
	DefaultCacheDir  = "/var/lib/cni"
)

// NoCacheDir as [Client.CacheDir] leaves out what libcni attached.
const NoCacheDir = "-"

// Errors to test for with [errors.Is].
var (
	ErrNoRecord = records.ErrNoRecord                     // nothing was attached under this key, or it was deleted
	ErrExists   = errors.New("attachment exists already") // ADD of an attachment that is recorded

	ErrInterfaceInUse = errors.New("interface name is in use") // ADD under the name that another network of the container has

	ErrUnreadable = records.ErrUnreadable // a record is damaged, or none that this version knows
)

// of returns an error with the attachment in front, nil for nil.
func of(a cni.Attachment, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%v: %w", a, err)
}

// ofNetwork returns an error with the network in front, nil for nil.
func ofNetwork(n *config.Network, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("network %s: %w", n.Name, err)
}
