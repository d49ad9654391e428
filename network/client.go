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

// DefaultTimeout is how long a plugin may take for one call unless [Client.Timeout] says otherwise.
const DefaultTimeout = time.Minute

// Client runs networks. The zero value is ready for use; a Client must not be changed while it is in use
// and may be used concurrently.
type Client struct {
	Caller     invoke.Caller // how plugins are called; nil is [invoke.Process]
	PluginDirs []string      // where their executables are, in order; nil is [DefaultPluginDir]

	// StateDir is the directory of records and locks, made on demand; empty is [DefaultStateDir]. Runtimes that
	// share it exclude each other. A plugin that runs networks itself needs another than its runtime, which
	// has locked the container already.
	StateDir string

	// Runtime names the runtime in the records. GC leaves alone what another has attached.
	Runtime string

	// CacheDir is the cache directory of libcni; empty is [DefaultCacheDir], [NoCacheDir] is none. Attachments of
	// libcni can be checked, deleted and collected with the configuration, the arguments and the result in it; a
	// record of our own takes precedence. The directory is only read, except that the file of an attachment is removed
	// after its DEL.
	//
	// GC keeps what libcni attached with DefaultCacheDir in any case, wherever CacheDir is.
	CacheDir string

	// Timeout limits each call of a plugin, beside the context. Zero is [DefaultTimeout], negative is
	// no limit. Taking back a failed ADD is limited by it alone.
	Timeout time.Duration

	Policy *config.Policy // what networks have to have, and what may be executed; nil requires nothing

	// Log gets what is worth knowing and no error, and at level Debug every operation and call. Lines about an attachment
	// name it by its key (network, container, ifname) and as [cni.Attachment.Owner] does (attachment); what a plugin is given
	// is in none. nil is [slog.Default].
	Log *slog.Logger

	Observer Observer // told what is done; may be nil

	// Isolated declares that this process shares neither its network namespace nor its plugins' files with another
	// runtime, as in a sandbox of its own. Then the state directory is not registered in [RegistryDir], and GC does not
	// look for the attachments of other state directories. On systems other than Linux it is always so.
	Isolated bool

	held []*os.File // the locks of the operation, which plugins keep: see holding
	root string     // in front of the paths that are fixed for a host: for tests
}

// Parameters are what an attachment has beside its key and its network.
type Parameters struct {
	Netns        string                     // path of the network namespace; may be empty on DEL
	Args         cni.Args                   // CNI_ARGS, in this order
	Capabilities map[string]json.RawMessage // capability arguments by name; plugins get those that they declare

	// HostNetns allows Netns to be the namespace of the runtime itself, and tells the plugins so with
	// CNI_NETNS_OVERRIDE. Otherwise that is refused with [cni.CodeOwnNamespace] before anything is done.
	HostNetns bool
}

// Request asks for an attachment.
type Request struct {
	Container string // container ID
	IfName    string // interface name in the container
	Parameters

	// Replace runs DEL first where the attachment is recorded. Otherwise that is refused with
	// [ErrExists].
	Replace bool
}

// Attachment returns the key of the attachment that r asks for.
func (r Request) Attachment(network string) cni.Attachment {
	return cni.Attachment{Network: network, Container: r.Container, IfName: r.IfName}
}

// Fallback is what DEL is run with where there is no record, or none that can be read.
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

// cacheDir returns the cache directory of libcni, empty for none.
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

// find returns the executable of a plugin, if it may be run.
func (c *Client) find(typ string) (string, error) {
	path, err := invoke.Lookup(c.caller(), c.pluginDirs(), typ)
	if err != nil {
		return "", err
	}
	return path, c.Policy.CheckExecutable(typ, path)
}

// findIPAM looks for the executable that a plugin calls for addresses, if what may be run is limited.
func (c *Client) findIPAM(p *cni.PluginConfig) error {
	if p.IPAM == "" || !c.Policy.LimitsExecutables() {
		return nil
	}
	_, err := c.find(p.IPAM)
	return err
}

// env returns the environment that all plugins get for one operation. On GC and STATUS the key is empty.
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

// run calls plugin i of a list and returns the result of an ADD.
func (c *Client) run(ctx context.Context, l *cni.List, i int, env cni.Env, d cni.RequestData) (r *cni.Result, err error) {
	typ := l.Plugins[i].Type
	if err := c.findIPAM(l.Plugins[i]); err != nil {
		return nil, err
	}
	stdin, err := l.Request(env.Command, i, d)
	if err != nil {
		return nil, fmt.Errorf("request to %s: %w", typ, err)
	}
	a := env.Attachment(l.Name)
	err = c.call(ctx, Event{Attachment: a, Plugin: typ}, env, stdin, func(stdout []byte) (err error) {
		if env.Command == cni.Add {
			r, err = c.result(ctx, a, typ, stdout, l.Version)
		}
		return err
	})
	return r, err
}

// result decodes the result that a plugin printed. It logs each repair, and each address, gateway or route that the version
// of the list cannot express.
func (c *Client) result(ctx context.Context, a cni.Attachment, typ string, stdout []byte, v cni.Version) (*cni.Result, error) {
	r, repairs, err := cni.RepairResult(stdout, v)
	if err != nil {
		return nil, err
	}
	args := append(about.Args(a), "plugin", typ)
	for _, repair := range repairs {
		c.log().WarnContext(ctx, "result is wrong", append(args, "repair", repair)...)
	}
	if _, lost, err := r.Relay(v, r); err == nil {
		for _, text := range lost {
			c.log().WarnContext(ctx, "result has no place for it in this CNI version", append(args, "cniVersion", v.String(), "lost", text)...)
		}
	}
	return r, nil
}

// call calls the plugin that e names and has read what it printed: a plugin whose answer makes no sense has failed.
func (c *Client) call(ctx context.Context, e Event, env cni.Env, stdin []byte, read func(stdout []byte) error) error {
	path, err := c.find(e.Plugin)
	if err != nil {
		return err
	}
	e.Kind, e.Verb, e.Path = PluginCall, env.Command, path
	ctx, cancel := c.limit(ctx, 1)
	defer cancel()
	ctx, end := c.observeEvent(ctx, e)
	reply, err := c.caller().Call(ctx, invoke.Call{Path: path, Env: env, Stdin: stdin, Files: c.held})
	if err == nil {
		if err = read(reply.Stdout); err != nil {
			err = fmt.Errorf("%s %s: %w", e.Plugin, env.Command, err)
		}
	}
	end(nil, err)
	return err
}

// limit returns a context that ends after the time for so many calls at the latest.
func (c *Client) limit(ctx context.Context, calls int) (context.Context, context.CancelFunc) {
	timeout := cmp.Or(c.Timeout, DefaultTimeout)
	if timeout < 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Duration(calls)*timeout)
}

// runAll calls the plugins of a list in the given order, past those that fail, until ctx ends, and joins
// the errors.
func (c *Client) runAll(ctx context.Context, l *cni.List, order []int, env cni.Env, d cni.RequestData) error {
	var errs []error
	for n, i := range order {
		if err := ctx.Err(); n > 0 && err != nil {
			errs = append(errs, fmt.Errorf("%s and %d more not called: %w", l.Plugins[i].Type, len(order)-n-1, err))
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

// refuseOwnNetns keeps a mistaken caller from having the host reconfigured.
func (p Parameters) refuseOwnNetns() error {
	if p.Netns == "" || p.HostNetns {
		return nil
	}
	own, err := isOwnNetns(p.Netns)
	if err != nil {
		return cni.Errorf(cni.CodeOwnNamespace, "own network namespace: %w", err)
	}
	if own {
		return cni.Errorf(cni.CodeOwnNamespace, "namespace %q is that of the host", p.Netns).
			WithDetails("a container needs a namespace of its own")
	}
	return nil
}

// isOwnNetns reports whether path is the network namespace in which plugins would be started: that of
// this thread. A path that cannot be looked at is not, and only Linux has namespaces.
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

// isolated reports whether the client goes without the registry. Only Linux has a directory that is empty after a boot.
func (c *Client) isolated() bool { return c.Isolated || runtime.GOOS != "linux" }
