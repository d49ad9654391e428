package dhcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of the plugin: the ipam section of a network.
type Config struct {
	plugin.Common

	// IPAM is the section that names this plugin.
	IPAM *dhcp.Settings `json:"ipam"`
}

// Plugin is the definition of dhcp.
var Plugin = plugin.Define(plugin.Info{
	Name:      "dhcp",
	About:     "gets addresses from a DHCP server on the link, through a daemon that renews them",
	Role:      plugin.RoleIPAM,
	NeedsLink: true,
	Doc:       doc,
}, func() plugin.Plugin { return new(Config) })

// Validate checks the options.
func (c *Config) Validate(call *plugin.Call) error {
	if c.IPAM == nil {
		return cni.Errorf(cni.CodeInvalidConfig, "the network configuration has no ipam section")
	}
	_, _, err := c.IPAM.Options(call.Args)
	return err
}

// Add returns the address from the daemon. The routes of the configuration follow the server's.
func (c *Config) Add(ctx context.Context, call *plugin.Call) (*cni.Result, error) {
	r, err := c.ask(ctx, call, dhcp.Allocate)
	if err != nil {
		return nil, err
	}
	r.Routes = append(r.Routes, c.IPAM.Routes...)
	return r, nil
}

// Check asks the daemon whether it still has the address of the previous result.
func (c *Config) Check(ctx context.Context, call *plugin.Call) error {
	r, err := c.ask(ctx, call, dhcp.Check)
	if err != nil || call.Prev == nil {
		return err
	}
	for _, ip := range r.IPs {
		same := func(p cni.IP) bool { return p.Address == ip.Address }
		if !slices.ContainsFunc(call.Prev.IPs, same) {
			return fmt.Errorf("the server has changed the address: expected one of %v, found %s",
				ipam.Addresses(call.Prev.IPs), ip.Address)
		}
	}
	return nil
}

// Del releases the address. If no daemon runs, the next one releases it.
func (c *Config) Del(ctx context.Context, call *plugin.Call) error {
	config, err := network(call)
	if err != nil {
		return err
	}
	q := dhcp.Request{
		Verb: dhcp.Release, Container: call.ContainerID, IfName: call.IfName, Netns: call.Netns,
		Config: config,
	}
	if _, err = c.call(ctx, q, "Release"); errors.Is(err, dhcp.ErrUnreachable) {
		return c.note(call)
	}
	return err
}

// note writes a note for the next daemon that the attachment was deleted, if an earlier daemon has
// left a lease for it.
func (c *Config) note(call *plugin.Call) error {
	a := call.Attachment()
	leases, err := dhcp.LeaseFiles(c.socket())
	if err != nil {
		return cni.Errorf(cni.CodeIOFailure, "%w", err)
	}
	if ok, err := leases.Read(dhcp.FileName(a), new(json.RawMessage)); err == nil && !ok {
		return nil
	}
	notes, err := dhcp.NoteFiles(c.socket())
	if err == nil {
		err = notes.Write(dhcp.FileName(a), a)
	}
	if err != nil {
		return cni.Errorf(cni.CodeIOFailure,
			"the DHCP daemon does not run; cannot write a note for the next one: %w", err)
	}
	call.Log.Warn("the DHCP daemon does not run; the next one will release the address", "socket",
		c.socket())
	return nil
}

// Status reports whether the daemon answers.
func (c *Config) Status(ctx context.Context, call *plugin.Call) error {
	reply, err := dhcp.Call(ctx, c.socket(), dhcp.Request{Verb: dhcp.Status})
	if errors.Is(err, dhcp.ErrUpstream) {
		return nil
	}
	if err == nil {
		err = reply.Err()
	}
	if err != nil {
		return cni.Errorf(cni.CodeNotAvailable, "error dialing DHCP daemon: %w", err).
			WithDetails(hint)
	}
	return nil
}

// GC lets the daemon release leases that are no longer in use. It succeeds if no daemon runs.
func (c *Config) GC(ctx context.Context, call *plugin.Call) error {
	config, err := network(call)
	if err != nil {
		return err
	}
	q := dhcp.Request{Verb: dhcp.Collect, Config: config, Valid: call.Valid}
	_, err = c.call(ctx, q, "GC")
	if errors.Is(err, dhcp.ErrUpstream) || errors.Is(err, dhcp.ErrUnreachable) {
		return nil
	}
	return err
}

const hint = "start the DHCP daemon: tenon dhcp-daemon"

// ask sends a request about the container, and returns the result.
func (c *Config) ask(ctx context.Context, call *plugin.Call, verb dhcp.Verb) (*cni.Result, error) {
	path, err := filepath.Abs(call.Netns)
	if err != nil {
		return nil, err
	}
	q := dhcp.Request{
		Verb: verb, Container: call.ContainerID, IfName: call.IfName, Netns: path,
		Args: call.Args, Config: call.Stdin(),
	}
	// It refuses a FIFO, which os.Open would wait for.
	ns, err := kernel.OpenNamespace(path)
	if err != nil {
		return nil, cni.Errorf(cni.CodeUnknownContainer, "CNI_NETNS: %w", err)
	}
	defer ns.Close()
	if q.NS, err = os.Open(path); err != nil {
		return nil, cni.Errorf(cni.CodeUnknownContainer, "CNI_NETNS: %w", err)
	}
	defer q.NS.Close()
	reply, err := c.call(ctx, q, "Allocate")
	if reply == nil {
		return nil, cni.AsError(err).WithDetails(hint)
	}
	if err != nil {
		return nil, err
	}
	return cni.DecodeResult(reply.Result, cni.V110)
}

// call sends a request. If the reply contains an error, call returns it in upstream's words, which
// users and tests know; method is upstream's name of the request.
func (c *Config) call(ctx context.Context, q dhcp.Request, method string) (*dhcp.Reply, error) {
	reply, err := dhcp.Call(ctx, c.socket(), q)
	if err != nil {
		return nil, cni.Errorf(cni.CodeInternal, "error dialing DHCP daemon: %w", err)
	}
	if err := reply.Err(); err != nil {
		e := cni.AsError(err)
		err := cni.Errorf(e.Code, "error calling DHCP.%s: %s", method, e.Msg)
		return reply, err.WithDetails(e.Details)
	}
	return reply, nil
}

// socket returns the path of the daemon's socket.
func (c *Config) socket() string {
	if c.IPAM == nil {
		return dhcp.DefaultSocket
	}
	return cmp.Or(c.IPAM.DaemonSocketPath, dhcp.DefaultSocket)
}

// network returns the part of the configuration that DEL and GC need. The rest may have become
// invalid.
func network(c *plugin.Call) (json.RawMessage, error) {
	return json.Marshal(map[string]any{
		"cniVersion": c.Version, "name": c.Name, "type": c.Type,
		"ipam": map[string]string{"type": "dhcp"},
	})
}
