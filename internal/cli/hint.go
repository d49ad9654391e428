package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/journal"
	"github.com/tenon-cni/tenon/internal/ops/spelling"
	"github.com/tenon-cni/tenon/internal/shell"
)

// places are the flags for directories. A command in a hint repeats the given ones.
var places = []string{"net-dir", "plugin-dir", "state-dir", "cache-dir"}

// command returns a hint that ends with a command of tenon, ready to be copied. It adds the flags
// for directories that the user has given and that the command knows. label describes the command.
func (r *settings) command(label string, args ...string) string {
	target, _, err := r.cmd.Root().Find(args)
	if err != nil {
		return label + commandLine("tenon", args)
	}
	var directories []string
	for _, name := range places {
		if f := r.cmd.Flags().Lookup(name); f != nil && f.Changed && visible(target, name) {
			directories = append(directories, "--"+name, f.Value.String())
		}
	}
	return label + commandLine("tenon", args, directories)
}

// visible reports whether a command has a flag that is not hidden.
func visible(cmd *cobra.Command, name string) bool {
	f := cmd.Flags().Lookup(name)
	return f != nil && !f.Hidden
}

// again returns a hint that ends with the command that the user has run, with more arguments.
func (a *app) again(label string, more ...string) string {
	return label + commandLine("tenon", a.args, more)
}

// instead returns a hint that ends with the command that the user has run, with one word replaced.
// If the command does not contain the word, the hint is label alone.
func (a *app) instead(label, wrong, right string) string {
	args := slices.Clone(a.args)
	i := slices.Index(args, wrong)
	if i < 0 {
		return label
	}
	args[i] = right
	return label + " " + commandLine("tenon", args)
}

// sudo returns the command that the user has run, to be run as root, with the variables that
// sudo(8) does not pass on.
func (a *app) sudo() string {
	words := []string{"sudo"}
	for _, name := range []string{"NETCONFPATH", "CNI_PATH", "CNI_ARGS", "CNI_IFNAME", "CAP_ARGS",
		journal.Env} {
		if value, ok := os.LookupEnv(name); ok {
			words = append(words, name+"="+value)
		}
	}
	return commandLine(words[0], words[1:], []string{"tenon"}, a.args)
}

func commandLine(program string, args ...[]string) string {
	words := []string{program}
	for _, arg := range slices.Concat(args...) {
		words = append(words, shell.Quote(arg))
	}
	return strings.Join(words, " ")
}

// didYouMean adds a hint to an error about an unknown name: the nearest known name, and the command
// with it.
func (a *app) didYouMean(err error, name string, known []string) error {
	if near := spelling.Nearest(name, known); near != "" && near != name {
		return hint(err, a.instead(fmt.Sprintf("did you mean %q?", near), name, near))
	}
	return err
}
