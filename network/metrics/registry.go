// Package metrics counts and times the operations of a [network.Client]. It writes these metrics,
// the number of attachments and the use of address pools in the text format of Prometheus, for an
// HTTP handler of the program or a file for node_exporter. It has no HTTP server and needs no
// client library.
//
// A program that uses a client library of Prometheus implements its own Observer; [Registry.Begin]
// is an example.
package metrics

import (
	"context"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
)

// Registry is an observer that counts the operations of one or several Clients. The zero value is
// ready for use and can be used concurrently. It must not be copied, and its fields must not be
// changed, after first use. Its metrics are:
//
//	tenon_operation_duration_seconds{operation}   histogram: ADD, DEL, CHECK, STATUS, GC; setup,
//	                                              removal, rollback, cleanup, repair
//	tenon_operation_errors_total{operation,code}  failed operations by the code of the error
//	tenon_plugin_duration_seconds{plugin,verb}    histogram: plugin calls
//	tenon_plugin_errors_total{plugin,verb,code}   failed plugin calls by the code of the error
//	tenon_lock_wait_seconds{lock}                 histogram: waits for networks and containers
//	tenon_attachments{network,state}              current attachments, if Records is set
//	tenon_pool_addresses{network,range}           current addresses of ranges, if Pools is set
//	tenon_pool_used_addresses{network,range}      reserved addresses of these ranges
//	tenon_source_up{source}                       0 if Records or Pools returned an error, else 1
//
// Each histogram has 18 time series. The number of histograms depends on the plugins and verbs in
// use, not on the containers.
type Registry struct {
	// Records returns the attachments, as [network.Client.List] does; it may be nil.
	Records func() ([]network.Record, error)

	// Pools returns the address pools, as Pools of package plugins/all does; it may be nil.
	Pools func(context.Context) ([]Pool, error)

	// ByNetwork adds the label network to the metrics of operations: each network used since the
	// program was started adds time series. Do not set it if there can be thousands of networks.
	ByNetwork bool

	mu       sync.Mutex
	times    map[series]*histogram
	failures map[series]uint64
}

// Pool describes the use of a range of addresses. The metrics add up pools with the same network
// and range.
type Pool struct {
	Network string // name of the network
	Range   string // identifies it in the network, such as its first and last address
	Size    uint64 // number of addresses; [math.MaxUint64] means at least as many
	Used    uint64 // number of reserved addresses
}

// series names a time series or a histogram.
type series struct {
	family string // name of the metric
	labels string // as in the output
}

// bounds are the upper bounds of the buckets of histograms, in seconds: from the duration of a
// trivial plugin call to the default of [network.Client.Timeout].
var bounds = [...]float64{
	.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60,
}

type histogram struct {
	counts [len(bounds) + 1]uint64 // by bucket, not cumulative; the last has no bound
	sum    float64                 // seconds
}

// Begin implements [network.Observer].
func (r *Registry) Begin(
	ctx context.Context, e network.Event,
) (context.Context, func(network.Outcome)) {
	return ctx, func(o network.Outcome) {
		code := strconv.FormatUint(uint64(cni.CodeOf(o.Err)), 10)
		switch e.Kind {
		case network.Lock:
			lock := "container"
			if e.Attachment.Network != "" {
				lock = "network"
			}
			r.took(lockWait, labels("lock", lock), o.Duration)
		case network.PluginCall:
			r.took(pluginDuration, labels("plugin", e.Plugin, "verb", string(e.Verb)), o.Duration)
			if o.Err != nil {
				r.failed(pluginErrors,
					labels("plugin", e.Plugin, "verb", string(e.Verb), "code", code))
			}
		default:
			what := []string{"operation", string(e.Kind)}
			if e.Kind == network.Operation {
				what[1] = string(e.Verb)
			}
			if r.ByNetwork {
				what = append(what, "network", e.Attachment.Network)
			}
			r.took(operationDuration, labels(what...), o.Duration)
			if o.Err != nil {
				r.failed(operationErrors, labels(append(what, "code", code)...))
			}
		}
	}
}

func (r *Registry) took(family, labels string, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := series{family, labels}
	h := r.times[key]
	if h == nil {
		if r.times == nil {
			r.times = map[series]*histogram{}
		}
		h = &histogram{}
		r.times[key] = h
	}
	h.counts[sort.SearchFloat64s(bounds[:], d.Seconds())]++
	h.sum += d.Seconds()
}

func (r *Registry) failed(family, labels string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failures == nil {
		r.failures = map[series]uint64{}
	}
	r.failures[series{family, labels}]++
}
