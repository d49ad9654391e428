// Package tarball writes the tar archive of a release for one processor, and the install script.
package tarball

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/tenon-cni/tenon/packaging/internal/archive"
	"github.com/tenon-cni/tenon/packaging/internal/release"
)

// script is the name of the install script, also in archives.
const script = "install.sh"

// Write writes tenon_VERSION_linux_ARCH.tar.gz, with one top directory, and returns its name.
func Write(_ context.Context, r *release.Release, t release.Target) (string, error) {
	top := r.Name("linux_" + t.Arch.Name)
	files := append(slices.Clone(t.Files),
		archive.File{Path: script, Mode: 0o755, Source: scriptSource(r)})
	return r.WriteTarGz(top+".tar.gz", top, files)
}

// WriteScript writes the install script, which downloads an archive, and returns its name.
func WriteScript(_ context.Context, r *release.Release, _ []release.Target) (string, error) {
	content, err := os.ReadFile(scriptSource(r))
	if err != nil {
		return "", err
	}
	return r.Write(script, content)
}

func scriptSource(r *release.Release) string {
	return filepath.Join(r.Root, "packaging", script)
}
