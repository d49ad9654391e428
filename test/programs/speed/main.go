// Speed attaches and removes containers with go-cni and measures both calls. It knows nothing of
// Tenon: scripts/bench-programs builds it with upstream's libcni, with Tenon's, and with Tenon's
// and a blank import, and package compare measures the three in turn.
//
// Speed reads requests from standard input and writes replies to standard output, both one line of
// JSON each. It must run as root in network and mount namespaces of its own.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	gocni "github.com/containerd/go-cni"
)

// network is the usual chain: bridge with host-local and masquerading, then portmap.
const network = `{"cniVersion": "1.0.0", "name": "speed", "plugins": [
	{"type": "bridge", "bridge": "br-speed", "isGateway": true, "ipMasq": true,
		"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.77.0.0/16"}]]}},
	{"type": "portmap", "capabilities": {"portMappings": true}}
]}`

// request asks for containers, of which each worker attaches and removes Each in turn.
type request struct {
	First   int // number of the first container
	Workers int // containers in progress at a time
	Each    int
}

// reply has the durations of all calls in nanoseconds.
type reply struct {
	Setups   []time.Duration
	Removes  []time.Duration
	Elapsed  time.Duration // of the whole request
	Own      time.Duration // processor time of this process since its start
	Children time.Duration // processor time of the processes that it has started
	Error    string
}

func main() {
	plugins := flag.String("plugins", "/opt/cni/bin", "`directory` of the plugins")
	state := flag.String("state", "", "`directory` for the files of libcni and host-local")
	flag.Parse()
	if err := run(*plugins, *state); err != nil {
		fmt.Fprintln(os.Stderr, "speed:", err)
		os.Exit(1)
	}
}

func run(plugins, state string) error {
	if err := hideDirectories(state); err != nil {
		return err
	}
	library, err := gocni.New(gocni.WithPluginDir([]string{plugins}),
		gocni.WithConfListBytes([]byte(network)))
	if err != nil {
		return err
	}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var q request
		if err := in.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := out.Encode(q.run(library)); err != nil {
			return err
		}
	}
}

// hideDirectories gives this process its own /run (locks, state) in memory and its own /var/lib/cni
// in a directory, or in memory if state is empty. Both end with the mount namespace.
func hideDirectories(state string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount tmpfs on /run: %w", err)
	}
	const library = "/var/lib/cni"
	if err := os.MkdirAll(library, 0o755); err != nil {
		return err
	}
	err := syscall.Mount("tmpfs", library, "tmpfs", 0, "mode=0755")
	if state != "" {
		err = syscall.Mount(state, library, "", syscall.MS_BIND, "")
	}
	if err != nil {
		return fmt.Errorf("mount on %s: %w", library, err)
	}
	return nil
}

// run attaches and removes the containers of the request.
func (q request) run(library gocni.CNI) (r reply) {
	containers := make([]container, q.Workers*q.Each)
	for i := range containers {
		var err error
		if containers[i], err = newContainer(q.First + i); err != nil {
			return reply{Error: err.Error()}
		}
	}
	errs := make([]error, q.Workers)
	var wait sync.WaitGroup
	start := time.Now()
	for w := range q.Workers {
		wait.Go(func() {
			for i := w * q.Each; i < (w+1)*q.Each && errs[w] == nil; i++ {
				errs[w] = containers[i].attachAndRemove(library)
			}
		})
	}
	wait.Wait()
	r.Elapsed = time.Since(start)
	for _, c := range containers {
		r.Setups, r.Removes = append(r.Setups, c.setup), append(r.Removes, c.remove)
	}
	if err := errors.Join(errs...); err != nil {
		r.Error = err.Error()
	}
	r.Own, r.Children = processorTime(syscall.RUSAGE_SELF), processorTime(syscall.RUSAGE_CHILDREN)
	return r
}

// processorTime returns the time in user and system mode.
func processorTime(who int) time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(who, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// container is one container and the durations of its calls.
type container struct {
	id, netns     string
	options       []gocni.NamespaceOpts
	setup, remove time.Duration
}

// newContainer creates the network namespace of container number i. The namespace ends with this
// process, so that no measurement includes its end.
func newContainer(i int) (container, error) {
	c := container{id: fmt.Sprintf("c%d", i), netns: fmt.Sprintf("/run/netns-%d", i)}
	port := gocni.PortMapping{HostPort: int32(10000 + i), ContainerPort: 80, Protocol: "tcp"}
	c.options = append(c.options, gocni.WithCapabilityPortMap([]gocni.PortMapping{port}))
	if err := os.WriteFile(c.netns, nil, 0o444); err != nil {
		return c, err
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // without unlocking: the thread ends with the goroutine
		done <- bindNewNamespace(c.netns)
	}()
	return c, <-done
}

// bindNewNamespace moves the thread to a new network namespace and binds that to a path.
func bindNewNamespace(path string) error {
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		return fmt.Errorf("new network namespace: %w", err)
	}
	if err := syscall.Mount("/proc/thread-self/ns/net", path, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind network namespace to %s: %w", path, err)
	}
	return nil
}

// attachAndRemove measures Setup and Remove.
func (c *container) attachAndRemove(library gocni.CNI) error {
	ctx := context.Background()
	start := time.Now()
	result, err := library.Setup(ctx, c.id, c.netns, c.options...)
	c.setup = time.Since(start)
	if err != nil {
		return fmt.Errorf("set up %s: %w", c.id, err)
	}
	if eth0 := result.Interfaces["eth0"]; eth0 == nil || len(eth0.IPConfigs) != 1 {
		return fmt.Errorf("set up %s: unexpected result %+v", c.id, result)
	}
	start = time.Now()
	err = library.Remove(ctx, c.id, c.netns, c.options...)
	c.remove = time.Since(start)
	if err != nil {
		return fmt.Errorf("remove %s: %w", c.id, err)
	}
	return nil
}
