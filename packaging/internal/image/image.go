// Package image writes the container image of a release as an OCI image layout in a tar archive.
// The image has the programs and their licences, and nothing else. It needs no registry and no
// daemon.
package image

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/tenon-cni/tenon/packaging/internal/archive"
	"github.com/tenon-cni/tenon/packaging/internal/modules"
	"github.com/tenon-cni/tenon/packaging/internal/release"
)

// Repository is the name of the image, without a tag.
const Repository = "ghcr.io/tenon-cni/tenon"

// bin is the directory of the programs in the image.
const bin = "usr/local/bin"

// platforms are the processors of the image, in Go's terms, with the variant that OCI names.
var platforms = map[string]string{"amd64": "", "arm64": "v8"}

// Name returns the name of the image of a release, with its tag.
func Name(r *release.Release) string { return Repository + ":" + r.Version.String() }

// Write writes tenon_VERSION_image.tar with an image for amd64 and arm64, as far as targets have
// them, and returns its name. It returns "" and writes nothing if targets have neither.
func Write(_ context.Context, r *release.Release, targets []release.Target) (string, error) {
	images := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	found := false
	for _, t := range targets {
		variant, ok := platforms[t.Arch.Name]
		if !ok {
			continue
		}
		found = true
		platform := v1.Platform{OS: "linux", Architecture: t.Arch.Name, Variant: variant}
		img, err := build(r, t, platform)
		if err != nil {
			return "", fmt.Errorf("%s: %w", t.Arch.Name, err)
		}
		images = mutate.AppendManifests(images, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	if !found {
		return "", nil
	}
	images = mutate.Annotations(images, labels(r)).(v1.ImageIndex)
	return write(r, images)
}

// build returns the image for one processor.
func build(r *release.Release, t release.Target, platform v1.Platform) (v1.Image, error) {
	layer, err := layerOf(r, t)
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(
		mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	created := v1.Time{Time: r.Time.UTC()}
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Variant: platform.Variant,
		Created: created, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{"/" + bin + "/tenon"},
			Env:        []string{"PATH=/" + bin},
			Labels:     labels(r),
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(img, mutate.Addendum{Layer: layer,
		History: v1.History{Created: created, CreatedBy: "github.com/tenon-cni/tenon/packaging"}})
}

// labels are the labels of the image for one processor and the annotations of the whole.
func labels(r *release.Release) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title":       "Tenon",
		prefix + "description": "CNI plugins and their daemons",
		prefix + "source":      modules.Home,
		prefix + "licenses":    "Apache-2.0",
		prefix + "version":     r.Version.String(),
		prefix + "revision":    r.Commit,
		prefix + "created":     r.Time.UTC().Format("2006-01-02T15:04:05Z"),
	}
}

// layerOf returns the only layer: the programs and the licences.
func layerOf(r *release.Release, t release.Target) (v1.Layer, error) {
	var files []archive.File
	for _, f := range t.Files {
		switch {
		case path.Dir(f.Path) == "bin":
			f.Path = path.Join(bin, path.Base(f.Path))
		case strings.Contains(f.Path, "LICENSE"):
			f.Path = path.Join("usr/share/doc/tenon", f.Path)
		default:
			continue
		}
		files = append(files, f)
	}
	var compressed bytes.Buffer
	if err := archive.WriteTarGz(&compressed, "", r.Time, files); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(compressed.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// write writes the archive. The descriptor in it names the image for tools that import it.
func write(r *release.Release, images v1.ImageIndex) (string, error) {
	dir, err := os.MkdirTemp("", "tenon-image-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }() // its content is in the archive
	top := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
		mutate.IndexAddendum{Add: images, Descriptor: v1.Descriptor{Annotations: map[string]string{
			"io.containerd.image.name":          Name(r),
			"org.opencontainers.image.ref.name": r.Version.String(),
		}}})
	if _, err := layout.Write(dir, top); err != nil {
		return "", err
	}
	var files []archive.File
	err = filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, file)
		files = append(files, archive.File{Path: filepath.ToSlash(relative), Source: file})
		return err
	})
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := archive.WriteTar(&b, "", r.Time, files); err != nil {
		return "", err
	}
	return r.Write(r.Name("image.tar"), b.Bytes())
}
