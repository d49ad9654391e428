// Package daemon connects the agent of a node with its system: settings, files, etcd, socket,
// kernel and service manager.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/agent"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/settings"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/cluster/routes"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/internal/unixsocket"
)

// lockTime is how long a starting agent waits for an earlier one to end.
const lockTime = 5 * time.Second

// Run runs the agent of this node until ctx ends. It reports to the service manager at notify, the
// path in NOTIFY_SOCKET, unless that is empty. It returns an error if the node can never join, if
// another agent uses the same directory, or if the settings are not valid.
func Run(ctx context.Context, s settings.Settings, log *slog.Logger, notify string) error {
	lock, err := onlyAgent(ctx, s.Dir)
	if err != nil {
		return err
	}
	defer lock.Release()
	boot, err := statefile.BootID()
	if err != nil {
		return err
	}
	node, err := self(s)
	if err != nil {
		return err
	}
	var connections settings.Connections
	client, err := s.Connect(ctx, &connections)
	if err != nil {
		return err
	}
	defer client.Close()
	listener, err := unixsocket.Listen(s.Socket)
	if err != nil {
		return err
	}
	defer listener.Close()
	router, err := newRouter(s, node, log)
	if err != nil {
		return err
	}
	files := local.New(local.Options{Dir: s.Dir, BootID: boot, Log: log})
	o := agent.Options{
		Registry: registry.New(client, registry.Options{Cluster: s.Cluster}),
		Local:    files,
		Dir:      s.Dir,
		Cluster:  s.Cluster,
		Node:     node,
		BootID:   boot,
		Machine:  machine(),
		Clock:    files.Clock(),
		Log:      log,
		Listener: listener,
		Changes:  agent.WatchAddresses(s.Dir),
		Guard:    routes.Hold,
		Breaks:   connections.Breaks,
		Router:   router,
		Notify:   notifier(notify, log),
	}
	if s.FenceHook != "" {
		o.Evidence = hook(s.FenceHook)
	}
	return agent.New(o).Run(ctx)
}

// machine returns the serial number of this computer or virtual machine, or "" if it has none. A
// copied disk is on another one. See Documentation/ABI/testing/sysfs-firmware-dmi-tables and
// section 3.3.2.1 of the System Management BIOS specification; device trees have a serial number.
func machine() string {
	for _, path := range []string{
		"/sys/class/dmi/id/product_uuid", "/sys/firmware/devicetree/base/serial-number",
	} {
		content, err := os.ReadFile(path)
		serial := strings.ToLower(strings.Trim(string(content), "\x00 \n"))
		if err == nil && strings.Trim(serial, "0f-") != "" { // boards without one have only zeros or ones
			return serial
		}
	}
	return ""
}

// newRouter returns the router that the settings ask for. With mode off it removes the routes of
// another mode, and only excludes the pools from masquerading.
func newRouter(s settings.Settings, n cluster.Node, log *slog.Logger) (*routes.Router, error) {
	return routes.New(routes.Options{
		Mode:              routes.Mode(s.Routes.Mode),
		Cluster:           s.Cluster,
		Nodes:             n.Addresses,
		VNI:               s.Routes.VNI,
		Port:              uint16(s.Routes.Port),
		NoChecksumOffload: s.Routes.DisableChecksumOffload,
		Log:               log,
	})
}

// RemoveRoutes removes the routes and devices that an agent has made. It returns an error if the
// agent still runs.
func RemoveRoutes(ctx context.Context, s settings.Settings, log *slog.Logger) error {
	lock, err := onlyAgent(ctx, s.Dir)
	if err != nil {
		return err
	}
	defer lock.Release()
	r, err := routes.New(routes.Options{Mode: routes.ModeOff, Cluster: s.Cluster, Log: log})
	if err != nil {
		return err
	}
	return r.Remove(ctx)
}

const (
	// hookTime limits a run of the fence hook.
	hookTime = time.Minute
	// hookDelay is the time after the end of the hook in which its children may write output.
	hookDelay = time.Second
	// maxEvidence is the number of bytes of its output that count.
	maxEvidence = 1 << 10
)

// hook returns a function that runs a program with the name of a node. Exit status 0 is evidence
// that the node is off, which the output describes.
func hook(program string) func(ctx context.Context, node string) (string, error) {
	return func(ctx context.Context, node string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, hookTime)
		defer cancel()
		cmd, out := exec.CommandContext(ctx, program, node), &head{}
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, hookDelay
		err := cmd.Run()
		text, _, _ := strings.Cut(strings.TrimSpace(string(*out)), "\n")
		if err != nil && !errors.Is(err, exec.ErrWaitDelay) { // that means exit status 0
			return "", fmt.Errorf("%s %s: %w: %s", program, node, err, text)
		}
		return strings.TrimSpace(program + ": " + text), nil
	}
}

// head keeps the first bytes of an output.
type head []byte

func (h *head) Write(b []byte) (int, error) {
	*h = append(*h, b[:min(len(b), maxEvidence-len(*h))]...)
	return len(b), nil
}

// onlyAgent excludes a second agent for the same directory.
func onlyAgent(ctx context.Context, dir string) (statefile.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	lock, err := statefile.TakeLock(ctx, filepath.Join(dir, "agent.lock"), statefile.Exclusive)
	if errors.Is(err, context.DeadlineExceeded) {
		return lock, fmt.Errorf("another agent uses %s", dir)
	}
	return lock, err
}

// self returns what the settings say about this node.
func self(s settings.Settings) (cluster.Node, error) {
	n := cluster.Node{Name: s.Node, Labels: s.Labels, MTU: s.Routes.MTU, Mode: s.Routes.Mode}
	for _, text := range s.Routes.Addresses {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return n, fmt.Errorf("addresses: %w", err)
		}
		n.Addresses = append(n.Addresses, a)
	}
	if len(s.Routes.Addresses) == 0 {
		n.Addresses = sources()
	}
	return n, nil
}

// sources returns the source addresses of the default routes. Connecting a datagram socket sends
// nothing; the destinations are reserved for documentation (RFC 5737, RFC 3849).
func sources() (all []netip.Addr) {
	for _, to := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		c, err := net.Dial("udp", to)
		if err != nil {
			continue
		}
		if a, ok := c.LocalAddr().(*net.UDPAddr); ok {
			all = append(all, a.AddrPort().Addr().Unmap().WithZone(""))
		}
		c.Close()
	}
	return all
}

// notifier returns a function that reports states to the service manager at a socket
// (sd_notify(3)). An empty path means that there is none.
func notifier(path string, log *slog.Logger) func(state string) {
	return func(state string) {
		if path == "" {
			return
		}
		c, err := net.Dial("unixgram", path) // "@" begins a name in the abstract namespace
		if err == nil {
			_, err = c.Write([]byte(state))
			err = errors.Join(err, c.Close())
		}
		if err != nil {
			log.Warn("cannot report to the service manager", "error", err)
		}
	}
}
