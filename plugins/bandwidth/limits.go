package bandwidth

import (
	"cmp"
	"math"
	"strconv"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/chained"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Limits are the limits of both directions, as seen from the container. If the configuration has
// any of these keys, even with value 0, the runtime's limits are ignored.
type Limits struct {
	// IngressRate limits packets that the container receives, in bits per second, at least 8; 0
	// means no limit.
	IngressRate *uint64 `json:"ingressRate"`

	// IngressBurst is the number of bits that the container can receive at once after a pause,
	// below 4 GiB. The default is the number that the rate passes in 4 ms, but at least 16 KiB and
	// one packet. 0 is an error if there is a rate.
	IngressBurst *uint64 `json:"ingressBurst"`

	// EgressRate limits packets that the container sends, in bits per second, at least 8; 0 means
	// no limit.
	EgressRate *uint64 `json:"egressRate"`

	// EgressBurst is the number of bits that the container can send at once after a pause, with the
	// same limits and default as ingressBurst.
	EgressBurst *uint64 `json:"egressBurst"`
}

func (l Limits) given() bool {
	return l.IngressRate != nil || l.IngressBurst != nil || l.EgressRate != nil ||
		l.EgressBurst != nil
}

func (l Limits) ingress() limit { return newLimit("ingress", l.IngressRate, l.IngressBurst) }
func (l Limits) egress() limit  { return newLimit("egress", l.EgressRate, l.EgressBurst) }

// limit is the limit of one direction.
type limit struct {
	key         string // prefix of its keys
	rate, burst uint64 // bits per second; bits, 0 for the default
	noBurst     bool   // the configuration has a burst of 0
}

func newLimit(key string, rate, burst *uint64) limit {
	var zero uint64
	return limit{key, *cmp.Or(rate, &zero), *cmp.Or(burst, &zero), burst != nil && *burst == 0}
}

const (
	latency  = 25 * time.Millisecond // the longest time that a packet waits
	maxBurst = math.MaxUint32        // bytes, exclusive

	// The default burst is the amount that the rate passes while a timer of the kernel is late (a
	// tick of 250 Hz), and at least ten Ethernet packets. With less, TCP does not reach the rate,
	// because the bucket overflows between two timers; with more, packets wait longer at low rates,
	// because they may fill the bucket twice.
	defaultBurstTime = 4 * time.Millisecond
	leastBurst       = 16 << 10 // bytes
	frameHeader      = 14       // bytes of the Ethernet header, which count in addition to the MTU
)

func (l limit) unlimited() bool { return l.rate == 0 }

// validate refuses invalid limits, in upstream's words if upstream refuses them too.
func (l limit) validate() error {
	switch {
	case l.rate == 0 && l.burst > 0:
		return cni.Errorf(cni.CodeInvalidConfig, "if burst is set, rate must also be set").
			WithDetails("set " + l.key + "Rate, or remove " + l.key + "Burst").Verbatim()
	case l.rate > 0 && l.noBurst:
		return cni.Errorf(cni.CodeInvalidConfig, "if rate is set, burst must also be set").
			WithDetails("remove " + l.key + "Burst to use the default").Verbatim()
	case l.rate > 0 && l.rate < 8:
		return cni.Errorf(cni.CodeInvalidConfig, "%sRate: %d bit/s is less than a byte per second",
			l.key, l.rate).
			WithDetails("rates are in bits per second, at least 8; 0 means no limit")
	case l.burst >= 8*maxBurst: // Go 1.26 compiles burst/8 >= maxBurst to false on s390x
		return cni.Errorf(cni.CodeInvalidConfig, "burst cannot be more than 4GB").
			WithDetails(l.key + "Burst is " + strconv.FormatUint(l.burst, 10) + " bit").Verbatim()
	case l.burst > 0 && l.burst < 8:
		return cni.Errorf(cni.CodeInvalidConfig, "%sBurst: %d bit is less than a byte", l.key,
			l.burst).
			WithDetails("bursts are in bits; remove the key to use the default")
	}
	return nil
}

// burstBytes returns the burst, or the default for packets of at most this size (MTU).
func (l limit) burstBytes(mtu int) uint64 {
	if l.burst > 0 {
		return l.burst / 8
	}
	byTime := float64(l.rate/8) * defaultBurstTime.Seconds()
	return uint64(min(max(byTime, leastBurst, float64(mtu+frameHeader)), maxBurst-1))
}

// tbf returns the parameters of the token bucket. All arithmetic uses 64 bits, because the rate may
// exceed 4 GiB/s and the limit is the burst plus the bytes that the rate passes during the latency.
func (l limit) tbf(mtu int) kernel.TBF {
	rate, burst := l.rate/8, l.burstBytes(mtu)
	return kernel.TBF{
		Rate: rate,
		// below 2^32 · 10^9, which fits in 63 bits
		Buffer: time.Duration(burst * uint64(time.Second) / rate),
		Limit:  uint32(min(float64(rate)*latency.Seconds()+float64(burst), math.MaxUint32)),
	}
}

// warn logs a burst that is smaller than a packet, because the bucket drops packets that it cannot
// hold.
func (l limit) warn(s *chained.Session, mtu int) {
	if have, least := l.burstBytes(mtu), uint64(mtu+frameHeader); have < least {
		s.Log.Warn("burst is smaller than a packet; larger packets are dropped", "key",
			l.key+"Burst", "bytes", have, "packet", least)
	}
}
