package memkv

import (
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestLeaseEndsInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		c := s.Client("a")
		l, err := c.Grant(t.Context(), 30)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Put(t.Context(), "k", "v", clientv3.WithLease(l.ID)); err != nil {
			t.Fatal(err)
		}
		watch := c.Watch(t.Context(), "k")
		time.Sleep(29 * time.Second)
		if _, err := c.KeepAliveOnce(t.Context(), l.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(29 * time.Second)
		if r, _ := c.Get(t.Context(), "k"); r.Count != 1 {
			t.Fatal("the key of a renewed lease is gone")
		}
		start := time.Now()
		r := <-watch
		if len(r.Events) != 1 || r.Events[0].Type != clientv3.EventTypeDelete {
			t.Fatalf("events %v", r.Events)
		}
		if d := time.Since(start); d != time.Second {
			t.Fatalf("the lease ended %s after 29 s, not after 1 s", d)
		}
	})
}
