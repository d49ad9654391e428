package portmap

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// nerdctl chooses host ports itself. It takes those for used that it finds in the chains
// CNI-HOSTPORT-DNAT and CNI-DN-… of iptables, so with another backend it would choose a port twice.
// It marks its lists with a key at the top level, which libcni passes to no plugin.

// nerdctlArg is in CNI_ARGS of every call of nerdctl since version 1.0.
const nerdctlArg = "NERDCTL_CNI_DHCP_HOSTNAME"

// networkDir is where nerdctl writes its lists, if it runs as root and is not told otherwise.
const networkDir = "/etc/cni/net.d"

// ofNerdctl returns why a network belongs to nerdctl, "" if it does not. Reasons are the mark of the
// list, which the runtime of Tenon passes on; a call by nerdctl; and a list in dir with the name that
// nerdctl gives it.
func ofNerdctl(c *Config, env cni.Env, dir string) string {
	if len(c.NerdctlID) > 0 {
		return "network " + c.Name + " has nerdctlID: nerdctl finds used ports in the chains of iptables"
	}
	if args, err := cni.ParseArgs(env.Args); err == nil {
		if _, ok := args.Get(nerdctlArg); ok {
			return "CNI_ARGS has " + nerdctlArg + ": nerdctl finds used ports in the chains of iptables"
		}
	}
	path := filepath.Join(dir, "nerdctl-"+c.Name+".conflist")
	if hasNerdctlID(path) {
		return fmt.Sprintf("%s has nerdctlID: nerdctl finds used ports in the chains of iptables", path)
	}
	return ""
}

// hasNerdctlID reports whether a file is a list that nerdctl has written.
func hasNerdctlID(path string) bool {
	const most = 1 << 20
	f, err := statefile.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return false
	}
	var list struct{ NerdctlID json.RawMessage }
	return json.Unmarshal(text, &list) == nil && len(list.NerdctlID) > 0
}
