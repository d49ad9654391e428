// Package network is the runtime side of CNI: it runs the plugins of networks for ADD, DEL, CHECK,
// STATUS, GC and VERSION, and records each attachment. Package network/config reads the networks.
//
// A [Manager] gives containers all networks of a configuration directory, or none; container
// runtimes embed it. It uses a [Client], which attaches a container to one network.
// docs/embedding.md is the guide; it lists the equivalents of the functions of libcni and go-cni.
//
// # Lifecycle
//
// A network that offers several versions uses the newest that its plugins support: see
// [Client.Negotiate]. [Client.Add] attaches the container or leaves nothing behind: if a plugin
// fails, DEL runs for the whole list before Add returns. Add records its arguments and the result
// under [Client.StateDir], so [Client.Del] and [Client.Check] need only the key of the attachment
// and use the configuration of the ADD, even if the configuration file has changed since. A record
// stays until every plugin has succeeded on DEL. An interrupted ADD or DEL leaves a record too:
// [Client.Recover] runs DEL for it. It does the same for a [Manager.Setup] or [Manager.Remove] that
// was interrupted between two networks.
//
// Several runtimes can share a host: records name the runtime ([Client.Runtime]), clients register
// their state directories ([RegistryDir]), and GC keeps the attachments of other runtimes,
// including runtimes that use libcni ([Client.CacheDir]).
//
// # Concurrency
//
// Operations exclude each other as the specification demands, across goroutines and processes that
// share a state directory: one at a time per container, and none on a network while its GC runs.
// They wait until their context ends. A plugin that outlives a killed runtime counts as an
// operation. [Client.Status], [Client.Negotiate], [Client.Versions], [Client.Validate],
// [Client.List], [Client.Record], [Manager.Status], [Manager.Config] and [Manager.Sandbox] take no
// locks and never wait for an operation.
//
// # Errors
//
// Errors name the attachment or network, the plugin and the verb. They keep the code that the
// plugin returned ([cni.CodeOf]) and wrap its [*invoke.Error]. Several errors are joined.
//
// # Observing
//
// An [Observer] is called for operations, plugin calls and waits for locks: package metrics turns
// them into metrics for Prometheus, module otel into spans. [Client.Log] records them at level
// Debug. Plugins get the trace of the context ([invoke.WithTrace]). Logs, metrics and spans
// identify an attachment by [cni.Attachment.Owner], as link aliases and rules in the kernel do.
//
// # Systems
//
// The package works on Linux, macOS, FreeBSD and Windows. Three features exist only on Linux: the
// check that a network namespace is not the runtime's own; the boot ID in records, with which
// [Client.Recover] finds attachments of an earlier boot; and the registry of state directories. On
// Windows, a plugin that outlives a killed runtime holds no lock.
//
// Packages plugin and invoke describe the work of a plugin and how it is started.
package network

import (
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/network/config"
)

// Default paths. All runtimes use the same plugin directory and cache directory.
const (
	DefaultPluginDir = "/opt/cni/bin"
	DefaultStateDir  = "/var/lib/cni/tenon"
	DefaultCacheDir  = "/var/lib/cni"
)

// NoCacheDir as [Client.CacheDir] makes a client ignore attachments of libcni.
const NoCacheDir = "-"

// NoJournal as [Client.Journal] makes a client write no journal.
const NoJournal = "-"

// Errors to test for with [errors.Is].
var (
	// ErrNoRecord reports that the attachment does not exist or was detached.
	ErrNoRecord = records.ErrNoRecord
	// ErrExists reports an ADD of an attachment that already exists.
	ErrExists = errors.New("already attached")

	// ErrInterfaceInUse reports an ADD with an interface name that another network of the
	// container uses.
	ErrInterfaceInUse = errors.New("interface name is in use")

	// ErrUnreadable reports a record that is damaged or has an unknown format.
	ErrUnreadable = records.ErrUnreadable
)

// of prefixes an error with the attachment. It returns nil for nil.
func of(a cni.Attachment, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%v: %w", a, err)
}

// ofNetwork prefixes an error with the network. It returns nil for nil.
func ofNetwork(n *config.Network, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("network %s: %w", n.Name, err)
}
