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

// nerdctl chooses host ports itself. It considers a port used if the iptables chains
// CNI-HOSTPORT-DNAT and CNI-DN-… contain it, so with another backend it would choose a port twice.
// It marks its lists with a top-level key, which libcni does not pass to plugins.

// nerdctlArg is in CNI_ARGS of every call of nerdctl since version 1.0.
const nerdctlArg = "NERDCTL_CNI_DHCP_HOSTNAME"

// networkDir is the directory where nerdctl writes its lists by default if it runs as root.
const networkDir = "/etc/cni/net.d"

// ofNerdctl returns the reason why a network belongs to nerdctl, or "". Reasons are the mark of the
// list, which Tenon's runtime passes on; a call by nerdctl; and a list in dir with the name that
// nerdctl gives it.
func ofNerdctl(c *Config, env cni.Env, dir string) string {
	if len(c.NerdctlID) > 0 {
		return "network " + c.Name +
			" has nerdctlID: nerdctl finds used ports in the chains of iptables"
	}
	if args, err := cni.ParseArgs(env.Args); err == nil {
		if _, ok := args.Get(nerdctlArg); ok {
			return "CNI_ARGS has " + nerdctlArg +
				": nerdctl finds used ports in the chains of iptables"
		}
	}
	path := filepath.Join(dir, "nerdctl-"+c.Name+".conflist")
	if hasNerdctlID(path) {
		return fmt.Sprintf("%s has nerdctlID: nerdctl finds used ports in the chains of iptables",
			path)
	}
	return ""
}

// hasNerdctlID reports whether a file is a list of nerdctl.
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
