package all_test

import (
	"fmt"
	"testing"

	"github.com/tenon-cni/tenon/internal/trace"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

// TestTracedKeys checks that traces do not mask the values of keys of Tenon's plugins.
func TestTracedKeys(t *testing.T) {
	t.Parallel()
	const value = "value of the key"
	var check func(typ string, s *plugin.Schema)
	check = func(typ string, s *plugin.Schema) {
		if s == nil {
			return
		}
		for key, property := range s.Properties {
			if masked := trace.Secrets(fmt.Appendf(nil, "{%q: %q}", key, value), ""); len(masked) > 0 {
				t.Errorf("%s: %q is unknown to package trace", typ, key)
			}
			check(typ, property)
		}
		check(typ, s.Items)
		check(typ, s.Additional)
	}
	for _, d := range all.Plugins {
		check(d.Name, d.Schema())
	}
	if masked := trace.Secrets(fmt.Appendf(nil, `{"password": %q}`, value), ""); len(masked) != 1 {
		t.Error("a password is not masked")
	}
}
