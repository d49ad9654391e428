package packages

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/goreleaser/nfpm/v2"
)

// TestStageScripts: a package must not depend on when its scripts were checked out.
func TestStageScripts(t *testing.T) {
	t.Parallel()
	dir, source := t.TempDir(), filepath.Join(t.TempDir(), "post-install")
	if err := os.WriteFile(source, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	info, at := &nfpm.Info{}, time.Unix(1700000000, 0)
	info.Scripts.PostInstall, info.APK.Scripts.PostUpgrade = source, source
	if err := stageScripts(dir, at, info); err != nil {
		t.Fatal(err)
	}
	for _, copied := range []string{info.Scripts.PostInstall, info.APK.Scripts.PostUpgrade} {
		stat, err := os.Stat(copied)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Dir(copied) != dir || !stat.ModTime().Equal(at) || stat.Size() != 10 {
			t.Errorf("%s: %v, %d bytes", copied, stat.ModTime(), stat.Size())
		}
	}
	if info.Scripts.PreRemove != "" {
		t.Errorf("copied a script that the package lacks: %s", info.Scripts.PreRemove)
	}
	info.Scripts.PreRemove = filepath.Join(dir, "missing")
	if err := stageScripts(dir, at, info); err == nil {
		t.Error("a missing script was accepted")
	}
}
