package test

import (
	"crypto/tls"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/lab"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/sim"
	"github.com/tenon-cni/tenon/internal/cluster"
)

// TestSecureStore runs nodes with client certificates and passwords of a user who may use only the
// keys of the cluster.
func TestSecureStore(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s lab.Server) {
		t.Parallel()
		etcd := lab.Start(t, lab.Options{Server: s, TLS: true})
		etcd.Protect("tenon", "password", cluster.NewKeys(sim.Cluster).Root())
		w := &world{t: t, o: quick(4), etcd: etcd}
		w.begin(etcd.Client(nil))
		for i := range w.o.nodes {
			port := etcd.Node()
			conf := etcd.Config(port)
			if i%2 == 1 {
				conf.TLS = etcd.PKI.Client("host")
				conf.Username, conf.Password = "tenon", "password"
			}
			w.addNode(fmt.Sprintf("n%d", i), etcd.Dial(conf), port)
		}
		w.boot()
		for _, m := range w.nodes {
			w.add(m, 0, 30)
		}
		w.finish()
	})
}

// TestExpiredCertificate lets the certificate of a node expire: it allocates from its own blocks,
// and claims blocks again with another certificate.
func TestExpiredCertificate(t *testing.T) {
	t.Parallel()
	etcd := lab.Start(t, lab.Options{TLS: true, Members: 1})
	w := &world{t: t, o: quick(1), etcd: etcd}
	w.begin(etcd.Client(nil))
	port := etcd.Node()
	conf := etcd.Config(port)
	valid := conf.TLS.Certificates[0]
	expired := etcd.PKI.Until("tenon", time.Now().Add(-time.Minute)).Certificates[0]
	var shown atomic.Pointer[tls.Certificate]
	shown.Store(&valid)
	conf.TLS.Certificates = nil
	conf.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return shown.Load(), nil
	}
	m := w.addNode("n0", etcd.Dial(conf), port)
	w.boot()
	w.add(m, 0, 5)
	shown.Store(&expired)
	etcd.Members[0].Kill() // the node has to connect again
	etcd.Heal()
	w.add(m, 5, 9)
	if _, err := addMany(m, 9, 60); err == nil {
		t.Error("a node with an expired certificate claims blocks")
	}
	if err := m.Del(t.Context(), m.Name+"-0"); err != nil {
		t.Errorf("DEL: %v", err)
	}
	shown.Store(&valid)
	for i := 100; i < 130; i++ {
		w.untilAdded(m, i)
	}
	w.finish()
}

// TestFullStore fills the databases of the members: nodes allocate from their own blocks, DEL
// works, and after the operator has made room they claim blocks again.
func TestFullStore(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s lab.Server) {
		t.Parallel()
		etcd := lab.Start(t, lab.Options{Server: s, Quota: 16 << 20})
		w := &world{t: t, o: quick(3), etcd: etcd}
		w.begin(etcd.Client(nil))
		for i := range w.o.nodes {
			port := etcd.Node()
			w.addNode(fmt.Sprintf("n%d", i), etcd.Client(port), port)
		}
		w.boot()
		for _, m := range w.nodes {
			w.add(m, 0, 5)
		}
		etcd.Fill()
		for _, m := range w.nodes {
			w.add(m, 5, 9)
			if _, err := addMany(m, 9, 60); err == nil {
				t.Error("nodes claim blocks although the store is full")
			}
			if err := m.Del(t.Context(), m.Name+"-0"); err != nil {
				t.Errorf("DEL: %v", err)
			}
		}
		etcd.Clear()
		for _, m := range w.nodes {
			for i := 100; i < 130; i++ {
				w.untilAdded(m, i)
			}
		}
		w.finish()
	})
}
