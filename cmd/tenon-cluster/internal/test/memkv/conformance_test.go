package memkv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestConformance runs the same requests against memkv and etcd and compares the answers as text.
// Revisions count from the start of the scenario.
func TestConformance(t *testing.T) {
	testnet.Require(t, testnet.Root, testnet.Tool("etcd"))
	etcd := startEtcd(t)
	memory := New()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			got := run(t, s.steps, client{memory.Client("a"), memory.Client("a"), memory.Client("a")})
			want := run(t, s.steps, client{etcd, etcd, etcd})
			if d := testnet.Diff(want, got); d != "" {
				t.Errorf("etcd (-) and memkv (+) differ:\n%s", d)
			}
			t.Log(want)
		})
	}
}

// startEtcd starts etcd in a network namespace of its own, with Unix sockets.
func startEtcd(t *testing.T) *clientv3.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("etcd", "--name", "a", "--data-dir", "data", "--unsafe-no-fsync",
		"--listen-client-urls", "unix://c.sock:0", "--advertise-client-urls", "unix://c.sock:0",
		"--listen-peer-urls", "unix://p.sock:0", "--initial-advertise-peer-urls", "unix://p.sock:0",
		"--initial-cluster", "a=unix://p.sock:0")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		_ = os.RemoveAll(dir)
	})
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"unix://" + filepath.Join(dir, "c.sock:0")}, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	testnet.Eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Get(ctx, "probe")
		return err
	})
	return c
}

type client struct {
	clientv3.KV
	clientv3.Lease
	clientv3.Watcher
}

// recorder runs steps and writes what the store answers.
type recorder struct {
	*testing.T
	client
	base   int64
	leases []clientv3.LeaseID
	out    strings.Builder
}

func run(t *testing.T, steps func(r *recorder), c client) string {
	t.Helper()
	r := &recorder{T: t, client: c}
	if _, err := c.KV.Delete(t.Context(), "\x00", clientv3.WithFromKey()); err != nil {
		t.Fatal(err)
	}
	first, err := c.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	r.base = first.Header.Revision
	steps(r)
	return r.out.String()
}

func (r *recorder) printf(format string, args ...any) { fmt.Fprintf(&r.out, format+"\n", args...) }

// rev returns a revision as the scenario counts it; 0 stays 0.
func (r *recorder) rev(revision int64) int64 {
	if revision == 0 {
		return 0
	}
	return revision - r.base
}

func (r *recorder) lease(id int64) string {
	for i, known := range r.leases {
		if int64(known) == id {
			return fmt.Sprint("L", i)
		}
	}
	return fmt.Sprint(id)
}

func (r *recorder) kv(kv *mvccpb.KeyValue) string {
	if kv == nil {
		return "none"
	}
	return fmt.Sprintf("%s=%s c%d m%d v%d %s", kv.Key, kv.Value, r.rev(kv.CreateRevision),
		r.rev(kv.ModRevision), kv.Version, r.lease(kv.Lease))
}

func (r *recorder) get(key string, opts ...clientv3.OpOption) {
	a, err := r.client.Get(r.Context(), key, opts...)
	if err != nil {
		r.printf("get %s: %v", key, err)
		return
	}
	r.printf("get %s: @%d count %d more %t", key, r.rev(a.Header.Revision), a.Count, a.More)
	for _, kv := range a.Kvs {
		r.printf("  %s", r.kv(kv))
	}
}

func (r *recorder) put(key, value string, opts ...clientv3.OpOption) {
	a, err := r.client.Put(r.Context(), key, value, opts...)
	if err != nil {
		r.printf("put %s: %v", key, err)
		return
	}
	r.printf("put %s: @%d previous %s", key, r.rev(a.Header.Revision), r.kv(a.PrevKv))
}

func (r *recorder) del(key string, opts ...clientv3.OpOption) {
	a, err := r.client.Delete(r.Context(), key, opts...)
	if err != nil {
		r.printf("delete %s: %v", key, err)
		return
	}
	r.printf("delete %s: @%d deleted %d, %d previous", key, r.rev(a.Header.Revision), a.Deleted,
		len(a.PrevKvs))
}

func (r *recorder) txn(name string, cmps []clientv3.Cmp, then, otherwise []clientv3.Op) {
	a, err := r.Txn(r.Context()).If(cmps...).Then(then...).Else(otherwise...).Commit()
	if err != nil {
		r.printf("txn %s: %v", name, err)
		return
	}
	r.printf("txn %s: @%d %t", name, r.rev(a.Header.Revision), a.Succeeded)
	for _, one := range a.Responses {
		switch {
		case one.GetResponseRange() != nil:
			r.printf("  range count %d", one.GetResponseRange().Count)
			for _, kv := range one.GetResponseRange().Kvs {
				r.printf("    %s", r.kv(kv))
			}
		case one.GetResponseDeleteRange() != nil:
			r.printf("  deleted %d", one.GetResponseDeleteRange().Deleted)
		}
	}
}

func (r *recorder) grant(seconds int64) clientv3.LeaseID {
	a, err := r.Grant(r.Context(), seconds)
	if err != nil {
		r.printf("grant %d: %v", seconds, err)
		return 0
	}
	r.leases = append(r.leases, a.ID)
	r.printf("grant %d: %d", seconds, a.TTL)
	return a.ID
}

// events prints the next count events of a watch, without regard to their batches.
func (r *recorder) events(watch clientv3.WatchChan, count int) {
	deadline := time.After(testnet.Patience)
	for seen := 0; seen < count; {
		select {
		case <-deadline:
			r.Fatalf("only %d of %d events", seen, count)
		case a, ok := <-watch:
			if err := a.Err(); err != nil || !ok {
				r.printf("watch: %v, open %t, compacted %d", err, ok, r.rev(a.CompactRevision))
				return
			}
			for _, e := range a.Events {
				r.printf("event %s %s previous %s", e.Type, r.kv(e.Kv), r.kv(e.PrevKv))
				seen++
			}
		}
	}
}

var (
	create = clientv3.CreateRevision
	mod    = clientv3.ModRevision
	is     = clientv3.Compare
)

func cmps(c ...clientv3.Cmp) []clientv3.Cmp { return c }
func ops(o ...clientv3.Op) []clientv3.Op    { return o }

var scenarios = []struct {
	name  string
	steps func(r *recorder)
}{
	{"puts, gets and deletes", func(r *recorder) {
		r.put("a", "1")
		r.put("a", "2", clientv3.WithPrevKV())
		r.put("b", "1")
		r.del("a", clientv3.WithPrevKV())
		r.del("a")
		r.put("a", "3")
		r.put("a", "", clientv3.WithIgnoreValue())
		r.put("zz", "", clientv3.WithIgnoreValue())
		r.get("a")
		r.get("a", clientv3.WithRev(r.base+2))
		r.get("a", clientv3.WithRev(r.base+1000))
		r.get("", clientv3.WithPrefix())
		r.get("a", clientv3.WithFromKey(), clientv3.WithKeysOnly())
		r.get("a", clientv3.WithFromKey(), clientv3.WithCountOnly())
		r.get("a", clientv3.WithFromKey(),
			clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend))
		r.get("b", clientv3.WithRange("a"))
		r.put("", "1")
	}},
	{"pages at one revision", func(r *recorder) {
		for i := range 7 {
			r.put(fmt.Sprintf("p/%d", i), "v")
		}
		r.get("p/", clientv3.WithPrefix(), clientv3.WithLimit(3))
		r.del("p/4")
		end := clientv3.WithRange(clientv3.GetPrefixRangeEnd("p/"))
		r.get("p/2\x00", end, clientv3.WithLimit(3), clientv3.WithRev(r.base+7))
		r.get("p/5\x00", end, clientv3.WithLimit(3), clientv3.WithRev(r.base+7))
		r.get("p/6\x00", end, clientv3.WithLimit(3), clientv3.WithRev(r.base+7))
	}},
	{"compares", func(r *recorder) {
		r.put("k", "b")
		r.put("k", "c")
		l := r.grant(60)
		r.put("l", "x", clientv3.WithLease(l))
		for _, c := range []struct {
			name string
			cmp  clientv3.Cmp
		}{
			{"absent", is(create("none"), "=", 0)},
			{"present is absent", is(create("k"), "=", 0)},
			{"created", is(create("k"), "=", r.base+1)},
			{"modified", is(mod("k"), "=", r.base+2)},
			{"modified of absent", is(mod("none"), "=", 0)},
			{"later", is(mod("k"), ">", r.base+1)},
			{"version", is(clientv3.Version("k"), "=", 2)},
			{"value", is(clientv3.Value("k"), "=", "c")},
			{"value less", is(clientv3.Value("k"), "<", "d")},
			{"value not", is(clientv3.Value("k"), "!=", "x")},
			{"value of absent", is(clientv3.Value("none"), "=", "")},
			{"value of absent not", is(clientv3.Value("none"), "!=", "x")},
			{"lease", is(clientv3.LeaseValue("l"), "=", l)},
			{"lease of none", is(clientv3.LeaseValue("k"), "=", 0)},
			{"lease of absent", is(clientv3.LeaseValue("none"), "=", 0)},
			{"range older", is(mod("").WithPrefix(), "<", r.base+4)},
			{"range not older", is(mod("k").WithRange("z"), "<", r.base+3)},
			{"empty range older", is(mod("q").WithPrefix(), "<", r.base)},
			{"empty range is absent", is(create("q").WithPrefix(), "=", 0)},
			{"empty range is present", is(create("q").WithPrefix(), ">", 0)},
			{"full range is absent", is(create("k").WithPrefix(), "=", 0)},
			{"value of empty range", is(clientv3.Value("q").WithPrefix(), "=", "x")},
		} {
			r.txn(c.name, cmps(c.cmp), ops(clientv3.OpGet("k")), nil)
		}
	}},
	{"transactions", func(r *recorder) {
		r.txn("create", cmps(is(create("a"), "=", 0)), ops(clientv3.OpPut("a", "1"),
			clientv3.OpPut("b", "1"), clientv3.OpGet("a")), ops(clientv3.OpGet("a")))
		r.txn("again", cmps(is(create("a"), "=", 0)), ops(clientv3.OpPut("a", "2")),
			ops(clientv3.OpGet("a"), clientv3.OpGet("none")))
		r.txn("read only", nil, ops(clientv3.OpGet("a"), clientv3.OpGet("", clientv3.WithPrefix())), nil)
		r.txn("delete nothing", nil, ops(clientv3.OpDelete("none")), nil)
		r.txn("delete", nil, ops(clientv3.OpDelete("a"), clientv3.OpDelete("", clientv3.WithPrefix()),
			clientv3.OpGet("", clientv3.WithPrefix())), nil)
		r.txn("two puts", nil, ops(clientv3.OpPut("a", "1"), clientv3.OpPut("a", "2")), nil)
		r.txn("put and delete", nil, ops(clientv3.OpPut("a", "1"), clientv3.OpDelete("a")), nil)
		r.txn("put and delete of a range", nil,
			ops(clientv3.OpDelete("a", clientv3.WithRange("z")), clientv3.OpPut("b", "1")), nil)
		// etcd 3.4.23 permits a put and a delete of a range without end; memkv refuses that.
		r.txn("put in both branches", nil, ops(clientv3.OpPut("a", "1")), ops(clientv3.OpPut("a", "1")))
		r.txn("future", nil, ops(clientv3.OpPut("a", "9"),
			clientv3.OpGet("a", clientv3.WithRev(r.base+1000))), nil)
		r.get("", clientv3.WithPrefix())
		r.txn("empty", nil, nil, nil)
	}},
	{"limits", func(r *recorder) {
		many := func(n int) (c []clientv3.Cmp, o []clientv3.Op) {
			for i := range n {
				key := fmt.Sprint("k", i)
				c = append(c, is(create(key), "=", 0))
				o = append(o, clientv3.OpPut(key, "v"))
			}
			return c, o
		}
		c, o := many(128)
		r.txn("128", c, o, nil)
		c, o = many(129)
		r.txn("129 compares", c, nil, nil)
		r.txn("129 operations", nil, o, nil)
		r.txn("129 reads", nil, nil, o)
		r.put("big", strings.Repeat("x", 1_500_000))
		r.put("too big", strings.Repeat("x", 1_600_000))
		r.get("", clientv3.WithPrefix(), clientv3.WithCountOnly())
	}},
	{"leases", func(r *recorder) {
		l := r.grant(60)
		r.put("a", "1", clientv3.WithLease(l))
		r.put("b", "1", clientv3.WithLease(l))
		r.put("c", "1", clientv3.WithLease(l))
		r.put("b", "2")
		r.txn("unknown lease", nil, ops(clientv3.OpPut("x", "1"),
			clientv3.OpPut("y", "1", clientv3.WithLease(77))), nil)
		r.get("", clientv3.WithPrefix())
		if a, err := r.KeepAliveOnce(r.Context(), l); err != nil || a.TTL != 60 {
			r.printf("keep alive: %v", err)
		}
		_, err := r.Revoke(r.Context(), l)
		r.printf("revoke: %v", err)
		r.get("", clientv3.WithPrefix())
		_, err = r.Revoke(r.Context(), l)
		r.printf("revoke again: %v", err)
		_, err = r.KeepAliveOnce(r.Context(), l)
		r.printf("keep alive: %v", err)
		a, err := r.TimeToLive(r.Context(), l)
		r.printf("time to live: %d %v", a.TTL, err)
		r.grant(1)
		r.grant(9_000_000_001)
		short := r.grant(2)
		r.put("s", "1", clientv3.WithLease(short))
		watch := r.Watch(r.Context(), "s", clientv3.WithRev(r.base+6))
		r.events(watch, 2)
	}},
	{"watches", func(r *recorder) {
		r.put("w/a", "1")
		r.put("w/a", "2")
		ctx, cancel := context.WithCancel(r.Context())
		watch := r.Watch(ctx, "w/", clientv3.WithPrefix(),
			clientv3.WithRev(r.base+2), clientv3.WithPrevKV())
		r.put("x", "1")
		r.put("w/b", "1")
		r.txn("both", nil, ops(clientv3.OpPut("w/c", "1"), clientv3.OpDelete("w/a")), nil)
		r.events(watch, 4)
		cancel()
		a, ok := <-watch
		r.printf("canceled: %d events, open %t, %v", len(a.Events), ok, a.Err())
	}},
	{"compaction", func(r *recorder) {
		for i := range 5 {
			r.put("a", fmt.Sprint(i))
		}
		r.del("a")
		r.put("b", "1")
		_, err := r.Compact(r.Context(), r.base+4)
		r.printf("compact: %v", err)
		_, err = r.Compact(r.Context(), r.base+4)
		r.printf("compact again: %v", err)
		_, err = r.Compact(r.Context(), r.base+1000)
		r.printf("compact the future: %v", err)
		r.get("a", clientv3.WithRev(r.base+3))
		r.get("a", clientv3.WithRev(r.base+4))
		r.get("a", clientv3.WithRev(r.base+6))
		watch := r.Watch(r.Context(), "a", clientv3.WithRev(r.base+3))
		r.events(watch, 1)
		watch = r.Watch(r.Context(), "a", clientv3.WithRev(r.base+4))
		r.events(watch, 3)
		_, err = r.Compact(r.Context(), r.base+7)
		r.printf("compact: %v", err)
		r.get("", clientv3.WithPrefix())
		r.put("a", "new")
	}},
}
