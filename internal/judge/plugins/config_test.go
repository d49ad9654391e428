package plugins_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/plugins"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// TestDaemon judges STATUS of plugins that need a daemon, while it runs and while it does not.
func TestDaemon(t *testing.T) {
	t.Parallel()
	config := plugins.Config{Role: plugins.IPAM, Programs: []string{"helper", "nonesuch"},
		Daemon: "$(dirname $plugin)/helper /run/daemon", Ready: "test -e /run/daemon"}
	const add = `needs() { [ -e /run/daemon ] || fail "$1" "no daemon"; }
if [ $CNI_COMMAND = ADD ]; then needs 11; echo '{"cniVersion":"1.1.0","ips":[{"address":"10.1.1.1/24"}]}'; fi
`
	for _, row := range []struct {
		name, text string
		want       []string
	}{
		{"code 50", add + "[ $CNI_COMMAND != STATUS ] || needs 50", nil},
		{"code 51", add + "[ $CNI_COMMAND != STATUS ] || needs 51", nil},
		{"another code", add + "[ $CNI_COMMAND != STATUS ] || needs 7", []string{"PL-STA-02"}},
		{"success", add, []string{"PL-STA-03"}},
		{"no need for the daemon", strings.Replace(add, "needs 11", ":", 1), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			path := shellPlugin(t, row.text)
			helper := filepath.Join(filepath.Dir(path), "helper")
			if err := os.WriteFile(helper, []byte("#!/bin/sh\n: >$1\nexec sleep 1000\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			s, err := plugins.NewSubject(t.Context(), path, config)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Configs[0].Programs; !slices.Equal(got, []string{helper}) {
				t.Errorf("programs %v, want the program beside the plugin", got)
			}
			r, err := plugins.Judge(t.Context(), s, trial.Options{Only: []string{"status-daemon"}})
			if err != nil {
				t.Fatal(err)
			}
			var rows []string
			for _, f := range r.Findings {
				if f.Row != "ERR-02" { // cniVersion of a plugin with one error object for all versions
					rows = append(rows, f.Row)
				}
			}
			if !slices.Equal(rows, row.want) {
				t.Errorf("findings %v, want %v", rows, row.want)
			}
			for _, c := range r.Checks {
				if c.Outcome == report.Skip || c.Outcome == report.Error {
					t.Errorf("%s: %s: %s", c.Row, c.Outcome, c.Reason)
				}
			}
		})
	}
}

// TestDaemonFails skips the checks of a plugin of which the daemon does not start, and says why.
func TestDaemonFails(t *testing.T) {
	t.Parallel()
	config := plugins.Config{Role: plugins.IPAM, Daemon: "echo no license >&2; exit 1", Ready: "false"}
	s, err := plugins.NewSubject(t.Context(), shellPlugin(t, ""), config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := plugins.Judge(t.Context(), s, trial.Options{Only: []string{"life"}})
	if err != nil {
		t.Fatal(err)
	}
	skipped := 0
	for _, c := range r.Checks {
		if c.Outcome == report.NotApplicable {
			continue
		}
		skipped++
		if c.Outcome != report.Skip || !strings.Contains(c.Reason, "daemon does not start") ||
			!strings.Contains(c.Reason, "no license") {
			t.Errorf("%s: %s: %s", c.Row, c.Outcome, c.Reason)
		}
	}
	if skipped == 0 {
		t.Error("no check was skipped")
	}
}
