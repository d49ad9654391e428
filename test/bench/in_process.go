package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/tenon-cni/tenon/cni"
	library "github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

// embedded is a runtime with linked plugins. Its host is the namespace of this program.
type embedded struct {
	*side
	client *library.Client
	list   *config.Network
}

// newEmbedded returns a runtime with its own network: bridge, host-local, masquerading and portmap.
func (b *bench) newEmbedded(name, state string) (*embedded, error) {
	s := b.ours
	quiet := slog.New(slog.DiscardHandler)
	e := &embedded{side: s, client: &library.Client{
		Caller: plugin.Linked{Plugins: all.Plugins, Log: quiet}, PluginDirs: []string{}, StateDir: state, Log: quiet,
	}}
	var err error
	e.list, err = config.LoadBytes(fmt.Appendf(nil, `{"cniVersion": "1.0.0", "name": %q, "plugins": [
		{"type": "bridge", "bridge": "br-%[1]s", "isGateway": true, "ipMasq": true,
			"ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.77.0.0/16"}]]}},
		{"type": "portmap", "capabilities": {"portMappings": true}}
	]}`, name, filepath.Join(s.state, "leases")))
	return e, err
}

// request returns the request for container number i, with one port.
func (e *embedded) request(i int, netns string) (library.Request, error) {
	capabilities, err := cni.Capabilities{PortMappings: []cni.PortMapping{{HostPort: uint16(20000 + i), ContainerPort: 80}}}.Encode()
	return library.Request{Container: fmt.Sprintf("c%d", i), IfName: "eth0", Parameters: library.Parameters{
		Netns: netns, Capabilities: capabilities,
	}}, err
}

// attachment adds and removes container number i. aroundAdd calls the function that it receives.
func (e *embedded) attachment(ctx context.Context, i int, netns string, aroundAdd func(add func() error) error) error {
	q, err := e.request(i, netns)
	if err != nil {
		return err
	}
	err = aroundAdd(func() error {
		_, err := e.client.Add(ctx, e.list, q)
		return err
	})
	if err != nil {
		return err
	}
	return e.client.Del(ctx, q.Attachment(e.list.Name), library.Fallback{})
}

// samples are the measurements of ADDs.
type samples struct {
	adds             []time.Duration // not traced
	calls, onNetwork []time.Duration // sums over traced ADDs
	counts           []time.Duration // numbers of system calls, as durations
}

// measure attaches repeatedly, alternately with and without tracing.
func (e *embedded) measure(ctx context.Context, t *tracer, times int) (m samples, err error) {
	netns, err := e.newNamespace(e.list.Name)
	for i := 0; i < times && err == nil; i++ {
		err = errors.Join(
			e.attachment(ctx, 2*i, netns, func(add func() error) error {
				start := time.Now()
				err := add()
				m.adds = append(m.adds, time.Since(start))
				return err
			}),
			e.attachment(ctx, 2*i+1, netns, func(add func() error) error {
				calls, err := t.calls(add)
				all, onNetwork, count := t.kernelTime(calls)
				m.calls, m.onNetwork = append(m.calls, all), append(m.onNetwork, onNetwork)
				m.counts = append(m.counts, time.Duration(count))
				return err
			}))
	}
	return m, err
}

// inProcess compares an ADD with its system calls: the difference is the time that the program
// could still save. It measures both in turn on the same network, the ADD without tracing and the
// calls with it, each from entry to return. Calls by which the program manages itself (memory,
// threads, waiting) do not count as the kernel's, nor does the cost of tracing, so the kernel's
// share is rather too small.
func (b *bench) inProcess(ctx context.Context) error {
	const what = "chain in one process"
	limit := atMost(2)
	t, err := newTracer(b.ours.state)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: system calls cannot be traced:", err)
		b.later(what+": ADD", limit)
		return b.inProcessRates(ctx, what)
	}
	defer t.close()
	inMemory, err := b.measureAdds(ctx, t, "memory", b.ours.state) // where fsync costs nothing
	if err != nil {
		return err
	}
	onDisk, err := b.measureAdds(ctx, t, "disk", b.programs)
	if err != nil {
		return err
	}
	add, calls := median(inMemory.adds), fmt.Sprintf("%s: ADD (peer column: its %d calls)", what, median(inMemory.counts))
	b.compare(calls, add, median(inMemory.calls), limit)
	b.compare(what+": ADD (peer column: those for the network)", add, median(inMemory.onNetwork), nil)
	b.compare(what+", records on disk: ADD (peer: calls)", median(onDisk.adds), median(onDisk.calls), nil)
	return b.inProcessRates(ctx, what)
}

// measureAdds measures with records in a directory.
func (b *bench) measureAdds(ctx context.Context, t *tracer, name, dir string) (samples, error) {
	e, err := b.newEmbedded(name, filepath.Join(dir, "records"))
	if err != nil {
		return samples{}, err
	}
	return e.measure(ctx, t, b.repeats(200, 40))
}

// inProcessRates measures attachments (ADD and DEL) per second with a fixed number in progress.
func (b *bench) inProcessRates(ctx context.Context, what string) error {
	for _, workers := range []int{1, 8, 64} {
		each := max(2, 96/workers)
		var bursts []time.Duration
		for round := range b.repeats(3, 1) {
			name := fmt.Sprintf("inproc%d-%d", workers, round)
			e, err := b.newEmbedded(name, filepath.Join(b.ours.state, name))
			if err != nil {
				return err
			}
			took, err := e.burst(name, workers, func(worker int, netns string) (err error) {
				for c := 0; c < each && err == nil; c++ {
					err = e.attachment(ctx, worker*each+c, netns, func(add func() error) error { return add() })
				}
				return err
			})
			if err != nil {
				return err
			}
			bursts = append(bursts, took)
		}
		r := row{What: fmt.Sprintf("%s: %d at a time", what, workers), Unit: "/s", Ours: float64(workers*each) / median(bursts).Seconds()}
		b.add(r, nil, 0)
	}
	return nil
}
