package plan

import (
	"testing"

	"github.com/tenon-cni/tenon/internal/host"
)

// Repair restores what firewalld has only for attachments with the plugin firewall.
func TestNoteOnFirewalld(t *testing.T) {
	for _, row := range []struct {
		name, plugin, config string
		notes                int
	}{
		{"no firewall in the chain", "bridge", `{}`, 0},
		{"another backend", "firewall", `{"backend": "nftables"}`, 0},
		{"backend chosen by the plugin", "firewall", `{}`, 1},
		{"backend named", "firewall", `{"backend": "firewalld"}`, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			asks := AsksFirewalld(row.plugin, []byte(row.config))
			same := &host.Host{}
			p := New(About{Command: "repair", AsksFirewalld: asks},
				&Outcome{Before: same, After: same, firewalld: true})
			if len(p.Notes) != row.notes {
				t.Errorf("notes %q, want %d", p.Notes, row.notes)
			}
		})
	}
}
