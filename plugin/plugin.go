// Package plugin is the kit for writing a CNI plugin: it decodes and checks a call, hands it over as types, and
// encodes what comes back in the version that was asked for. An author writes a configuration type, three or more
// methods and one call of [Define]; [Main] makes a program of it, package plugintest tests it.
//
// The package knows the protocol and nothing else: no kernel, no address management, no file.
package plugin

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"

	"github.com/tenon-cni/tenon/cni"
)

// Configuration is a pointer to a configuration: to a struct that embeds [Common].
type Configuration interface{ common() *Common }

// Plugin is a configuration that carries out calls. Each call gets a new one, into which the
// request has been decoded, so a Plugin may keep in fields of its own what it derives from the
// request.
//
// Errors that are or wrap a [*cni.Error] keep its code. Errors of the kernel ([syscall.Errno]) get
// [cni.CodeTryAgainLater], [cni.CodeIOFailure] or [CodeInUse] and a hint. Errors of a context that
// has ended get [cni.CodeTryAgainLater], all other errors [cni.CodeInternal]. The context ends with
// SIGTERM or SIGINT.
type Plugin interface {
	Configuration

	// Add attaches a container. It leaves nothing behind if it fails.
	Add(context.Context, *Call) (*cni.Result, error)

	// Del removes everything that exists for the attachment. It succeeds if there is nothing. It
	// works without Netns and Prev, and with the part of the configuration that could be decoded.
	Del(context.Context, *Call) error

	// Check compares the attachment with Prev and reports the first difference. It changes nothing.
	Check(context.Context, *Call) error
}

// Statuser is a Plugin that can report whether ADD would work. Its errors should have
// [cni.CodeNotAvailable] or [cni.CodeLimitedConnectivity].
type Statuser interface {
	Status(context.Context, *Call) error
}

// Collector is a Plugin that removes everything of attachments of the network that [Call.Valid]
// does not list. It continues past errors.
type Collector interface {
	GC(context.Context, *Call) error
}

// Validator is a Plugin that checks its configuration before ADD, CHECK and STATUS. DEL and GC do
// not call it: they have to work with a configuration that has become invalid since. Errors should
// have [cni.CodeInvalidConfig] or [cni.CodeUnsupportedField].
type Validator interface {
	Validate(*Call) error
}

// Advisor is a Plugin that makes choices by the state of the host where a configuration leaves them open.
type Advisor interface {
	// Advise returns those choices that ADD would make here and that are not the usual ones, each
	// in a sentence without a subject: "uses iptables …". It changes nothing. It returns an error
	// if the state of the host cannot be read, for lack of privilege for example.
	Advise(context.Context, *Call) ([]string, error)
}

// Common is the part of a configuration that every plugin has. Configuration types embed it.
type Common struct {
	CNIVersion    string          `json:"cniVersion"`    // version of this call
	Name          string          `json:"name"`          // name of the network
	Type          string          `json:"type"`          // file name of the plugin; not compared with the program's
	IPAM          IPAM            `json:"ipam"`          // address management, if the plugin delegates it
	DNS           cni.DNS         `json:"dns"`           // for the result
	PrevResult    json.RawMessage `json:"prevResult"`    // as sent; [Call.Prev] is the decoded form
	RuntimeConfig RuntimeConfig   `json:"runtimeConfig"` // capability arguments
	ConfArgs      ConfArgs        `json:"args"`          // generic arguments; what a plugin does not know it ignores
}

func (c *Common) common() *Common { return c }

// IPAM is what a plugin that delegates has to know of the ipam section.
type IPAM struct {
	Type string `json:"type"` // file name of the IPAM plugin; empty for a network without addresses
}

// RuntimeConfig are the capability arguments that plugins of this kit understand (CNI conventions, "Dynamic plugin
// specific fields"). Members are matched without regard to case: containerd capitalises them.
type RuntimeConfig struct {
	MAC      string          `json:"mac"`      // capability mac
	IPs      []string        `json:"ips"`      // capability ips
	IPRanges json.RawMessage `json:"ipRanges"` // capability ipRanges
}

// ConfArgs is the args object of a configuration (CNI conventions, "args in network config").
type ConfArgs struct {
	CNI struct {
		MAC string   `json:"mac"` // hardware address
		IPs []string `json:"ips"` // addresses, with or without a prefix length
	} `json:"cni"` // what the conventions define
}

// Request is what was asked for this one attachment, from all the places where it can be asked.
type Request struct {
	// MAC is the hardware address. The capability mac wins over args.cni.mac, which wins over MAC in CNI_ARGS.
	MAC string

	// IPs are the addresses, with or without a prefix length: that of IP in CNI_ARGS, those of args.cni.ips, then
	// those of the capability ips. They add up, as they do in the reference plugins.
	IPs []string
}

// Call is one call of a plugin, decoded and checked.
type Call struct {
	*Common
	cni.Env

	Asked    Request
	Prev     *cni.Result           // result of the plugin before (ADD) or of the whole ADD (CHECK, DEL); nil if there is none
	Version  cni.Version           // version of the call
	Valid    []cni.ValidAttachment // GC: the attachments that are still in use
	Delegate Delegator

	// Log writes to standard error, or where [Linked.Log] does. Each line says what the call is about: plugin, verb, network,
	// container, ifname, the attachment as [cni.Attachment.Owner] names it, and trace_id where the call is part of a trace
	// ([invoke.TraceFrom]).
	Log *slog.Logger

	// Linked says that the plugin runs in a program of somebody else's, see [Linked]: that cannot be started again to do
	// something for the plugin, as [Info.Helper] needs it.
	Linked bool

	// Watch is called before each change of the host, with a description of the change. If it returns
	// an error, the change is not made and fails with that error. It is for tests, which observe and
	// disturb a plugin with it (see [Definition.Watched]), and nil otherwise. Plugins of Tenon observe
	// it; a plugin that changes the host by other means should call it too.
	Watch func(op string) error

	conf  Configuration
	stdin []byte
}

// Attachment returns the key of the attachment this call is about.
func (c *Call) Attachment() cni.Attachment { return c.Env.Attachment(c.Name) }

// Stdin returns the request as it came in.
func (c *Call) Stdin() []byte { return c.stdin }

// Info describes a plugin.
type Info struct {
	Name         string        // file name of the executable
	About        string        // one sentence for people
	Role         Role          // where it stands in a network
	Repeatable   bool          // several of it can stand in a network, with different configurations
	Versions     []cni.Version // what it supports; nil is every version
	Capabilities []string      // what of runtimeConfig it understands
	Args         []string      // keys of CNI_ARGS that it understands; nil leaves CNI_ARGS unread, otherwise others are refused
	NeedsLink    bool          // IPAM: its DEL and GC reach a server over the link, so they come before the link is deleted
	Doc          string        // Markdown for people; the JSON in it are configurations that work, see [Info.Examples]

	// Helper is called by [Main] where the executable is started with two arguments, "helper" and the one it gets: for work
	// that the plugin has to do in another process. It returns the exit status. nil: there is none. Nobody calls it where
	// [Call.Linked] is set.
	Helper func(argument string, stderr io.Writer) (status int)
}

// Role is where a plugin stands in a network.
type Role uint8

// The roles.
const (
	RoleInterface Role = iota // makes the container's interface: first in a chain
	RoleChained               // works on the result of the plugins before it
	RoleEither                // works alone and behind others
	RoleIPAM                  // manages addresses for another: named by ipam.type
)

// Example is a configuration with a name.
type Example struct {
	Name   string
	Config string // JSON of a plugin's object, with name and cniVersion
}

// Examples returns the configurations in Doc: its fenced blocks of JSON, each with the heading before
// it. The block below the heading "Minimal configuration" is the last one, because tests begin with
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
