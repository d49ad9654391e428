package packet

import (
	"fmt"
	"slices"
	"testing"
)

// TestChoices goes through all combinations of choices of which the second depends on the first.
func TestChoices(t *testing.T) {
	t.Parallel()
	c := new(Choices)
	var got []string
	for {
		way := fmt.Sprint(c.choose(2))
		if way == "0" {
			before := c.Of()
			way += fmt.Sprint(c.choose(3))
			c.Rewind(before)
			if again := fmt.Sprint(c.choose(3)); way != "0"+again {
				t.Errorf("after %s, the second evaluation chose %s", way, again)
			}
		}
		got = append(got, way)
		if !c.Next() {
			break
		}
	}
	if want := []string{"00", "01", "02", "1"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
