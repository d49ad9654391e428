package bandwidth

import (
	"cmp"
	"math"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Limits are the limits of both directions, as seen from the container. Absent and 0 are different in one respect: any
// that is there makes the configuration's own count, and not those of the runtime.
type Limits struct {
	// IngressRate is what the container may receive, in bits per second, from 8; 0 is no limit.
	IngressRate *uint64 `json:"ingressRate"`

	// IngressBurst is how many bits it may receive at once after a pause, below 4 GiB. The default is what the rate
	// lets through in 4 ms, but at least 16 KiB and one packet. 0 is an error if there is a rate.
	IngressBurst *uint64 `json:"ingressBurst"`

	// EgressRate is what the container may send, in bits per second, from 8; 0 is no limit.
	EgressRate *uint64 `json:"egressRate"`

	// EgressBurst is how many bits it may send at once after a pause, as ingressBurst.
	EgressBurst *uint64 `json:"egressBurst"`
}

func (l Limits) given() bool {
	return l.IngressRate != nil || l.IngressBurst != nil || l.EgressRate != nil || l.EgressBurst != nil
}

func (l Limits) ingress() limit { return newLimit("ingress", l.IngressRate, l.IngressBurst) }
func (l Limits) egress() limit  { return newLimit("egress", l.EgressRate, l.EgressBurst) }

// limit is that of one direction.
type limit struct {
	key         string // what its keys begin with
	rate, burst uint64 // bits per second; bits, 0 for the default
	noBurst     bool   // the configuration has a burst of 0
}

func newLimit(key string, rate, burst *uint64) limit {
	var zero uint64
	return limit{key, *cmp.Or(rate, &zero), *cmp.Or(burst, &zero), burst != nil && *burst == 0}
}

const (
	latency  = 25 * time.Millisecond // for which packets may wait for their turn, at most
	maxBurst = math.MaxUint32        // bytes, not included

	// The burst that stands for none given: what the rate lets through in the time by which timers of the kernel may be late
	// (a tick of 250 Hz), and no less than ten packets of an Ethernet. With less TCP does not reach the rate, as the bucket
	// overflows between two timers; with more, packets wait for longer where the rate is low, as they may fill the bucket twice.
	defaultBurstTime = 4 * time.Millisecond
	leastBurst       = 16 << 10 // bytes
	frameHeader      = 14       // bytes of Ethernet's that count too, beside the MTU
)

func (l limit) unlimited() bool { return l.rate == 0 }

// validate refuses what makes no sense, in the words of the reference plugin where that refuses it too.
func (l limit) validate() error {
	switch {
	case l.rate == 0 && l.burst > 0:
		return cni.Errorf(cni.CodeInvalidConfig, "if burst is set, rate must also be set").
			WithDetails("key " + l.key + "Burst").Verbatim()
	case l.rate > 0 && l.noBurst:
		return cni.Errorf(cni.CodeInvalidConfig, "if rate is set, burst must also be set").
			WithDetails("key " + l.key + "Burst: leave it out for the default").Verbatim()
	case l.rate > 0 && l.rate < 8:
		return cni.Errorf(cni.CodeInvalidConfig, "%sRate: %d bit/s is less than a byte per second", l.key, l.rate).
			WithDetails("rates are in bits per second, from 8; 0 is no limit")
	case l.burst/8 >= maxBurst:
		return cni.Errorf(cni.CodeInvalidConfig, "burst cannot be more than 4GB").WithDetails("key " + l.key + "Burst").Verbatim()
	case l.burst > 0 && l.burst < 8:
		return cni.Errorf(cni.CodeInvalidConfig, "%sBurst: %d bit is less than a byte", l.key, l.burst).
			WithDetails("bursts are in bits; leave the key out for the default")
	}
	return nil
}

// burstBytes is the burst, or what stands for it where packets have this size (MTU) at most.
func (l limit) burstBytes(mtu int) uint64 {
	if l.burst > 0 {
		return l.burst / 8
	}
	byTime := float64(l.rate/8) * defaultBurstTime.Seconds()
	return uint64(min(max(byTime, leastBurst, float64(mtu+frameHeader)), maxBurst-1))
}

// tbf returns the parameters of the token bucket. All arithmetic is in 64 bits: the rate may be above 4 GiB/s, and
// what can wait during the latency comes on top of the burst.
func (l limit) tbf(mtu int) kernel.TBF {
	rate, burst := l.rate/8, l.burstBytes(mtu)
	return kernel.TBF{
		Rate:   rate,
		Buffer: time.Duration(burst * uint64(time.Second) / rate), // below 2^32 · 10^9, which 63 bits hold
		Limit:  uint32(min(float64(rate)*latency.Seconds()+float64(burst), math.MaxUint32)),
	}
}

// warn tells of a burst that is too small for a packet: the bucket drops those that it cannot hold.
func (l limit) warn(s *chained.Session, mtu int) {
	if have, least := l.burstBytes(mtu), uint64(mtu+frameHeader); have < least {
		s.Log.Warn("burst is smaller than a packet: larger ones are dropped", "key", l.key+"Burst", "bytes", have, "packet", least)
	}
}
