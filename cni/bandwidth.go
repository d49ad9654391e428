package cni

import (
	"math"
	"math/big"
	"strings"
)

// Bandwidth limits the traffic that a container receives (ingress) and sends (egress). A zero rate
// means no limit. Without a burst the plugin chooses one that fits the rate; upstream `bandwidth`
// requires a burst with a rate.
type Bandwidth struct {
	IngressRate  BitRate `json:"ingressRate,omitempty"`
	IngressBurst Bits    `json:"ingressBurst,omitempty"`
	EgressRate   BitRate `json:"egressRate,omitempty"`
	EgressBurst  Bits    `json:"egressBurst,omitempty"`
}

// BitRate is a rate in bits per second: 10 * [Mbit].
type BitRate uint64

// Bits is an amount of data in bits, not bytes.
type Bits uint64

// Multiples of bits, and of bits per second.
const (
	Kbit = 1_000
	Mbit = 1_000 * Kbit
	Gbit = 1_000 * Mbit
	Tbit = 1_000 * Gbit

	Kibit = 1 << 10
	Mibit = 1 << 20
	Gibit = 1 << 30
	Tibit = 1 << 40
)

// check returns an error for values that the bandwidth plugins refuse.
func (b Bandwidth) check() error {
	for _, d := range []struct {
		name  string
		rate  BitRate
		burst Bits
	}{{"ingress", b.IngressRate, b.IngressBurst}, {"egress", b.EgressRate, b.EgressBurst}} {
		switch {
		case d.rate == 0 && d.burst > 0:
			return invalidCapability("bandwidth", "%sBurst is given without %sRate", d.name, d.name)
		case d.rate > 0 && d.rate < 8:
			return invalidCapability("bandwidth", "%sRate: %d bit/s is less than a byte per second",
				d.name, d.rate)
		case d.burst > 0 && d.burst < 8:
			return invalidCapability("bandwidth",
				"%sBurst: %d bit is less than a byte", d.name, d.burst)
		case d.burst >= 8*math.MaxUint32: // Go 1.26 compiles burst/8 >= MaxUint32 to false on s390x
			return invalidCapability("bandwidth",
				"%sBurst: %d bit is 4 GiB or more", d.name, d.burst)
		}
	}
	return nil
}

// multipliers are the suffixes of Kubernetes quantities that are meaningful for a rate.
var multipliers = []struct {
	suffix string
	factor int64
}{
	{"Ki", Kibit}, {"Mi", Mibit}, {"Gi", Gibit}, {"Ti", Tibit}, {"Pi", 1 << 50},
	{"k", Kbit}, {"M", Mbit}, {"G", Gbit}, {"T", Tbit}, {"P", 1000 * Tbit},
	{"", 1},
}

// ParseBitRate parses a rate as in the annotations kubernetes.io/ingress-bandwidth and
// kubernetes.io/egress-bandwidth: a Kubernetes quantity in bits per second, such as "10M", "1.5G",
// "500k", "1Mi" or "1000000". It accepts digits with at most one decimal point, followed by at most
// one of the suffixes k, M, G, T, P, Ki, Mi, Gi, Ti and Pi; it accepts neither sign nor exponent.
// Fractions of a bit are rounded up, as in Kubernetes. The code is [CodeInvalidConfig].
func ParseBitRate(s string) (BitRate, error) {
	for _, m := range multipliers {
		number, ok := strings.CutSuffix(s, m.suffix)
		if !ok {
			continue
		}
		if len(number) > 64 || strings.Trim(number, "0123456789.") != "" {
			break
		}
		r, ok := new(big.Rat).SetString(number)
		if !ok {
			break
		}
		r.Mul(r, new(big.Rat).SetInt64(m.factor))
		whole, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
		if rest.Sign() > 0 {
			whole.Add(whole, big.NewInt(1))
		}
		if !whole.IsUint64() {
			return 0, Errorf(CodeInvalidConfig, "rate %q is beyond 2^64 bit/s", s)
		}
		return BitRate(whole.Uint64()), nil
	}
	return 0, Errorf(CodeInvalidConfig, "rate %q is not a quantity", s).
		WithDetails(`rates are in bits per second, such as "10M", "1.5G", "500k" or "1000000"`)
}
