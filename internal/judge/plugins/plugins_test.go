package plugins_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tenon-cni/tenon/internal/judge/cell"
	"github.com/tenon-cni/tenon/internal/judge/plugins"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

func TestMain(m *testing.M) {
	if os.Args[0] == cell.Name {
		os.Exit(cell.Main())
	}
	os.Exit(m.Run())
}

// TestSecondDel judges a plugin in the language of the shell, of which the second DEL fails.
func TestSecondDel(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once")
	const plugin = `#!/bin/sh
input=$(cat)
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}';;
ADD) ip -n ${CNI_NETNS##*/} link add eth0 type bridge; echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"'$CNI_NETNS'"}]}';;
DEL) ip -n ${CNI_NETNS##*/} link del eth0 || { echo '{"cniVersion":"1.0.0","code":100,"msg":"no such link"}'; exit 1; };;
esac
`
	if err := os.WriteFile(path, []byte(plugin), 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := plugins.NewSubject(t.Context(), path, plugins.Config{Role: plugins.Interface})
	if err != nil {
		t.Fatal(err)
	}
	r, err := plugins.Judge(t.Context(), s, trial.Options{Only: []string{"life"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Findings) != 1 || r.Findings[0].Row != "PL-DEL-02" {
		t.Errorf("%d findings; want one of PL-DEL-02", len(r.Findings))
		for _, f := range r.Findings {
			t.Errorf("%s", describe(f))
		}
	}
}
