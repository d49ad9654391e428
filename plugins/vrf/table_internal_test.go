package vrf

import (
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel"
)

// TestFreeTable: the result is the lowest table that no VRF has, except for the kernel's own.
func TestFreeTable(t *testing.T) {
	t.Parallel()
	upTo := func(last int) []int {
		var list []int
		for n := 1; n <= last; n++ {
			list = append(list, n)
		}
		return list
	}
	for _, row := range []struct {
		name   string
		tables []int // 0 is a link that is no VRF
		want   uint32
	}{
		{"a gap", []int{1, 2, 3, 5}, 4},
		{"other links", []int{1, 0, 2, 0}, 3},
		{"none", nil, 1},
		{"many", upTo(999), 1000},
		{"default, main and local", upTo(252), 256},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var links []kernel.Link
			for _, table := range row.tables {
				links = append(links, kernel.Link{VRFTable: table})
			}
			if got := freeTable(links); got != row.want {
				t.Errorf("%d, want %d", got, row.want)
			}
		})
	}
}
