package dhcp

import (
	"slices"
	"testing"
)

// TestLongFlags checks that flags may have one dash or two, as for the upstream plugin.
func TestLongFlags(t *testing.T) {
	t.Parallel()
	got := LongFlags([]string{"-socketpath", "/a-b", "--debug", "-h", "-timeout=1s", "-"})
	if want := []string{"--socketpath", "/a-b", "--debug", "-h", "--timeout=1s",
		"-"}; !slices.Equal(got, want) {
		t.Errorf("got %q, expected %q", got, want)
	}
}
