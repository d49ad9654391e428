package plugins

import "testing"

// TestRegressions finds names of cases and well-known plugins that do not exist.
func TestRegressions(t *testing.T) {
	t.Parallel()
	for name, list := range regressions() {
		if !Knows(name) {
			t.Errorf("no case %s", name)
		}
		for _, r := range list {
			for _, like := range r.like {
				if WellKnown(like) == nil {
					t.Errorf("%s: no well-known plugin %s", r.row, like)
				}
			}
		}
	}
	for _, c := range cases() {
		for _, like := range c.Like {
			if WellKnown(like) == nil {
				t.Errorf("%s: no well-known plugin %s", c.Name, like)
			}
		}
	}
}
