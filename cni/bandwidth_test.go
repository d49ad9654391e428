package cni_test

import (
	"fmt"
	"testing"

	"github.com/tenon-cni/tenon/cni"
)

var quantities = []struct {
	text string
	want cni.BitRate
}{
	{"10M", 10 * cni.Mbit},
	{"1G", cni.Gbit},
	{"500k", 500 * cni.Kbit},
	{"1Mi", cni.Mibit},
	{"2Ki", 2 * cni.Kibit},
	{"1.5G", 1_500 * cni.Mbit},
	{"0.5Ti", cni.Tibit / 2},
	{"1P", 1_000 * cni.Tbit},
	{"1Pi", 1_024 * cni.Tibit},
	{"1000000", cni.Mbit},
	{"0", 0},
	{"1.0001k", 1_001}, // rounded up
	{"0.1", 1},
	{"18446744073709551615", 1<<64 - 1},
}

func TestParseBitRate(t *testing.T) {
	t.Parallel()
	for _, row := range quantities {
		if got, err := cni.ParseBitRate(row.text); err != nil || got != row.want {
			t.Errorf("%q: %d, %v, want %d", row.text, got, err, row.want)
		}
	}
	for _, text := range []string{
		"", "M", ".", "1..2", "-1", "+1", "10 M", "10Mbit", "10K", "10m", "1e6", "1/2", "0x10",
		"1_000", "Inf", "NaN",
		"18446744073709551616", "18447P",
	} {
		if got, err := cni.ParseBitRate(text); cni.CodeOf(err) != cni.CodeInvalidConfig {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}

// FuzzParseBitRate checks that an accepted rate equals its plain digits, and is larger with a
// suffix.
func FuzzParseBitRate(f *testing.F) {
	for _, row := range quantities {
		f.Add(row.text)
	}
	f.Fuzz(func(t *testing.T, s string) {
		rate, err := cni.ParseBitRate(s)
		if err != nil {
			return
		}
		if again, err := cni.ParseBitRate(fmt.Sprint(uint64(rate))); err != nil || again != rate {
			t.Errorf("%q is %d, which is %d, %v", s, rate, again, err)
		}
		if larger, err := cni.ParseBitRate(s + "k"); err == nil && larger < rate {
			t.Errorf("%q is %d, with k %d", s, rate, larger)
		}
	})
}
