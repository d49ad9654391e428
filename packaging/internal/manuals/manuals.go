// Package manuals generates the manual pages and shell completions of a release.
package manuals

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/tenon-cni/tenon/packaging/internal/archive"
	"github.com/tenon-cni/tenon/packaging/internal/build"
	"github.com/tenon-cni/tenon/packaging/internal/release"
)

// generators are the programs that write the pages, in the modules of the commands.
func generators() []string { return []string{"cmd/tenon", "cmd/tenon-cluster"} }

// Write generates the pages in a directory. inherit is the environment of the caller. The paths of
// the files begin with share/man and share/completion.
func Write(ctx context.Context, r *release.Release, dir string, inherit []string,
) (files []archive.File, err error) {
	host := build.Options{Arch: build.Arch{Name: runtime.GOARCH}, Inherit: inherit}
	for _, generator := range generators() {
		cmd := exec.CommandContext(ctx, "go", "run", "-trimpath", "-buildvcs=false", "./man",
			"-out", dir, "-version", r.Version.String(), "-date", strconv.FormatInt(r.Time.Unix(), 10))
		cmd.Dir = filepath.Join(r.Root, generator)
		cmd.Env = r.Go.Environ(host)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("manual pages of %s: %w\n%s", generator, err, bytes.TrimSpace(out))
		}
	}
	tree := os.DirFS(dir)
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, archive.File{
				Path: path.Join("share", name), Source: filepath.Join(dir, name)})
		}
		return err
	})
	return files, err
}
