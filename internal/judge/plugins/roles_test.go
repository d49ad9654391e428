package plugins_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/plugins"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// shellPlugin writes a plugin in the language of the shell; text is the code of the verbs other than VERSION.
func shellPlugin(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "subject")
	text = "#!/bin/sh\ninput=$(cat)\nif [ $CNI_COMMAND = VERSION ]; then\n" +
		`echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}'; exit; fi` + "\n" +
		`fail() { echo '{"cniVersion":"1.0.0","code":'$1',"msg":"'"$2"'"}'; exit 1; }` + "\n" + text
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestDetect finds the roles of plugins with unknown names.
func TestDetect(t *testing.T) {
	t.Parallel()
	const create = `ip -n ${CNI_NETNS##*/} link add $CNI_IFNAME type bridge 2>/dev/null || fail 100 "name taken"; `
	for _, row := range []struct{ name, text, roles string }{
		{"creates an interface", create + `echo '{"cniVersion":"1.1.0","interfaces":[{"name":"eth0"}]}'`, "interface"},
		{"runs its IPAM plugin", `case $input in *conform-ipam*) printf %s "$input" | $CNI_PATH/conform-ipam;; *) fail 7 "no ipam";; esac`, "interface"},
		{"allocates addresses", `case $input in *'"subnet"'*) echo '{"cniVersion":"1.1.0","ips":[{"address":"10.1.1.1/24"}]}';; *) fail 7 "no subnet";; esac`, "ipam"},
		{"changes an interface", `case $input in *prevResult*) echo '{"cniVersion":"1.1.0","interfaces":[{"name":"eth0"}]}';; *) fail 7 "no prevResult";; esac`, "chained"},
		{"runs another plugin", `case $input in *conform-delegate*) printf %s "$input" | $CNI_PATH/conform-delegate;; *) fail 7 "no delegate";; esac`, "meta"},
		{"works with and without an earlier interface", `case $input in *prevResult*) ;; *) ` + create + `;; esac
echo '{"cniVersion":"1.1.0","interfaces":[{"name":"eth0"}]}'`, "interface chained"},
		{"needs what no probe knows", `fail 7 "key secret is missing"`, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, err := plugins.NewSubject(t.Context(), shellPlugin(t, row.text))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Detect(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			var roles []string
			for _, c := range s.Configs {
				roles = append(roles, string(c.Role))
			}
			if got := strings.Join(roles, " "); got != row.roles {
				t.Errorf("roles %q, want %q; %s", got, row.roles, s.Unknown)
			}
			if row.roles == "" && !strings.Contains(s.Unknown, "key secret is missing") {
				t.Errorf("the reason lacks the error of the plugin: %s", s.Unknown)
			}
		})
	}
}

// TestUnknownRole checks that nothing of a plugin without a known role passes or fails, and that an
// explicit role is judged.
func TestUnknownRole(t *testing.T) {
	t.Parallel()
	s, err := plugins.NewSubject(t.Context(), shellPlugin(t, `fail 7 "key secret is missing"`))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Detect(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	r, err := plugins.Judge(t.Context(), s, trial.Options{Only: []string{"ipam"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Checks) == 0 || len(r.Findings) > 0 {
		t.Errorf("checks %v, findings %v", r.Checks, r.Findings)
	}
	for _, c := range r.Checks {
		if c.Outcome != report.Skip || !strings.Contains(c.Reason, "--config") {
			t.Errorf("check %+v", c)
		}
	}
	if err := s.Detect(t.Context(), plugins.IPAM); err != nil {
		t.Fatal(err)
	}
	if len(s.Configs) != 1 || s.Configs[0].Role != plugins.IPAM {
		t.Errorf("configurations %+v", s.Configs)
	}
	if err := s.Detect(t.Context(), "bridge"); err == nil {
		t.Error("an unknown role is accepted")
	}
}
