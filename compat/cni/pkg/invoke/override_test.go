package invoke

import (
	"slices"
	"testing"
)

// The last value of a variable remains, and entries without "=" stay.
func TestOverride(t *testing.T) {
	t.Parallel()
	got := override([]string{"A=1", "odd", "", "B=1", "=C:=C:\\x", "A=2", "=D:=D:\\x", "odd"},
		[]string{"B=2", "C=3"})
	want := []string{"odd", "", "=C:=C:\\x", "A=2", "=D:=D:\\x", "odd", "B=2", "C=3"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
