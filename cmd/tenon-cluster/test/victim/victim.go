// Package victim is a node in a process of its own, which a test kills at one of its requests to
// etcd or at one of its changes of files, and starts again.
package victim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/intercept"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/sim"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/testnet"
)

const variable = "TENON_TEST_VICTIM"

// Life is what the process does.
type Life struct {
	Endpoints []string
	Name, Dir string
	Events    string        // a file of the events, see [Read]
	Run       int           // number of the process, which names its containers
	TTL       time.Duration // of the lease
	Last      bool          // end all containers
	Kill      int           // the number of the request at which the process kills itself, or 0
	After     bool          // kill after the answer instead of before the request
}

// Command returns the command of a process that lives a life and prints the number of its requests.
// Its TestMain calls [Main].
func (l Life) Command() *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err) // /proc is not mounted
	}
	text, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), variable+"="+string(text))
	return cmd
}

// Main returns in a process of the tests. In a process of [Life.Command] it lives and does not
// return.
func Main() {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	var l Life
	err := json.Unmarshal([]byte(text), &l)
	if err == nil {
		err = l.live()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

const pods = 30

// live joins, deletes the containers of interrupted ADDs of an earlier process, adds and deletes
// containers, gives blocks back while the node is drained, and claims blocks again.
func (l Life) live() error {
	before, err := Read(l.Events)
	if err != nil {
		return err
	}
	events, err := os.OpenFile(l.Events, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer events.Close()
	conn, err := clientv3.New(clientv3.Config{Endpoints: l.Endpoints, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), testnet.Patience)
	defer cancel()
	var requests atomic.Int64
	v := &node{l: l, events: events, operator: sim.Registry(conn, 0),
		Node: sim.New(sim.Options{Name: l.Name, Dir: l.Dir, TTL: l.TTL,
			Client: l.mortal(conn, &requests)})}
	if len(before) > 0 { // the earlier process may have ended while the node was drained
		if err := v.set(ctx, cluster.NodeActive); err != nil {
			return err
		}
	}
	v.Boot()
	if err := v.Ready(ctx); err != nil {
		return err
	}
	for c, e := range before {
		if e.Begun && !e.Done {
			if err := v.del(ctx, c); err != nil {
				return err
			}
		}
	}
	if err := v.work(ctx); err != nil {
		return err
	}
	if l.Last {
		if err := v.end(ctx); err != nil {
			return err
		}
	}
	v.Kill() // without a courtesy that shortens the next start
	fmt.Println(requests.Load())
	return nil
}

type node struct {
	*sim.Node
	l        Life
	events   *os.File
	operator *registry.Registry
}

func (v *node) work(ctx context.Context) error {
	name := func(i int) string { return fmt.Sprintf("r%d-%d", v.l.Run, i) }
	for i := range pods {
		if err := v.add(ctx, name(i)); err != nil {
			return err
		}
	}
	for i := range pods {
		if err := v.del(ctx, name(i)); err != nil {
			return err
		}
	}
	if err := v.drain(ctx); err != nil {
		return err
	}
	for i := range 3 {
		if err := v.add(ctx, name(pods+i)); err != nil {
			return err
		}
	}
	return nil
}

// drain gives the empty blocks back.
func (v *node) drain(ctx context.Context) error {
	err := until(ctx, func() (bool, error) {
		if err := v.set(ctx, cluster.NodeDraining); err != nil {
			return false, err
		}
		return v.drained(ctx)
	})
	if err != nil {
		return err
	}
	return until(ctx, func() (bool, error) {
		if err := v.set(ctx, cluster.NodeActive); err != nil {
			return false, err
		}
		p, err := v.Local.Open(ctx, sim.Network, true)
		if err != nil {
			return false, err
		}
		return !p.State.Draining, p.Close()
	})
}

// drained reports whether the node has no block left, or only blocks with addresses in use.
func (v *node) drained(ctx context.Context) (bool, error) {
	blocks, err := v.Blocks(ctx)
	if err != nil {
		return false, err
	}
	for _, b := range blocks {
		if used, err := v.used(ctx, b.Block); used || err != nil {
			return used, err
		}
	}
	return len(blocks) == 0, nil
}

// until calls try until it reports true, or fails.
func until(ctx context.Context, try func() (bool, error)) error {
	for {
		if done, err := try(); done || err != nil {
			return err
		}
		if !pause(ctx) {
			return ctx.Err()
		}
	}
}

// set drains the node, or ends that. After a conflict, nothing has changed.
func (v *node) set(ctx context.Context, s cluster.NodeState) error {
	n, err := v.operator.Nodes.Read(ctx, v.l.Name)
	if err == nil {
		_, err = v.operator.Nodes.Update(ctx, n, func(n *cluster.Node) { n.State = s })
	}
	if errors.Is(err, registry.ErrConflict) {
		return nil
	}
	return err
}

func pause(ctx context.Context) bool {
	t := time.NewTimer(20 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// used reports whether an address of a block is in use: such a block cannot go back.
func (v *node) used(ctx context.Context, block netip.Prefix) (bool, error) {
	leases, err := v.Leases(ctx)
	for _, l := range leases {
		if block.Contains(l.Addr) {
			return true, err
		}
	}
	return false, err
}

func (v *node) end(ctx context.Context) error {
	all, err := Read(v.l.Events)
	if err != nil {
		return err
	}
	for c, e := range all {
		if e.Live() {
			if err := v.del(ctx, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *node) add(ctx context.Context, c string) error {
	fmt.Fprintf(v.events, "add %s\n", c)
	a, err := v.Add(ctx, c)
	if err != nil {
		return fmt.Errorf("ADD %s: %w", c, err)
	}
	fmt.Fprintf(v.events, "added %s %s\n", c, a)
	return nil
}

func (v *node) del(ctx context.Context, c string) error {
	fmt.Fprintf(v.events, "del %s\n", c)
	if err := v.Del(ctx, c); err != nil {
		return fmt.Errorf("DEL %s: %w", c, err)
	}
	fmt.Fprintf(v.events, "deleted %s\n", c)
	return nil
}

// Event is the state of a container according to the events.
type Event struct {
	Begun, Deleting, Done bool // ADD was called, DEL was called, DEL has returned
	Addr                  netip.Addr
}

// Live reports whether the container uses its address.
func (e Event) Live() bool { return e.Addr.IsValid() && !e.Deleting }

// Read reads a file of events. It returns an error if two containers had one address at the same
// time.
func Read(path string) (map[string]Event, error) {
	all := map[string]Event{}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		e := all[words[1]]
		switch words[0] {
		case "add":
			e.Begun = true
		case "added":
			e.Addr = netip.MustParseAddr(words[2])
			for c, other := range all {
				if other.Live() && other.Addr == e.Addr {
					return nil, fmt.Errorf("%s and %s have address %s", c, words[1], e.Addr)
				}
			}
		case "del":
			e.Deleting = true
		case "deleted":
			e.Done = true
		}
		all[words[1]] = e
	}
	return all, lines.Err()
}

// mortal returns a client that kills the process at one of its requests, and counts them.
func (l Life) mortal(c registry.Client, count *atomic.Int64) registry.Client {
	return &intercept.Client{Client: c, Around: func(send func() error) error {
		n := int(count.Add(1))
		if n == l.Kill && !l.After {
			die()
		}
		err := send()
		if n == l.Kill {
			die()
		}
		return err
	}}
}

func die() {
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {}
}
