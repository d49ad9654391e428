package metrics_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/network/metrics"
)

// exposed returns the metrics of r, which must be well-formed, without the measured times.
func exposed(t *testing.T, r *metrics.Registry) parsed {
	t.Helper()
	var b bytes.Buffer
	if err := r.WritePrometheus(t.Context(), &b); err != nil {
		t.Error(err)
	}
	p, err := parse(b.String())
	if err != nil {
		t.Fatalf("%v in\n%s", err, &b)
	}
	for key := range p {
		if strings.Contains(key, "_seconds_sum{") || strings.Contains(key, "_seconds_bucket{") {
			delete(p, key)
		}
	}
	return p
}

func newNetwork(t *testing.T, name string, types ...string) *config.Network {
	t.Helper()
	n, err := config.LoadBytes(fmt.Appendf(nil,
		`{"cniVersion":"1.1.0","name":%q,"plugins":[{"type":"%s"}]}`, name,
		strings.Join(types, `"},{"type":"`)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func request(container string) network.Request {
	return network.Request{Container: container, IfName: "eth0",
		Parameters: network.Parameters{Netns: "/run/netns/absent"}}
}

// Operations are counted by their kind, failures by their code.
func TestRegistry(t *testing.T) {
	t.Parallel()
	r := &metrics.Registry{}
	plugins := invoke.Fake{"bridge": {}, "portmap": {}}
	c := &network.Client{Caller: plugins, Isolated: true, StateDir: t.TempDir(), Observer: r,
		Log: slog.New(slog.DiscardHandler)}
	r.Records = c.List
	n := newNetwork(t, "pods", "bridge")
	for _, id := range []string{"c1", "c2"} {
		if _, err := c.Add(t.Context(), n, request(id)); err != nil {
			t.Fatal(err)
		}
	}
	plugins["bridge"][cni.Add] = invoke.Fail(cni.Errorf(cni.CodeTryAgainLater, "no"))
	if _, err := c.Add(t.Context(), n, request("c3")); err == nil {
		t.Error("success")
	}
	plugins["bridge"][cni.Del] = invoke.Fail(cni.Errorf(cni.CodeIOFailure, "no"))
	if err := c.Del(t.Context(), request("c1").Attachment("pods"), network.Fallback{}); err == nil {
		t.Error("success")
	}
	want := parsed{
		"tenon_attachments{network=pods,state=adding}":                0,
		"tenon_attachments{network=pods,state=attached}":              1,
		"tenon_attachments{network=pods,state=deleting}":              1,
		"tenon_lock_wait_seconds_count{lock=container}":               4,
		"tenon_lock_wait_seconds_count{lock=network}":                 4,
		"tenon_operation_duration_seconds_count{operation=ADD}":       3,
		"tenon_operation_duration_seconds_count{operation=DEL}":       1,
		"tenon_operation_duration_seconds_count{operation=rollback}":  1,
		"tenon_operation_errors_total{operation=ADD,code=11}":         1,
		"tenon_operation_errors_total{operation=DEL,code=5}":          1,
		"tenon_plugin_duration_seconds_count{plugin=bridge,verb=ADD}": 3,
		"tenon_plugin_duration_seconds_count{plugin=bridge,verb=DEL}": 2,
		"tenon_plugin_errors_total{plugin=bridge,verb=ADD,code=11}":   1,
		"tenon_plugin_errors_total{plugin=bridge,verb=DEL,code=5}":    1,
		"tenon_source_up{source=records}":                             1,
	}
	if diff := cmp.Diff(want, exposed(t, r)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func begin(r *metrics.Registry, e network.Event, o network.Outcome) {
	_, end := r.Begin(context.Background(), e)
	end(o)
}

// The whole format: order, HELP and TYPE, buckets, escapes.
func TestText(t *testing.T) {
	t.Parallel()
	r := &metrics.Registry{
		ByNetwork: true,
		Pools: func(context.Context) ([]metrics.Pool, error) {
			return []metrics.Pool{
				{Network: "pods", Range: "b", Size: 254, Used: 3},
				{Network: "pods", Range: "a", Size: 1 << 63},
				{Network: "pods", Range: "b", Size: 254, Used: 4},
			}, nil
		},
	}
	add := network.Event{Kind: network.Operation, Verb: cni.Add,
		Attachment: cni.Attachment{Network: "pods", Container: "c1", IfName: "eth0"}}
	for _, d := range []time.Duration{0, 500 * time.Microsecond, 501 * time.Microsecond,
		time.Second, time.Hour} {
		begin(r, add, network.Outcome{Duration: d})
	}
	begin(r, network.Event{Kind: network.PluginCall, Verb: cni.Del, Plugin: "a\"b\\c\nd\xff"},
		network.Outcome{Err: errors.New("x"), Duration: time.Minute})
	begin(r, network.Event{Kind: network.Repair},
		network.Outcome{Err: cni.Errorf(cni.CodeIOFailure, "x")})
	const want = `# HELP tenon_operation_duration_seconds Duration of operations, plugins included.
# TYPE tenon_operation_duration_seconds histogram
tenon_operation_duration_seconds_bucket{operation="ADD",network="pods",le="0.0005"} 2
tenon_operation_duration_seconds_bucket{operation="ADD",network="pods",le="0.001"} 3
tenon_operation_duration_seconds_bucket{operation="ADD",network="pods",le="0.0025"} 3
tenon_operation_duration_seconds_bucket{operation="ADD",network="pods",le="0.005"} 3
tenon_operation_duration_seconds_bucket{operation="ADD",network="pods",le="0.01"} 3
tenon_operation_duration_seconds_bucket{operation="ADD",network="pods",le="0.025"} 3
tenon_operation_duration_seconds_bucket{operation="ADD",network="pods",le="0.05"} 3
tenon_operation_duration_seconds_bucket{operation="ADD",network="pods",le="0.1"} 3
tenon_operation_duration_seconds_bucket{operation="ADD",network="pods",le="0.25"} 3
tenon_operation_duration_seconds_bucket{operation="ADD",network="pods",le="0.5"} 3
tenon_operation_duration_seconds_bucket{operation="ADD",network="pods",le="1"} 4
tenon_operation_duration_seconds_bucket{operation="ADD",network="pods",le="2.5"} 4
tenon_operation_duration_seconds_bucket{operation="ADD",network="pods",le="5"} 4
tenon_operation_duration_seconds_bucket{operation="ADD",network="pods",le="10"} 4
tenon_operation_duration_seconds_bucket{operation="ADD",network="pods",le="30"} 4
tenon_operation_duration_seconds_bucket{operation="ADD",network="pods",le="60"} 4
tenon_operation_duration_seconds_bucket{operation="ADD",network="pods",le="+Inf"} 5
tenon_operation_duration_seconds_sum{operation="ADD",network="pods"} 3601.001001
tenon_operation_duration_seconds_count{operation="ADD",network="pods"} 5
`
	var b bytes.Buffer
	if err := r.WritePrometheus(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	if !strings.HasPrefix(got, want) {
		t.Errorf("(-want +got)\n%s", cmp.Diff(want, got))
	}
	rest := exposed(t, r)
	some := parsed{
		"tenon_plugin_errors_total{plugin=a\"b\\c\nd\uFFFD,verb=DEL,code=999}": 1,
		"tenon_operation_errors_total{operation=repair,network=,code=5}":       1,
		"tenon_pool_addresses{network=pods,range=a}":                           1 << 63,
		"tenon_pool_addresses{network=pods,range=b}":                           508,
		"tenon_pool_used_addresses{network=pods,range=a}":                      0,
		"tenon_pool_used_addresses{network=pods,range=b}":                      7,
		"tenon_source_up{source=pools}":                                        1,
	}
	for key, want := range some {
		if got, ok := rest[key]; !ok || got != want {
			t.Errorf("%s: %v (exists: %t), want %v", key, got, ok, want)
		}
	}
	var again bytes.Buffer
	if err := r.WritePrometheus(t.Context(), &again); err != nil || again.String() != got {
		t.Errorf("the order changes, or %v", err)
	}
}

// An unreadable source is an error and a metric, and does not affect other metrics.
func TestSourcesThatFail(t *testing.T) {
	t.Parallel()
	damaged, gone := errors.New("damaged"), errors.New("gone")
	r := &metrics.Registry{
		Records: func() ([]network.Record, error) {
			return []network.Record{{Attachment: cni.Attachment{Network: "pods"},
				State: network.Attached}}, damaged
		},
		Pools: func(context.Context) ([]metrics.Pool, error) { return nil, gone },
	}
	path := filepath.Join(t.TempDir(), "tenon.prom")
	if err := r.WriteFile(t.Context(), path); !errors.Is(err, damaged) || !errors.Is(err, gone) {
		t.Errorf("error %v", err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parse(string(text))
	want := parsed{
		"tenon_attachments{network=pods,state=adding}":   0,
		"tenon_attachments{network=pods,state=attached}": 1,
		"tenon_attachments{network=pods,state=deleting}": 0,
		"tenon_source_up{source=records}":                0, "tenon_source_up{source=pools}": 0,
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	if err := (&metrics.Registry{}).WritePrometheus(t.Context(), broken{}); !errors.Is(err,
		io.ErrClosedPipe) {
		t.Errorf("error %v", err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// A reader never finds a partial file, and can read it whatever the umask.
func TestWriteFile(t *testing.T) {
	t.Parallel()
	r := &metrics.Registry{}
	begin(r, network.Event{Kind: network.Lock}, network.Outcome{})
	dir := t.TempDir()
	path := filepath.Join(dir, "tenon.prom")
	if err := r.WriteFile(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		for range 50 {
			if err := r.WriteFile(t.Context(), path); err != nil {
				done <- err
				return
			}
		}
		close(done)
	}()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			running = false
		default:
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if p, err := parse(string(text)); err != nil || len(p) != 19 {
			t.Fatalf("%d samples, %v", len(p), err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if err := r.WriteFile(t.Context(), filepath.Join(dir, "absent", "tenon.prom")); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

// Many goroutines update the metrics while others read them.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	r := &metrics.Registry{}
	c := &network.Client{Caller: invoke.Fake{"bridge": {}}, Isolated: true, StateDir: t.TempDir(),
		Observer: network.Observers{r}}
	r.Records = c.List
	n := newNetwork(t, "pods", "bridge")
	const containers, looks = 16, 8
	var all sync.WaitGroup
	for i := range containers {
		all.Go(func() {
			if _, err := c.Add(t.Context(), n, request(fmt.Sprint("c", i))); err != nil {
				t.Error(err)
			}
		})
	}
	for range looks {
		all.Go(func() {
			var b bytes.Buffer
			if err := r.WritePrometheus(t.Context(), &b); err != nil {
				t.Error(err)
			}
			if _, err := parse(b.String()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	p := exposed(t, r)
	for _, key := range []string{
		"tenon_attachments{network=pods,state=attached}",
		"tenon_operation_duration_seconds_count{operation=ADD}",
		"tenon_plugin_duration_seconds_count{plugin=bridge,verb=ADD}",
	} {
		if p[key] != containers {
			t.Errorf("%s: %v", key, p[key])
		}
	}
}
