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
	"github.com/tenon-cni/tenon/internal/ops/text"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// attachment are the flags and arguments of commands about one attachment.
type attachment struct {
	settings
	id     string
	ifName string
	args   []string
	caps   []string

	netnsArg string // as it was given; empty if it was not
	netns    string // path, empty if it was not given
}

// gone stands for a namespace that nobody can name any more.
const gone = "-"

func (t *attachment) flags(cmd *cobra.Command) {
	t.clientFlags(cmd)
	cmd.Flags().StringVar(&t.id, "id", "", "`ID` of the container (default: the name of the namespace)")
	cmd.Flags().StringVar(&t.ifName, "ifname", cmp.Or(os.Getenv("CNI_IFNAME"), "eth0"),
		"`NAME` of the interface in the container [CNI_IFNAME]")
	cmd.ValidArgsFunction = t.completeAttachment
}

func (t *attachment) parameterFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&t.args, "arg", nil,
		"pass `KEY=VALUE` to all plugins, after those of [CNI_ARGS]; repeatable")
	cmd.Flags().StringArrayVar(&t.caps, "cap", nil,
		"pass `NAME=JSON`, or a JSON object of several, to plugins with that capability, over those of [CAP_ARGS]; repeatable")
}

// parse reads the arguments behind NETWORK.
func (t *attachment) parse(args []string) error {
	if len(args) > 0 && args[0] != gone {
		t.netnsArg = args[0]
		var err error
		if t.netns, err = netnsPath(t.netnsArg); err != nil {
			return err
		}
	}
	if t.id == "" && t.netns == "" {
		return usagef("without NETNS, --id has to name the container")
	}
	return nil
}

// identify determines the container ID if --id is not given: by default it is the name of the namespace.
// An attachment of this namespace that was recorded under the default of earlier releases counts, too. The error is that
// the name belongs to a container in another namespace.
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
		return nil // nothing is known that speaks against the default
	}
	err = cni.Errorf(cni.CodeInvalidConfig, "container %s is attached in namespace %s, not %s", key.Container, r.Netns, t.netns)
	return hint(attachmentError{fmt.Errorf("%v: %w", key, err)}, "name the container of this namespace with --id")
}

// key returns the attachment in the network n, or if that could not be loaded, in the one of that name.
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
	for _, a := range p.Args { // plugins take either, but here it is a slip
		if a.Key == "" || a.Value == "" {
			return p, cni.Errorf(cni.CodeInvalidEnvironment, "CNI_ARGS pair %q lacks its key or value", a.Key+"="+a.Value)
		}
	}
	for _, pair := range t.args {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return p, usagef("--arg %q is not of the form KEY=VALUE", pair)
		}
		p.Args = append(p.Args, cni.Arg{Key: key, Value: value})
	}
	p.Capabilities, err = capabilities(os.Getenv("CAP_ARGS"), t.caps)
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
				return nil, hint(usagef("--cap %s is not of the form NAME=JSON", f), `for example --cap mac='"02:00:00:00:00:01"'`)
			}
			some[name] = json.RawMessage(value)
		}
		maps.Copy(all, some)
	}
	return all, nil
}

// warnUnread tells of capability arguments that no plugin of the network takes: they do nothing.
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
		message := fmt.Sprintf("no plugin of network %s takes the capability %q: it does nothing", n.Name, name)
		if near := text.Nearest(name, known); near != "" {
			message += fmt.Sprintf("; did you mean %q?", near)
		}
		slog.Warn(message)
	}
}

// failed is the error of a verb on an attachment; n may be nil.
func (t *attachment) failed(err error, n *config.Network) error {
	if err == nil {
		return nil
	}
	return attachmentError{t.explain(err, n)}
}

// inSameNetns returns the recorded attachments that network has in the namespace under other keys.
func (t *attachment) inSameNetns(c *network.Client, key cni.Attachment) []cni.Attachment {
	records, _ := c.List()
	var others []cni.Attachment
	for _, r := range records {
		if r.Attachment.Network == key.Network && sameNetns(r.Netns, t.netns) && r.Attachment != key {
			others = append(others, r.Attachment)
		}
	}
	return others
}

// suggestOthers adds to an error about an attachment that is not recorded which ones are, in the same namespace.
func (t *attachment) suggestOthers(err error, c *network.Client, key cni.Attachment, verb string) error {
	if !errors.Is(err, network.ErrNoRecord) {
		return err
	}
	for _, o := range t.inSameNetns(c, key) {
		err = hint(err, t.otherKey(o, verb))
	}
	return err
}

// detaching is the command that detaches, with what it is good for.
func (r *settings) detaching(key cni.Attachment) string {
	return r.command("detach it and release its addresses: ", "del", key.Network, gone, "--id", key.Container, "--ifname", key.IfName)
}

// otherKey is the command for another attachment of the namespace.
func (t *attachment) otherKey(o cni.Attachment, verb string) string {
	return t.command("this namespace has another attachment: ", verb, o.Network, gone, "--id", o.Container, "--ifname", o.IfName)
}
