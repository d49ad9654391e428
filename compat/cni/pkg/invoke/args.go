package invoke

import (
	"os"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
)

// CNIArgs provides the environment of a plugin.
type CNIArgs interface {
	// AsEnv returns the complete environment as KEY=VALUE; nil means the environment of this
	// process.
	AsEnv() []string
}

// Args sets the CNI_ variables of a call.
type Args struct {
	Command       string      // CNI_COMMAND
	ContainerID   string      // CNI_CONTAINERID
	NetNS         string      // CNI_NETNS
	PluginArgs    [][2]string // CNI_ARGS as pairs of key and value, which are not escaped
	PluginArgsStr string      // CNI_ARGS as text; precedes PluginArgs if it is not empty
	IfName        string      // CNI_IFNAME
	Path          string      // CNI_PATH
}

// AsEnv implements [CNIArgs]. It returns the environment of this process with the CNI_ variables of
// the call, even empty ones. The last of several values of a variable remains.
func (args *Args) AsEnv() []string {
	text := args.PluginArgsStr
	if text == "" {
		text = joinPairs(args.PluginArgs)
	}
	return override(os.Environ(), cni.Env{
		Command: cni.Command(args.Command), ContainerID: args.ContainerID, Netns: args.NetNS,
		IfName: args.IfName, Args: text, Path: args.Path,
	}.Environ())
}

func joinPairs(pairs [][2]string) string {
	args := make(cni.Args, len(pairs))
	for i, pair := range pairs {
		args[i] = cni.Arg{Key: pair[0], Value: pair[1]}
	}
	return args.String()
}

// DelegateArgs sets the verb of a call, for a plugin that calls another plugin with the rest of its
// own environment.
type DelegateArgs struct {
	Command string // CNI_COMMAND
}

// AsEnv implements [CNIArgs]. It returns the environment of this process with CNI_COMMAND set to
// Command. The last of several values of a variable remains.
func (d *DelegateArgs) AsEnv() []string {
	return override(os.Environ(), []string{"CNI_COMMAND=" + d.Command})
}

// ArgsFromEnv returns arguments that stand for the environment of this process: their AsEnv returns
// nil.
func ArgsFromEnv() CNIArgs { return inherited{} }

type inherited struct{}

// AsEnv implements [CNIArgs].
func (inherited) AsEnv() []string { return nil }

// override returns environ and vars with the last value of each variable, in the order of these
// values. Entries without "=" stay.
func override(environ, vars []string) []string {
	all := slices.Concat(environ, vars)
	kept := make([]string, 0, len(all))
	seen := map[string]bool{}
	for _, entry := range slices.Backward(all) {
		name, ok := variable(entry)
		if !ok || !seen[name] {
			seen[name] = ok
			kept = append(kept, entry)
		}
	}
	slices.Reverse(kept)
	return kept
}

// variable returns the name of the variable in an entry of an environment. A name may start with
// "=": Windows keeps the working directories of drives in such variables.
func variable(entry string) (name string, ok bool) {
	if entry == "" {
		return "", false
	}
	i := strings.Index(entry[1:], "=")
	if i < 0 {
		return entry, false
	}
	return entry[:i+1], true
}
