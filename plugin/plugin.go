// Package plugin is the kit for writing a CNI plugin: it decodes and checks a request, passes it to
// the plugin as Go types, and encodes the result in the version of the request. The author of a
// plugin writes a configuration type with three or more methods and calls [Define]. [Main] turns
// the definition into a program, and package plugintest tests it.
//
// The package implements only the protocol: it does not use the kernel or IPAM, and it does not
// access files.
package plugin

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"

	"github.com/tenon-cni/tenon/cni"
)

// Configuration is a pointer to a struct that embeds [Common].
type Configuration interface{ common() *Common }

// Plugin is a configuration that carries out calls. The package creates a Plugin for each call and
// decodes the request into it, so a Plugin may keep values that it derives from the request in
// fields of its own.
//
// Errors that are or wrap a [*cni.Error] keep its code. Errors of the kernel ([syscall.Errno]) get
// [cni.CodeTryAgainLater], [cni.CodeIOFailure] or [CodeInUse] and a hint. If the context has ended,
// errors without a code get [cni.CodeTryAgainLater]; all other errors get [cni.CodeInternal].
// SIGTERM and SIGINT cancel the context.
type Plugin interface {
	Configuration

	// Add attaches a container. If it fails, it leaves nothing behind.
	Add(context.Context, *Call) (*cni.Result, error)

	// Del removes everything that exists for the attachment, and succeeds if nothing exists. It
	// works without Netns and Prev, and with the part of the configuration that could be decoded.
	Del(context.Context, *Call) error

	// Check compares the attachment with Prev and returns the first difference as an error. It
	// changes nothing.
	Check(context.Context, *Call) error
}

// Statuser is a Plugin that can report whether ADD would succeed. Its errors should have the code
// [cni.CodeNotAvailable] or [cni.CodeLimitedConnectivity].
type Statuser interface {
	Status(context.Context, *Call) error
}

// Collector is a Plugin that implements GC. It removes everything that belongs to attachments of
// the network that [Call.Valid] does not list, and continues past errors.
type Collector interface {
	GC(context.Context, *Call) error
}

// Validator is a Plugin that checks its configuration before ADD, CHECK and STATUS. DEL and GC do
// not call it, because they must work with a configuration that was edited after the ADD and is now
// invalid. Errors should have the code [cni.CodeInvalidConfig] or [cni.CodeUnsupportedField].
type Validator interface {
	Validate(*Call) error
}

// Advisor is a Plugin that decides by the state of the host what a configuration leaves open.
type Advisor interface {
	// Advise returns the decisions of an ADD on this host that differ from the usual ones, each as
	// a sentence without a subject, such as "uses iptables …". It changes nothing. It returns an
	// error if it cannot read the state of the host, for example for lack of privilege.
	Advise(context.Context, *Call) ([]string, error)
}

// Common is the part of a configuration that every plugin has. Configuration types embed it.
type Common struct {
	CNIVersion string `json:"cniVersion"` // version of this call
	Name       string `json:"name"`       // name of the network

	// Type is the file name of the plugin. It is not compared with the name of the program.
	Type string `json:"type"`

	IPAM          IPAM            `json:"ipam"`          // the ipam section of a delegating plugin
	DNS           cni.DNS         `json:"dns"`           // for the result
	PrevResult    json.RawMessage `json:"prevResult"`    // as received; [Call.Prev] is decoded
	RuntimeConfig RuntimeConfig   `json:"runtimeConfig"` // capability arguments
	// ConfArgs are generic arguments; unknown ones are ignored.
	ConfArgs ConfArgs `json:"args"`
}

func (c *Common) common() *Common { return c }

// IPAM is the part of the ipam section that a delegating plugin needs.
type IPAM struct {
	Type string `json:"type"` // file name of the IPAM plugin; empty for a network without addresses
}

// RuntimeConfig holds the capability arguments that plugins of this kit understand (CNI
// conventions, "Dynamic plugin specific fields"). Keys match in upper or lower case, because
// containerd capitalises them.
type RuntimeConfig struct {
	MAC      string          `json:"mac"`      // capability mac
	IPs      []string        `json:"ips"`      // capability ips
	IPRanges json.RawMessage `json:"ipRanges"` // capability ipRanges
}

// ConfArgs is the args object of a configuration (CNI conventions, "args in network config").
type ConfArgs struct {
	CNI struct {
		MAC string   `json:"mac"` // the MAC address
		IPs []string `json:"ips"` // addresses, with or without a prefix length
	} `json:"cni"` // keys that the conventions define
}

// Request holds the MAC address and the addresses that the runtime requests for the attachment.
type Request struct {
	// MAC is the MAC address. The capability mac has precedence over args.cni.mac, and args.cni.mac
	// over MAC in CNI_ARGS.
	MAC string

	// IPs are the addresses, with or without a prefix length: IP in CNI_ARGS, then args.cni.ips,
	// then the capability ips. They add up, as in the upstream plugins.
	IPs []string
}

// Call is one decoded and validated call of a plugin.
type Call struct {
	*Common
	cni.Env

	Asked Request

	// Prev is the result of the plugin before (ADD) or of the whole ADD (CHECK, DEL), or nil.
	Prev     *cni.Result
	Version  cni.Version           // version of the call
	Valid    []cni.ValidAttachment // GC: the attachments that are still in use
	Delegate Delegator

	// Log writes to standard error or to [Linked.Log]. Each line contains the attributes of the
	// call: plugin, verb, network, container, ifname, the attachment in the form of
	// [cni.Attachment.Owner], and trace_id if the call is part of a trace ([invoke.TraceFrom]).
	Log *slog.Logger

	// Linked reports that the plugin is linked into another program (see [Linked]), which cannot be
	// started again with the arguments of [Info.Helper].
	Linked bool

	// Watch is called with a description before each change of the host. If it returns an error,
	// the change does not happen and fails with that error. Tests use Watch to observe and disturb
	// a plugin (see [Definition.Watched]); it is nil otherwise. Plugins built on Tenon's kernel
	// packages call it for every change; a plugin that changes the host by other means should call
	// it too.
	Watch func(op string) error

	conf  Configuration
	stdin []byte
}

// Attachment returns the key of the attachment.
func (c *Call) Attachment() cni.Attachment { return c.Env.Attachment(c.Name) }

// Stdin returns the request as it was received.
func (c *Call) Stdin() []byte { return c.stdin }

// Info describes a plugin.
type Info struct {
	Name         string        // file name of the binary
	About        string        // one sentence for users
	Role         Role          // position in a network
	Versions     []cni.Version // supported versions; nil stands for all
	Capabilities []string      // supported keys of runtimeConfig
	// Repeatable allows the plugin more than once in a network, with different configurations.
	Repeatable bool

	// Args lists the supported keys of CNI_ARGS. Other keys are refused; if Args is nil, CNI_ARGS
	// is not parsed.
	Args []string

	// NeedsLink declares that DEL and GC of an IPAM plugin reach a server over the link. They are
	// called before the link is deleted.
	NeedsLink bool

	// Doc is the documentation in Markdown. Its JSON blocks are working configurations; see
	// [Info.Examples].
	Doc string

	// Helper does work that the plugin must do in another process, and returns the exit status.
	// [Main] calls it if the binary is started with two arguments, "helper" and the argument of
	// Helper. It is not called if [Call.Linked] is set. It is nil for plugins without a helper.
	Helper func(argument string, stderr io.Writer) (status int)
}

// Role is the position of a plugin in a network.
type Role uint8

// The roles.
const (
	RoleInterface Role = iota // creates the container's interface; first in a chain
	RoleChained               // changes the result of the plugins before it
	RoleEither                // works alone and after other plugins
	RoleIPAM                  // allocates addresses for another plugin, which names it in ipam.type
)

// Example is a named configuration.
type Example struct {
	Name   string
	Config string // JSON of a plugin configuration, with name and cniVersion
}

// Examples returns the configurations in Doc: its fenced JSON blocks, each named by the preceding
// heading. The block below the heading "Minimal configuration" comes last, because tests begin with
// the richest example.
func (i Info) Examples() []Example {
	var list, minimal []Example
	heading, config, inside := "", "", false
	for line := range strings.Lines(i.Doc) {
		switch text := strings.TrimSpace(line); {
		case text == "```json":
			config, inside = "", true
		case text == "```" && inside && heading == "Minimal configuration":
			minimal, inside = append(minimal, Example{heading, config}), false
		case text == "```" && inside:
			list, inside = append(list, Example{heading, config}), false
		case inside:
			config += line
		case strings.HasPrefix(text, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(text, "#"))
		}
	}
	return append(list, minimal...)
}
