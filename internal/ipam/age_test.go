package ipam_test

import (
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/ipam"
)

func TestFormatAge(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Hour:             "0s",
		0:                      "0s",
		119 * time.Second:      "119s",
		2 * time.Minute:        "2m",
		119*time.Minute + 1:    "119m",
		47 * time.Hour:         "47h",
		400*24*time.Hour + 100: "400d",
	} {
		if got := ipam.FormatAge(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}
