// Package metrics counts and times what a [network.Client] does and writes that, with how many attachments there are and how
// full pools of addresses are, in the text format of Prometheus: for an HTTP handler of the program, or as a file for
// node_exporter. It serves nothing itself, and needs no client library.
//
// Who has such a library feeds it with an Observer of their own: [Registry.Begin] shows all there is to it.
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

// Registry counts what one or several Clients do whose Observer it is. The zero value is ready for use, also by several
// goroutines. It must not be copied, and its fields must not be changed, after first use. What it has:
//
//	tenon_operation_duration_seconds{operation}   histogram: ADD, DEL, CHECK, STATUS, GC; setup, removal, rollback, cleanup, repair
//	tenon_operation_errors_total{operation,code}  those that failed, by the code of the error
//	tenon_plugin_duration_seconds{plugin,verb}    histogram: calls of plugins
//	tenon_plugin_errors_total{plugin,verb,code}   those that failed
//	tenon_lock_wait_seconds{lock}                 histogram: waits for others, on the same network or container
//	tenon_attachments{network,state}              recorded attachments now, if there is Records
//	tenon_pool_addresses{network,range}           addresses of ranges now, if there is Pools
//	tenon_pool_used_addresses{network,range}      of these, those that are reserved
//	tenon_source_up{source}                       0 where something of Records or Pools could not be read, otherwise 1
//
// Each histogram is 18 time series. There are as many as plugins and verbs in use, none for a container.
type Registry struct {
	Records func() ([]network.Record, error)      // usually [network.Client.List]; may be nil
	Pools   func(context.Context) ([]Pool, error) // such as Pools of package plugins/all; may be nil

	// ByNetwork splits operations by a further label, network: with as many more time series as networks have been in use
	// since the program was started. Leave it out where there can be thousands.
	ByNetwork bool

	mu       sync.Mutex
	times    map[series]*histogram
	failures map[series]uint64
}

// Pool is how much of a range of addresses is reserved. Those of one network and range are added up.
type Pool struct {
	Network string // name of the network
	Range   string // what tells it from others of the network, such as its first and last address
	Size    uint64 // addresses it has; [math.MaxUint64] stands for that many and more
	Used    uint64 // those of them that are reserved
}

// series is one time series, or one histogram.
type series struct {
	family string // name of the metric
	labels string // as they are written
}

// bounds are the upper bounds of the buckets of histograms, in seconds: from a plugin that has nothing to do to the default
// of [network.Client.Timeout].
var bounds = [...]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

type histogram struct {
	counts [len(bounds) + 1]uint64 // by bucket, not cumulative; the last has no bound
	sum    float64                 // seconds
}

// Begin implements [network.Observer].
func (r *Registry) Begin(ctx context.Context, e network.Event) (context.Context, func(network.Outcome)) {
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
				r.failed(pluginErrors, labels("plugin", e.Plugin, "verb", string(e.Verb), "code", code))
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
