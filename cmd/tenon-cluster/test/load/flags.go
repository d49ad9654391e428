package load

import (
	"flag"
	"testing"
	"time"
)

// settings describe a run.
type settings struct {
	etcd               bool
	nodes, pods, seers int
	lost               int
	churn, spread      time.Duration
	cooldown           time.Duration
	dir, pool          string
}

// Flags defines the flags of a run, and returns the run.
func Flags() func(t *testing.T) {
	var s settings
	flag.BoolVar(&s.etcd, "etcd", false, "use three members of etcd and real time")
	flag.IntVar(&s.nodes, "nodes", 200, "nodes")
	flag.IntVar(&s.pods, "pods", 110, "pods per node")
	flag.IntVar(&s.seers, "seers", 20, "nodes that watch the others, in memory")
	flag.IntVar(&s.lost, "lost", 0, "nodes that are lost at once; a tenth of the nodes if 0")
	flag.DurationVar(&s.churn, "churn", 10*time.Minute,
		"time of churn: one pod per node and minute")
	flag.DurationVar(&s.spread, "spread", 30*time.Second, "time over which the nodes start")
	flag.DurationVar(&s.cooldown, "cooldown", 5*time.Minute, "cooldown of the pool")
	flag.StringVar(&s.dir, "dir", "/dev/shm", "the files of the nodes are created here")
	flag.StringVar(&s.pool, "range", "10.64.0.0/11", "the range of the pool; if it has few "+
		"blocks, nodes that see the others claim none ahead")
	return func(t *testing.T) { run(t, s) }
}
