// Package tarball writes the tar archive of a release for one processor.
package tarball

import (
	"bytes"
	"context"
	"os"
	"path/filepath"

	"github.com/tenon-cni/tenon/packaging/internal/archive"
	"github.com/tenon-cni/tenon/packaging/internal/release"
)

// Write writes tenon_VERSION_linux_ARCH.tar.gz, with one top directory, and returns its name.
func Write(_ context.Context, r *release.Release, t release.Target) (string, error) {
	top := r.Name("linux_" + t.Arch.Name)
	var b bytes.Buffer
	if err := archive.WriteTarGz(&b, top, r.Time, t.Files); err != nil {
		return "", err
	}
	name := top + ".tar.gz"
	return name, os.WriteFile(filepath.Join(r.Out, name), b.Bytes(), 0o644)
}
