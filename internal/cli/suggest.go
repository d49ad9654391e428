package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tenon-cni/tenon/internal/ops/spelling"
	"github.com/tenon-cni/tenon/internal/shell"
)

// commandSynonyms returns words that users of other tools try, and the commands of Tenon for them.
func commandSynonyms() map[string][]string {
	return map[string][]string{
		"addresses":  {"ipam list"},
		"attach":     {"add"},
		"clean":      {"prune", "gc"},
		"cleanup":    {"prune", "gc"},
		"connect":    {"add"},
		"create":     {"net new", "add"},
		"delete":     {"del", "net rm", "ipam release"},
		"describe":   {"inspect", "net show", "ipam show"},
		"detach":     {"del"},
		"disconnect": {"del"},
		"fix":        {"repair", "recover"},
		"free":       {"ipam release"},
		"get":        {"ps", "net list", "ipam list"},
		"diagnose":   {"doctor", "why"},
		"health":     {"doctor", "status"},
		"info":       {"inspect", "status"},
		"leases":     {"dhcp list", "ipam list"},
		"list":       {"ps", "net list", "ipam list"},
		"ls":         {"ps", "net list", "ipam list", "dhcp list"},
		"network":    {"net list"},
		"networks":   {"net list"},
		"remove":     {"del", "net rm", "ipam release"},
		"rm":         {"del", "net rm", "ipam release"},
		"show":       {"inspect", "net show", "ipam show"},
		"update":     {"install"},
		"upgrade":    {"install"},
		"validate":   {"net lint", "check"},
		"verify":     {"check"},
	}
}

// flagSynonyms returns flags that users of other tools try, and the flags of Tenon for them. "NETNS"
// and the like stand for arguments.
func flagSynonyms() map[string][]string {
	return map[string][]string{
		"bin-dir":        {"plugin-dir"},
		"cni-path":       {"plugin-dir"},
		"conf-dir":       {"net-dir"},
		"config":         {"net-dir"},
		"config-dir":     {"net-dir"},
		"container":      {"id", "CONTAINER"},
		"container-id":   {"id", "CONTAINER"},
		"debug":          {"verbose"},
		"format":         {"output"},
		"iface":          {"ifname"},
		"interface":      {"ifname"},
		"interface-name": {"ifname"},
		"name":           {"id", "NAME"},
		"namespace":      {"NETNS"},
		"net":            {"NETWORK"},
		"netns":          {"NETNS"},
		"network":        {"NETWORK"},
		"path":           {"plugin-dir"},
		"publish":        {"with"},
		"pid":            {"NETNS"},
		"port":           {"publish", "with"},
		"portmap":        {"publish", "with"},
		"ports":          {"publish", "with"},
		"plugin-path":    {"plugin-dir"},
		"wait":           {"timeout"},
		"watch":          {"follow"},
	}
}

// capabilityFlags returns flags of other tools for settings that Tenon passes as capability
// arguments.
func capabilityFlags() map[string]string {
	return map[string]string{
		"ip":  `ips=["10.88.0.9"]`,
		"ips": `ips=["10.88.0.9"]`,
		"mac": `mac="02:00:00:00:00:01"`,
	}
}

// unknownCommand returns the error that a command has no subcommand of this name, with a hint that
// names similar ones.
func unknownCommand(cmd *cobra.Command, name string) error {
	err := usagef("unknown command %q", name)
	if near := similarCommands(cmd, name); len(near) > 0 {
		return hint(err, "did you mean "+alternatives(near)+"?")
	}
	return err
}

// similarCommands returns at most three commands below cmd that name may mean: the nearest
// subcommand or, if name is a word of other tools or a subcommand of another command, those.
func similarCommands(cmd *cobra.Command, name string) (found []string) {
	root := cmd.Root().Name() + " "
	inside := cmd.CommandPath() + " "
	add := func(path string) {
		if strings.HasPrefix(path, inside) && !slices.Contains(found, path) && len(found) < 3 {
			found = append(found, path)
		}
	}
	word := strings.ToLower(name)
	for _, path := range commandSynonyms()[word] {
		add(root + path)
	}
	if len(found) > 0 {
		return found
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	if near := spelling.Nearest(word, names); near != "" {
		add(inside + near)
	}
	for _, c := range cmd.Commands() {
		for _, sub := range c.Commands() {
			if sub.Name() == word && sub.IsAvailableCommand() {
				add(sub.CommandPath())
			}
		}
	}
	return found
}

// alternatives quotes words and joins them with commas and "or".
func alternatives(words []string) string {
	var b strings.Builder
	for i, w := range words {
		switch {
		case i == 0:
		case i == len(words)-1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", w)
	}
	return b.String()
}

// similarFlags returns a hint that says what a flag that a command does not have probably means, or
// no hint.
func (a *app) similarFlags(cmd *cobra.Command, unknown *pflag.NotExistError) []string {
	name := unknown.GetSpecifiedName()
	for _, other := range flagSynonyms()[name] {
		switch {
		case cmd.Flags().Lookup(other) != nil:
			return []string{fmt.Sprintf("did you mean %q?", "--"+other)}
		case strings.ToUpper(other) == other && strings.Contains(cmd.Use, other):
			return []string{fmt.Sprintf("%s is an argument: %s", other, cmd.UseLine())}
		}
	}
	if capability, ok := capabilityFlags()[name]; ok && cmd.Flags().Lookup("cap") != nil {
		return []string{"use a capability: --cap " + shell.Quote(capability)}
	}
	if near := nearFlags(cmd, unknown); len(near) > 0 {
		return []string{"did you mean " + alternatives(near) + "?"}
	}
	if with := a.commandsWith(cmd, name); with != "" {
		return []string{with}
	}
	return nil
}

// nearFlags returns the flags of a command that an unknown flag resembles, with dashes: for a word
// the nearest one, and for a letter at most three that begin with it.
func nearFlags(cmd *cobra.Command, unknown *pflag.NotExistError) []string {
	var names, initial []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		names = append(names, "--"+f.Name)
		if strings.HasPrefix(f.Name, strings.ToLower(unknown.GetSpecifiedName())) {
			initial = append(initial, "--"+f.Name)
		}
	})
	if unknown.GetSpecifiedShortnames() != "" {
		return initial[:min(len(initial), 3)]
	}
	if near := spelling.Nearest("--"+unknown.GetSpecifiedName(), names); near != "" {
		return []string{near}
	}
	return nil
}

// commandsWith returns a hint that lists the commands that have a flag, if cmd has no such flag.
func (a *app) commandsWith(cmd *cobra.Command, flag string) string {
	var paths []string
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		if f := c.Flags().Lookup(flag); f != nil && !f.Hidden {
			paths = append(paths, strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" "))
		}
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				visit(sub)
			}
		}
	}
	visit(cmd.Root())
	if len(paths) == 0 {
		return ""
	}
	return fmt.Sprintf("commands with --%s: %s", flag, strings.Join(paths, ", "))
}
