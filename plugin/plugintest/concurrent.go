package plugintest

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/tenon-cni/tenon/cni"
)

// concurrent attaches many containers at the same time and then detaches them at the same time.
// Each address must be assigned only once, and nothing may be left (LIF-07).
func concurrent(_ *testing.T, r *Runtime) {
	n := times(50)
	containers := make([]string, n)
	requests := make([]Request, n)
	interfaces := make([][]string, n)
	for i := range requests {
		containers[i] = fmt.Sprintf("c-%d", i)
		requests[i] = r.Request(cni.Add, containers[i])
		interfaces[i] = r.interfaces(containers[i])
	}
	before := r.stateOf(r.Host)
	results := r.all(requests)
	owner := map[netip.Addr]string{}
	for i, container := range containers {
		r.prev[container] = results[i]
		for _, ip := range r.result(container).IPs {
			a := ip.Address.Addr()
			if a.IsLoopback() {
				continue
			}
			if other := owner[a]; other != "" {
				r.t.Errorf("%s and %s both have %s: the plugin must lock the state that its calls share (LIF-07)", other, container, a)
			}
			owner[a] = container
		}
	}
	for i, container := range containers {
		requests[i] = r.Request(cni.Del, container)
	}
	r.all(requests)
	r.same(before, r.stateOf(r.Host))
	for i, container := range containers {
		if left := r.interfaces(container); !slices.Equal(left, interfaces[i]) {
			r.t.Errorf("%s has %v, want %v", container, left, interfaces[i])
		}
	}
}

// all makes requests at the same time. All must succeed.
func (r *Runtime) all(requests []Request) []json.RawMessage {
	r.t.Helper()
	results := make([]json.RawMessage, len(requests))
	errs := make([]error, len(requests))
	var wg sync.WaitGroup
	for i, q := range requests {
		wg.Go(func() { results[i], errs[i] = r.Do(r.t.Context(), q) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			r.t.Fatalf("%s of %s: %v", requests[i].Command, requests[i].ContainerID, err)
		}
	}
	return results
}
