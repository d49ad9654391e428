package doctor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/ops/plural"
)

// Socket is the socket of a daemon that networks need.
type Socket struct {
	Daemon   string   `json:"daemon"` // dhcp, cluster or ovs
	Path     string   `json:"path"`
	Networks []string `json:"networks"`
	Exists   bool     `json:"exists,omitzero"`
	Error    string   `json:"error,omitzero"` // of a connection
	PID      int      `json:"pid,omitzero"`   // of the process that listens
	Program  string   `json:"program,omitzero"`
	Limit    int      `json:"limit,omitzero"`  // open files
	Open     int      `json:"open,omitzero"`   // files
	Leases   int      `json:"leases,omitzero"` // files of leases
}

// The daemons.
const (
	daemonDHCP    = "dhcp"
	daemonCluster = "cluster"
	daemonOVS     = "ovs"
)

// Default sockets; the plugins name them in their configurations.
const (
	clusterSocket = "/run/tenon/cluster.sock"
	ovsSocket     = "/var/run/openvswitch/db.sock"
)

// readSockets connects to the sockets of the daemons that networks name. It sends nothing.
func (s *State) readSockets(ctx context.Context) (list []Socket, err error) {
	add := func(daemon, path, network string) {
		i := slices.IndexFunc(
			list,
			func(x Socket) bool { return x.Daemon == daemon && x.Path == path },
		)
		if i < 0 {
			i, list = len(list), append(list, Socket{Daemon: daemon, Path: path})
		}
		if !slices.Contains(list[i].Networks, network) {
			list[i].Networks = append(list[i].Networks, network)
		}
	}
	for _, n := range s.Networks {
		for _, p := range n.Plugins {
			switch ipam := p.ipam(); ipam.Type {
			case "dhcp":
				add(daemonDHCP, cmp.Or(ipam.DaemonSocketPath, dhcp.DefaultSocket), n.Name)
			case "cluster":
				add(daemonCluster, cmp.Or(ipam.Socket, clusterSocket), n.Name)
			}
			if path, ok := p.database(); ok {
				add(daemonOVS, path, n.Name)
			}
		}
	}
	for i := range list {
		list[i].connect(ctx)
	}
	return list, nil
}

// database returns the socket of the OVS database of a network of plugin ovs; ok is false for other
// plugins and for databases on other hosts.
func (p Plugin) database() (path string, ok bool) {
	var conf struct {
		SocketFile string `json:"socket_file"`
	}
	if p.Type != "ovs" || json.Unmarshal(p.Conf, &conf) != nil {
		return "", false
	}
	path = strings.TrimPrefix(cmp.Or(conf.SocketFile, ovsSocket), "unix:")
	return path, filepath.IsAbs(path)
}

// connect connects to the socket and closes the connection.
func (x *Socket) connect(ctx context.Context) {
	info, err := os.Stat(x.Path)
	x.Exists = err == nil && info.Mode()&fs.ModeSocket != 0
	d := net.Dialer{Timeout: 300 * time.Millisecond}
	c, err := d.DialContext(ctx, "unix", x.Path)
	if err != nil {
		x.Error = err.Error()
		if op := (*net.OpError)(nil); errors.As(err, &op) {
			x.Error = op.Err.Error()
		}
		return
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // without the process, its limits remain unknown
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			x.PID = int(peer.Pid)
		}
	})
	if x.Daemon == daemonDHCP {
		x.process()
	}
}

// process reads the limits of the daemon's process. If systemd listens for the daemon, that is the
// process with the name of the daemon.
func (x *Socket) process() {
	if x.PID <= 1 {
		x.PID = pidOf(dhcp.Program)
	}
	if x.PID == 0 {
		return
	}
	dir := fmt.Sprintf("/proc/%d/", x.PID)
	if name, err := os.ReadFile(dir + "comm"); err == nil {
		x.Program = string(bytes.TrimSpace(name))
	}
	if text, err := os.ReadFile(dir + "limits"); err == nil {
		x.Limit = fileLimit(text)
	}
	if open, err := os.ReadDir(dir + "fd"); err == nil {
		x.Open = len(open)
	}
	if leases, err := os.ReadDir(filepath.Join(dhcp.Dir(x.Path), "leases")); err == nil {
		x.Leases = len(leases)
	}
}

// pidOf returns the first process of a program, 0 if there is none.
func pidOf(program string) int {
	found, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range found {
		name, err := os.ReadFile(path)
		if err == nil && string(bytes.TrimSpace(name)) == program {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid
		}
	}
	return 0
}

// fileLimit returns the soft limit of open files in /proc/PID/limits, 0 if there is none.
func fileLimit(limits []byte) int {
	for line := range strings.Lines(string(limits)) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			fields := strings.Fields(rest)
			if len(fields) > 0 {
				n, _ := strconv.Atoi(fields[0]) // 0 for unlimited
				return n
			}
		}
	}
	return 0
}

func daemonChecks() []Check {
	return []Check{
		{ID: "dhcp.daemon", Title: "a DHCP daemon that networks need and that does not run",
			Run: checkDaemon(daemonDHCP)},
		{ID: "dhcp.files", Title: "a DHCP daemon with too few open files", Run: checkDaemonFiles},
		{ID: "cluster.agent", Title: "an agent of the cluster that does not run",
			Run: checkDaemon(daemonCluster)},
		{ID: "ovs.database", Title: "a database of Open vSwitch that cannot be reached",
			Run: checkDaemon(daemonOVS)},
	}
}

// downtime describes daemons that do not run.
var downtime = map[string]struct{ id, title, text, fix string }{
	daemonDHCP: {"dhcp.down", "cannot connect to the DHCP daemon; the daemon is not running",
		"ADD fails, and addresses of attached containers are no longer renewed.",
		"systemctl enable --now tenon-dhcp.socket"},
	daemonCluster: {"cluster.down", "cannot connect to the agent of the cluster; it is not running",
		"Containers get addresses of blocks that this node already has. New blocks, and routes to " +
			"other nodes, need the agent.", "systemctl enable --now tenon-cluster"},
	daemonOVS: {"ovs.down", "cannot connect to the database of Open vSwitch",
		"ADD and DEL fail.", "systemctl restart openvswitch-switch"},
}

func (s *State) sockets(daemon string) (list []Socket, err error) {
	if err := s.needs(partSockets); err != nil {
		return nil, err
	}
	for _, x := range s.CNI.Sockets {
		if x.Daemon == daemon {
			list = append(list, x)
		}
	}
	if list == nil {
		err = NotUsed()
	}
	return list, err
}

func checkDaemon(daemon string) func(context.Context, *State) ([]Finding, error) {
	return func(_ context.Context, s *State) (list []Finding, err error) {
		sockets, err := s.sockets(daemon)
		for _, x := range sockets {
			if x.Error == "" {
				continue
			}
			text := downtime[daemon]
			state := "is a socket without a listener"
			if !x.Exists {
				state = "does not exist"
			}
			list = append(list, Finding{ID: text.id, Severity: Error, Affects: x.Networks,
				Title:    fmt.Sprintf("%s (network %s needs it)", text.title, names(x.Networks)),
				Text:     fmt.Sprintf("%s %s: %s. %s", x.Path, state, x.Error, text.text),
				Evidence: []Evidence{{"ss -xl src " + x.Path, ""}},
				Fix:      []Fix{{Command: text.fix}}})
		}
		return list, err
	}
}

// The DHCP daemon needs a few files for itself, and some for each lease.
const (
	filesOfDaemon = 32
	filesPerLease = 4
	reserveLeases = 50 // for which there should be room
)

// checkDaemonFiles finds a limit of open files that new leases will exceed.
func checkDaemonFiles(_ context.Context, s *State) (list []Finding, err error) {
	sockets, err := s.sockets(daemonDHCP)
	for _, x := range sockets {
		need := filesOfDaemon + filesPerLease*(x.Leases+reserveLeases)
		if x.Limit == 0 || x.Limit >= need && x.Open*10 < x.Limit*9 {
			continue
		}
		f := Finding{ID: "dhcp.open-files", Severity: Warning, Affects: x.Networks,
			Title: fmt.Sprintf(
				"the limit of open files of the DHCP daemon is %d; %d are open",
				x.Limit,
				x.Open,
			),
			Text: fmt.Sprintf(
				"The daemon (%s, process %d) refuses leases when no file is left: %s "+
					"and new ones need about %d.",
				x.Program,
				x.PID,
				plural.Count(x.Leases, "lease"),
				need,
			),
			Evidence: []Evidence{{fmt.Sprintf("grep files /proc/%d/limits", x.PID),
				fmt.Sprintf("Max open files %d", x.Limit)}},
			Fix: []Fix{
				{
					Command: fmt.Sprintf("prlimit --pid %d --nofile=65536", x.PID),
					Effect:  "until it restarts",
				},
				{Command: "LimitNOFILE=65536 in the unit of the daemon"},
			}}
		if x.Limit < filesOfDaemon || x.Open >= x.Limit {
			f.Severity = Error
		}
		list = append(list, f)
	}
	return list, err
}
