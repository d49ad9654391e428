package metrics

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/network"
)

// The names of the metrics.
const (
	operationDuration = "tenon_operation_duration_seconds"
	operationErrors   = "tenon_operation_errors_total"
	pluginDuration    = "tenon_plugin_duration_seconds"
	pluginErrors      = "tenon_plugin_errors_total"
	lockWait          = "tenon_lock_wait_seconds"
	attachments       = "tenon_attachments"
	poolAddresses     = "tenon_pool_addresses"
	poolUsed          = "tenon_pool_used_addresses"
	sourceUp          = "tenon_source_up"
)

// families are the metrics in the order of the output.
var families = [...]struct{ name, kind, help string }{
	{attachments, "gauge", "Recorded attachments."},
	{lockWait, "histogram", "Time spent waiting for the lock of a network or a container."},
	{operationDuration, "histogram", "Duration of operations, plugins included."},
	{operationErrors, "counter", "Operations that failed, by CNI error code."},
	{pluginDuration, "histogram", "Duration of calls of plugins."},
	{pluginErrors, "counter", "Calls of plugins that failed, by CNI error code."},
	{poolAddresses, "gauge", "Addresses in a range of an address pool."},
	{poolUsed, "gauge", "Addresses of a range that are reserved."},
	{sourceUp, "gauge", "Whether all of a source could be read."},
}

// ContentType is the HTTP header Content-Type of the output of [Registry.WritePrometheus].
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// WritePrometheus writes all metrics in the text exposition format of Prometheus, version 0.0.4, in
// a stable order. It passes ctx to Pools. It returns the error of w, or the joined errors of
// Records and Pools; in the latter case it has written all other metrics and the partial results.
func (r *Registry) WritePrometheus(ctx context.Context, w io.Writer) error {
	samples, sourceErr := r.gauges(ctx)
	b := r.text(samples)
	if _, err := w.Write(b); err != nil {
		return err
	}
	return sourceErr
}

// WriteFile writes the output of WritePrometheus to a file that all users can read. It replaces the
// file atomically: a reader finds either the old or the new one. The textfile collector of
// node_exporter requires a name that ends in ".prom".
func (r *Registry) WriteFile(ctx context.Context, path string) error {
	var b bytes.Buffer
	sourceErr := r.WritePrometheus(ctx, &b)
	err := statefile.Replace(path, b.Bytes(), 0o644, nil)
	return errors.Join(err, sourceErr)
}

// gauges returns the samples from Records and Pools.
func (r *Registry) gauges(ctx context.Context) (map[series]float64, error) {
	samples := map[series]float64{}
	var errs []error
	source := func(name string, err error) {
		up := 1.0
		if err != nil {
			up = 0
			errs = append(errs, fmt.Errorf("metrics: %s: %w", name, err))
		}
		samples[series{sourceUp, labels("source", name)}] = up
	}
	if r.Records != nil {
		records, err := r.Records()
		in := func(network string, s network.State) series {
			return series{attachments, labels("network", network, "state", string(s))}
		}
		for _, rec := range records {
			for _, s := range []network.State{network.Adding, network.Attached, network.Deleting} {
				samples[in(rec.Attachment.Network, s)] += 0
			}
			samples[in(rec.Attachment.Network, rec.State)]++
		}
		source("records", err)
	}
	if r.Pools != nil {
		pools, err := r.Pools(ctx)
		for _, p := range pools {
			which := labels("network", p.Network, "range", p.Range)
			samples[series{poolAddresses, which}] += float64(p.Size)
			samples[series{poolUsed, which}] += float64(p.Used)
		}
		source("pools", err)
	}
	return samples, errors.Join(errs...)
}

// text renders the samples, counters and histograms.
func (r *Registry) text(samples map[series]float64) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, n := range r.failures {
		samples[key] = float64(n)
	}
	var b bytes.Buffer
	for _, f := range families {
		header := fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", f.name, f.help, f.name, f.kind)
		for _, key := range sorted(samples, f.name) {
			b.WriteString(header)
			header = ""
			sample(&b, f.name, key.labels, samples[key])
		}
		for _, key := range sorted(r.times, f.name) {
			b.WriteString(header)
			header = ""
			r.times[key].write(&b, key)
		}
	}
	return b.Bytes()
}

func (h *histogram) write(b *bytes.Buffer, key series) {
	var n uint64
	for i, count := range h.counts {
		n += count
		le := "+Inf"
		if i < len(bounds) {
			le = strconv.FormatFloat(bounds[i], 'g', -1, 64)
		}
		sample(b, key.family+"_bucket", key.labels+","+labels("le", le), float64(n))
	}
	sample(b, key.family+"_sum", key.labels, h.sum)
	sample(b, key.family+"_count", key.labels, float64(n))
}

func sample(b *bytes.Buffer, name, labels string, value float64) {
	fmt.Fprintf(b, "%s{%s} %s\n", name, labels, strconv.FormatFloat(value, 'g', -1, 64))
}

// sorted returns the series of a family in order.
func sorted[V any](all map[series]V, family string) []series {
	of := slices.DeleteFunc(slices.Collect(maps.Keys(all)),
		func(s series) bool { return s.family != family })
	slices.SortFunc(of, func(a, b series) int { return cmp.Compare(a.labels, b.labels) })
	return of
}

// labels renders label names and values.
func labels(pairs ...string) string {
	var b strings.Builder
	for i := 1; i < len(pairs); i += 2 {
		if i > 1 {
			b.WriteByte(',')
		}
		b.WriteString(pairs[i-1] + `="` + escape.Replace(strings.ToValidUTF8(pairs[i], "\uFFFD")) +
			`"`)
	}
	return b.String()
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
