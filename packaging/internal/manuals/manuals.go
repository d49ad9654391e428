// Package manuals generates the manual pages and shell completions of a release.
package manuals

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/tenon-cni/tenon/packaging/internal/archive"
	"github.com/tenon-cni/tenon/packaging/internal/build"
	"github.com/tenon-cni/tenon/packaging/internal/release"
)

// generators are the programs that have a generator of their pages, directory man.
func generators() []string { return []string{"tenon", "tenon-cluster"} }

// Write generates the pages in a directory. inherit is the environment of the caller. The paths of
// the files begin with share/man and share/completion.
func Write(ctx context.Context, r *release.Release, dir string, inherit []string,
) (files []archive.File, err error) {
	host := build.Options{
		Root: r.Root, Arch: build.Arch{Name: runtime.GOARCH}, Inherit: inherit}
	for _, generator := range generators() {
		_, err := r.Go.Command(ctx, host, host.Source(generator), "run", "-trimpath",
			"-buildvcs=false", "./man", "-out", dir, "-version", r.Version.String(),
			"-date", strconv.FormatInt(r.Time.Unix(), 10))
		if err != nil {
			return nil, fmt.Errorf("manual pages of %s: %w", generator, err)
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
