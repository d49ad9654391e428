package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/spelling"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// attachment holds the flags and arguments of commands for one attachment.
type attachment struct {
	settings
	id     string
	ifName string
	args   []string
	caps   []string
	ports  []string // to publish

	netnsArg string // argument, empty if omitted
	netns    string // path, empty if omitted
}

// gone is the argument for a namespace that no longer exists.
const gone = "-"

func (t *attachment) flags(cmd *cobra.Command) {
	t.clientFlags(cmd)
	cmd.Flags().StringVar(&t.id, "id", "", "container `ID` (default: the name of the namespace)")
	cmd.Flags().StringVar(&t.ifName, "ifname", cmp.Or(os.Getenv("CNI_IFNAME"), "eth0"),
		"interface `NAME` in the container [CNI_IFNAME]")
	cmd.ValidArgsFunction = t.completeAttachment
}

func (t *attachment) parameterFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&t.args, "arg", nil,
		"pass `KEY=VALUE` to all plugins, after [CNI_ARGS]; repeatable")
	cmd.Flags().StringArrayVar(&t.caps, "cap", nil,
		"pass a capability argument `NAME=JSON`, or a JSON object of several; overrides [CAP_ARGS]; repeatable")
}

// parse reads the arguments after NETWORK.
func (t *attachment) parse(args []string) error {
	if len(args) > 0 && args[0] != gone {
		t.netnsArg = args[0]
		var err error
		if t.netns, err = netnsPath(t.netnsArg); err != nil {
			return err
		}
	}
	if t.id == "" && t.netns == "" {
		return usagef("missing NETNS, or --id to name the container")
	}
	return nil
}

// swapped returns a hint if NETNS is the name of a network and NETWORK is not.
func (t *attachment) swapped(network string) []string {
	c, err := config.Discover(t.netDir)
	if err != nil {
		return nil
	}
	if _, _, err := c.Lookup(network); !errors.Is(err, config.ErrNotFound) {
		return nil
	}
	if _, _, err := c.Lookup(t.netnsArg); err != nil {
		return nil
	}
	args := slices.Clone(t.app.args)
	i, j := slices.Index(args, network), slices.Index(args, t.netnsArg)
	if i < 0 || j < 0 {
		return nil
	}
	args[i], args[j] = args[j], args[i]
	return []string{"the network comes first: " + commandLine("tenon", args)}
}

// identify determines the container ID if --id is not given: the name of the namespace, unless an
// attachment of this namespace is recorded under the default of releases before 1.1. It returns an
// error if the name belongs to a container in another namespace.
func (t *attachment) identify(c *network.Client, n *config.Network, name string) error {
	if t.id != "" {
		return nil
	}
	t.id = defaultID(t.netns)
	key := t.key(n, name)
	earlier := key
	earlier.Container = hashedID(t.netns)
	r, err := c.Record(key)
	if err == nil && sameNetns(r.Netns, t.netns) {
		return nil
	}
	if _, err := c.Record(earlier); !errors.Is(err, network.ErrNoRecord) {
		t.id = earlier.Container
		return nil
	}
	if err != nil || r.Netns == "" {
		return nil // no record contradicts the default
	}
	err = cni.Errorf(
		cni.CodeInvalidConfig,
		"container %s is attached in namespace %s, not %s",
		key.Container,
		r.Netns,
		t.netns,
	)
	return hint(
		attachmentError{fmt.Errorf("%v: %w", key, err)},
		"name the container of this namespace with --id",
	)
}

// key returns the attachment in the network n or, if n is nil because it could not be loaded, in
// the network of that name.
func (t *attachment) key(n *config.Network, name string) cni.Attachment {
	if n != nil {
		name = n.Name
	}
	return cni.Attachment{Network: name, Container: t.id, IfName: t.ifName}
}

func (t *attachment) parameters() (network.Parameters, error) {
	p := network.Parameters{Netns: t.netns}
	var err error
	if p.Args, err = cni.ParseArgs(os.Getenv("CNI_ARGS")); err != nil {
		return p, err
	}
	for _, a := range p.Args { // plugins accept both, but a user who types it has made a mistake
		if a.Key == "" || a.Value == "" {
			return p, cni.Errorf(
				cni.CodeInvalidEnvironment,
				"CNI_ARGS pair %q lacks its key or value",
				a.Key+"="+a.Value,
			)
		}
	}
	for _, pair := range t.args {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return p, usagef("--arg %q must have the form KEY=VALUE", pair)
		}
		p.Args = append(p.Args, cni.Arg{Key: key, Value: value})
	}
	if p.Capabilities, err = capabilities(os.Getenv("CAP_ARGS"), t.caps); err != nil {
		return p, err
	}
	if len(t.ports) > 0 {
		p.Capabilities[portMappings], err = t.published()
	}
	return p, err
}

// capabilities collects capability arguments; later ones win.
func capabilities(env string, flags []string) (map[string]json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	if env != "" {
		if err := json.Unmarshal([]byte(env), &all); err != nil {
			return nil, usagef("CAP_ARGS is not a JSON object: %w", err)
		}
	}
	for _, f := range flags {
		some := map[string]json.RawMessage{}
		if strings.HasPrefix(strings.TrimSpace(f), "{") {
			if err := json.Unmarshal([]byte(f), &some); err != nil {
				return nil, usagef("--cap %s is not a JSON object: %w", f, err)
			}
		} else {
			name, value, ok := strings.Cut(f, "=")
			if !ok || name == "" || !json.Valid([]byte(value)) {
				return nil, hint(usagef("--cap %s must have the form NAME=JSON", f), `for example --cap mac='"02:00:00:00:00:01"'`)
			}
			some[name] = json.RawMessage(value)
		}
		maps.Copy(all, some)
	}
	return all, nil
}

// warnUnread warns of capability arguments that no plugin of the network supports.
func warnUnread(n *config.Network, args map[string]json.RawMessage) {
	supported := map[string]bool{}
	for _, p := range n.Plugins {
		for name, wanted := range p.Capabilities {
			supported[name] = supported[name] || wanted
		}
	}
	known := slices.Sorted(maps.Keys(supported))
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if supported[name] {
			continue
		}
		message := fmt.Sprintf("no plugin in network %s supports %q; ignoring it", n.Name, name)
		if near := spelling.Nearest(name, known); near != "" {
			message += fmt.Sprintf("; did you mean %q?", near)
		}
		slog.Warn(message)
	}
}

// failed returns the error of a verb for an attachment, with hints; n may be nil.
func (t *attachment) failed(err error, n *config.Network) error {
	if err == nil {
		return nil
	}
	return attachmentError{t.explain(err, n)}
}

// inSameNetns returns the other recorded attachments of the same network in the same namespace.
func (t *attachment) inSameNetns(c *network.Client, key cni.Attachment) []cni.Attachment {
	records, _ := c.ListHost()
	var others []cni.Attachment
	for _, r := range records {
		if r.Attachment.Network == key.Network && sameNetns(r.Netns, t.netns) &&
			r.Attachment != key {
			others = append(others, r.Attachment)
		}
	}
	return others
}

// holder returns a client for the state directory that has the record of an attachment. It returns c
// unless only another runtime has recorded the attachment.
func holder(c *network.Client, key cni.Attachment) *network.Client {
	if _, err := c.Record(key); !errors.Is(err, network.ErrNoRecord) {
		return c
	}
	records, _ := c.ListHost()
	i := slices.IndexFunc(records, func(r network.Record) bool { return r.Attachment == key })
	if i < 0 {
		return c
	}
	return c.For(records[i])
}

// suggestOthers adds hints to an error about an attachment without a record: the recorded
// attachments in the same namespace.
func (t *attachment) suggestOthers(
	err error,
	c *network.Client,
	key cni.Attachment,
	verb string,
) error {
	if !errors.Is(err, network.ErrNoRecord) {
		return err
	}
	for _, o := range t.inSameNetns(c, key) {
		err = hint(err, t.otherKey(o, verb))
	}
	return err
}

// detaching returns a hint with the command that detaches a recorded attachment.
func (r *settings) detaching(rec network.Record) string {
	key := rec.Attachment
	args := []string{"del", key.Network, gone, "--id", key.Container, "--ifname", key.IfName}
	if rec.StateDir != "" && rec.StateDir != r.stateDir {
		args = append(args, "--state-dir", rec.StateDir)
	}
	return r.command("detach it and release its addresses: ", args...)
}

// otherKey returns a hint with the command for another attachment of the namespace.
func (t *attachment) otherKey(o cni.Attachment, verb string) string {
	return t.command(
		"this namespace has another attachment: ",
		verb,
		o.Network,
		gone,
		"--id",
		o.Container,
		"--ifname",
		o.IfName,
	)
}
