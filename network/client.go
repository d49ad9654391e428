package network

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/about"
	"github.com/tenon-cni/tenon/internal/records"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network/config"
)

// DefaultTimeout is the time limit for one plugin call if [Client.Timeout] is zero.
const DefaultTimeout = time.Minute

// Client runs networks. The zero value is ready for use. A Client can be used concurrently, and
// must not be changed while it is in use.
type Client struct {
	Caller     invoke.Caller // how plugins are called; nil is [invoke.Process]
	PluginDirs []string      // searched in this order; nil is [DefaultPluginDir]

	// StateDir is the directory of records and locks, created on demand; empty is
	// [DefaultStateDir]. The operations of runtimes that share it exclude each other. A plugin that
	// runs networks itself must use another directory than its runtime, which has already locked
	// the container.
	StateDir string

	// Runtime is the name of the runtime in the records. GC keeps the attachments of other
	// runtimes.
	Runtime string

	// CacheDir is the cache directory of libcni; empty is [DefaultCacheDir], and [NoCacheDir] is
	// none. CHECK, DEL and GC handle attachments of libcni with the configuration, the arguments
	// and the result in this directory. A record of this package takes precedence. The client reads
	// the directory, and removes the file of an attachment after its DEL.
	//
	// GC always keeps the attachments of libcni in DefaultCacheDir, even if CacheDir is another
	// directory.
	CacheDir string

	// Timeout limits each plugin call, in addition to the context. Zero is [DefaultTimeout],
	// negative is no limit. The rollback of a failed ADD ignores the context and has only this
	// limit; if the context has ended, the whole rollback has five seconds.
	Timeout time.Duration

	// Policy names required plugins and allowed binaries; nil has no requirements.
	Policy *config.Policy

	// Log gets warnings, and at level Debug every operation and plugin call. Lines about an
	// attachment have its key (network, container, ifname) and its [cni.Attachment.Owner]
	// (attachment), but never the input of a plugin. nil is [slog.Default].
	Log *slog.Logger

	Observer Observer // called for each operation and plugin call; may be nil

	// Journal is the directory of the journal, in which the client records each operation for
	// "tenon logs" and "tenon history"; the client creates it on demand. Empty is the directory
	// "journal" in StateDir if it exists, and no journal otherwise. [NoJournal] is none. A journal
	// that cannot be written does not affect operations. Records have no arguments of plugins.
	Journal string

	// Isolated declares that this process shares neither its network namespace nor the files of its
	// plugins with another runtime, for example because it runs in a sandbox. The client then does
	// not register its state directory in [RegistryDir], and GC does not look for attachments in
	// other state directories. Clients on systems other than Linux are always isolated.
	Isolated bool

	held  []*os.File // locks of the operation, which plugins inherit: see holding
	entry *entry     // of the operation in the journal; nil for none
	root  string     // prefix of the fixed paths of the host, for tests
}

// Parameters are the arguments of an attachment, without its key and its network.
type Parameters struct {
	Netns        string                     // path of the network namespace; may be empty on DEL
	Args         cni.Args                   // CNI_ARGS, in this order
	Capabilities map[string]json.RawMessage // by name; each plugin gets what it declares

	// HostNetns allows Netns to be the namespace of the runtime itself; plugins then get
	// CNI_NETNS_OVERRIDE. Otherwise ADD fails with [cni.CodeOwnNamespace] before any plugin runs.
	HostNetns bool
}

// Request describes an attachment to create.
type Request struct {
	Container string // container ID
	IfName    string // interface name in the container
	Parameters

	// Replace runs DEL first if the attachment already exists. Otherwise ADD fails with
	// [ErrExists].
	Replace bool
}

// Attachment returns the key of the requested attachment.
func (r Request) Attachment(network string) cni.Attachment {
	return cni.Attachment{Network: network, Container: r.Container, IfName: r.IfName}
}

// Fallback is the input of DEL if the record of an attachment is missing or unreadable.
type Fallback struct {
	Network *config.Network
	Parameters
}

func (c *Client) caller() invoke.Caller {
	if c.Caller == nil {
		return invoke.Process{}
	}
	return c.Caller
}

func (c *Client) pluginDirs() []string {
	if c.PluginDirs == nil {
		return []string{DefaultPluginDir}
	}
	return c.PluginDirs
}

func (c *Client) stateDir() string { return cmp.Or(c.StateDir, DefaultStateDir) }

// cacheDir returns the cache directory of libcni, or "" for none.
func (c *Client) cacheDir() string {
	switch c.CacheDir {
	case "":
		return c.defaultCacheDir()
	case NoCacheDir:
		return ""
	}
	return c.CacheDir
}

func (c *Client) defaultCacheDir() string { return filepath.Join(c.root, DefaultCacheDir) }

func (c *Client) store() records.Store { return records.Store{StateDir: c.stateDir()} }

func (c *Client) cache() records.Cache { return records.Cache{Dir: c.cacheDir()} }

func (c *Client) log() *slog.Logger { return cmp.Or(c.Log, slog.Default()) }

// find returns the path of a plugin, or an error if the policy does not allow the binary.
func (c *Client) find(typ string) (string, error) {
	path, err := invoke.Lookup(c.caller(), c.pluginDirs(), typ)
	if err != nil {
		return "", err
	}
	return path, c.Policy.CheckExecutable(typ, path)
}

// findIPAM checks that the policy allows the IPAM plugin of p, if the policy limits binaries.
func (c *Client) findIPAM(p *cni.PluginConfig) error {
	if p.IPAM == "" || !c.Policy.LimitsExecutables() {
		return nil
	}
	_, err := c.find(p.IPAM)
	return err
}

// env returns the environment of all plugins for one operation. For GC and STATUS, the key is
// empty.
func (c *Client) env(verb cni.Command, a cni.Attachment, p records.Parameters) cni.Env {
	e := cni.Env{
		Command: verb, ContainerID: a.Container, Netns: p.Netns, IfName: a.IfName,
		Args: p.Args.String(), Path: strings.Join(c.pluginDirs(), cni.PathSeparator()),
	}
	if p.HostNetns {
		e.NetnsOverride = "1"
	}
	return e
}

// run calls plugin i of a list and returns its result if the verb is ADD.
func (c *Client) run(
	ctx context.Context, l *cni.List, i int, env cni.Env, d cni.RequestData,
) (r *cni.Result, err error) {
	typ := l.Plugins[i].Type
	if err := c.findIPAM(l.Plugins[i]); err != nil {
		return nil, err
	}
	stdin, err := l.Request(env.Command, i, d)
	if err != nil {
		return nil, fmt.Errorf("create request for %s: %w", typ, err)
	}
	a := env.Attachment(l.Name)
	err = c.call(ctx, Event{Attachment: a, Plugin: typ}, env, stdin,
		func(stdout []byte) (err error) {
			if env.Command == cni.Add {
				r, err = c.result(ctx, a, typ, stdout, l.Version)
			}
			return err
		})
	return r, err
}

// result decodes the output of a plugin. It logs each repair, and each address, gateway or route
// that the version of the list cannot express.
func (c *Client) result(
	ctx context.Context, a cni.Attachment, typ string, stdout []byte, v cni.Version,
) (*cni.Result, error) {
	r, repairs, err := cni.RepairResult(stdout, v)
	if err != nil {
		return nil, err
	}
	args := append(about.Args(a), "plugin", typ)
	for _, repair := range repairs {
		c.log().WarnContext(ctx, "plugin returned an invalid result",
			append(args, "repair", repair)...)
	}
	if _, lost, err := r.Relay(v, r); err == nil {
		for _, text := range lost {
			c.log().WarnContext(ctx,
				"part of the result is lost: the CNI version cannot express it",
				append(args, "cniVersion", v.String(), "lost", text)...)
		}
	}
	return r, nil
}

// call calls the plugin that e names and passes its output to read. An error of read counts as a
// failure of the plugin.
func (c *Client) call(
	ctx context.Context, e Event, env cni.Env, stdin []byte, read func(stdout []byte) error,
) error {
	path, err := c.find(e.Plugin)
	if err != nil {
		return err
	}
	called := c.entry.begin(e.Plugin, env.Command)
	e.Kind, e.Verb, e.Path = PluginCall, env.Command, path
	ctx, cancel := c.limit(ctx, 1)
	defer cancel()
	ctx, end := c.observeEvent(ctx, e)
	reply, err := c.caller().Call(ctx,
		invoke.Call{Path: path, Env: env, Stdin: stdin, Files: c.held, Journaled: true})
	if err == nil {
		if err = read(reply.Stdout); err != nil {
			err = fmt.Errorf("%s %s: %w", e.Plugin, env.Command, err)
		}
	}
	end(nil, err)
	called(err)
	return err
}

// limit returns a context that ends at the latest after the time limit of the given number of
// calls.
func (c *Client) limit(ctx context.Context, calls int) (context.Context, context.CancelFunc) {
	timeout := cmp.Or(c.Timeout, DefaultTimeout)
	if timeout < 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Duration(calls)*timeout)
}

// runAll calls the plugins of a list in the given order until ctx ends. It continues past failing
// plugins and joins the errors.
func (c *Client) runAll(
	ctx context.Context, l *cni.List, order []int, env cni.Env, d cni.RequestData,
) error {
	var errs []error
	for n, i := range order {
		if err := ctx.Err(); n > 0 && err != nil {
			errs = append(errs, fmt.Errorf("%s and %d more plugins not called: %w",
				l.Plugins[i].Type, len(order)-n-1, err))
			break
		}
		if _, err := c.run(ctx, l, i, env, d); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func forward(l *cni.List) []int {
	order := make([]int, len(l.Plugins))
	for i := range order {
		order[i] = i
	}
	return order
}

func backward(l *cni.List) []int {
	order := forward(l)
	slices.Reverse(order)
	return order
}

func (p Parameters) validate() error { return records.Parameters(p).Validate() }

// refuseOwnNetns protects the host against a caller that passes the host's namespace by mistake.
func (p Parameters) refuseOwnNetns() error {
	if p.Netns == "" || p.HostNetns {
		return nil
	}
	own, err := isOwnNetns(p.Netns)
	if err != nil {
		return cni.Errorf(cni.CodeOwnNamespace, "cannot look up the own network namespace: %w", err)
	}
	if own {
		return cni.Errorf(cni.CodeOwnNamespace, "network namespace %q is the host's own", p.Netns).
			WithDetails("a container needs its own network namespace")
	}
	return nil
}

// isOwnNetns reports whether path is the network namespace in which this thread would start
// plugins. It returns false if path cannot be read, and on systems other than Linux, which have no
// namespaces.
func isOwnNetns(path string) (bool, error) {
	if runtime.GOOS != "linux" {
		return false, nil
	}
	own, err := os.Stat("/proc/thread-self/ns/net")
	if err != nil {
		return false, err
	}
	asked, err := os.Stat(path)
	return err == nil && os.SameFile(own, asked), nil
}

// isolated reports whether the client works without the registry. Only Linux has a directory that
// is empty after a boot.
func (c *Client) isolated() bool { return c.Isolated || runtime.GOOS != "linux" }
