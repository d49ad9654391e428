package image_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/tenon-cni/tenon/packaging/internal/archive"
	"github.com/tenon-cni/tenon/packaging/internal/build"
	"github.com/tenon-cni/tenon/packaging/internal/image"
	"github.com/tenon-cni/tenon/packaging/internal/release"
	"github.com/tenon-cni/tenon/packaging/internal/version"
)

func newRelease(t *testing.T) *release.Release {
	t.Helper()
	v, err := version.Parse("1.2.3-rc.1")
	if err != nil {
		t.Fatal(err)
	}
	return &release.Release{Version: v, Commit: "c0ffee", Out: t.TempDir(),
		Time: time.Date(2026, 11, 23, 15, 0, 0, 0, time.FixedZone("other", 3600))}
}

// targets returns the parts of a release for processors, with programs that contain only their
// name.
func targets(t *testing.T, names ...string) (list []release.Target) {
	t.Helper()
	for _, name := range names {
		arch, err := build.FindArch(name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, release.Target{Arch: arch, Files: []archive.File{
			{Path: "bin/tenon", Mode: 0o755, Data: []byte("tenon for " + name)},
			{Path: "bin/tenon-dhcp", Mode: 0o755, Data: []byte("tenon-dhcp for " + name)},
			{Path: "LICENSE", Data: []byte("Apache-2.0")},
			{Path: "THIRD-PARTY-LICENSES", Data: []byte("others")},
			{Path: "README.md", Data: []byte("no part of the image")},
			{Path: "lib/systemd/system/tenon.service", Data: []byte("no part of the image")},
		}})
	}
	return list
}

func write(t *testing.T, processors ...string) (name string, content []byte) {
	t.Helper()
	r := newRelease(t)
	name, err := image.Write(t.Context(), r, targets(t, processors...))
	if err != nil {
		t.Fatal(err)
	}
	if name == "" {
		return "", nil
	}
	content, err = os.ReadFile(filepath.Join(r.Out, name))
	if err != nil {
		t.Fatal(err)
	}
	return name, content
}

// TestImage reads the archive as an OCI image layout, validates all digests and media types, and
// compares the content for both processors.
func TestImage(t *testing.T) {
	t.Parallel()
	name, content := write(t, "amd64", "arm64", "s390x")
	if want := "tenon_1.2.3-rc.1_image.tar"; name != want {
		t.Errorf("wrote %s, expected %s", name, want)
	}
	if _, again := write(t, "amd64", "arm64", "s390x"); !bytes.Equal(content, again) {
		t.Error("two archives differ")
	}
	dir := t.TempDir()
	unpack(t, bytes.NewReader(content), dir)
	top, err := layout.ImageIndexFromPath(dir)
	if err == nil {
		err = validate.Index(top)
	}
	if err != nil {
		t.Fatal(err)
	}
	list, err := top.IndexManifest()
	if err != nil || len(list.Manifests) != 1 {
		t.Fatalf("%v, %+v", err, list)
	}
	named := list.Manifests[0]
	if got := named.Annotations["io.containerd.image.name"]; got != "ghcr.io/tenon-cni/tenon:1.2.3-rc.1" {
		t.Errorf("the name is %q", got)
	}
	images, err := top.ImageIndex(named.Digest)
	if err != nil {
		t.Fatal(err)
	}
	platforms, err := images.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range platforms.Manifests {
		found = append(found, m.Platform.String())
		img, err := images.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, img, m.Platform.Architecture)
	}
	if want := []string{"linux/amd64", "linux/arm64/v8"}; !slices.Equal(found, want) {
		t.Errorf("platforms %q, expected %q", found, want)
	}
}

func checkImage(t *testing.T, img v1.Image, processor string) {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != processor || config.OS != "linux" ||
		!slices.Equal(config.Config.Entrypoint, []string{"/usr/local/bin/tenon"}) ||
		config.Config.Labels["org.opencontainers.image.revision"] != "c0ffee" ||
		config.Config.Labels["org.opencontainers.image.created"] != "2026-11-23T14:00:00Z" {
		t.Errorf("configuration for %s: %+v", processor, config)
	}
	files := mutate.Extract(img)
	defer files.Close()
	dir := t.TempDir()
	names := unpack(t, files, dir)
	if want := []string{"usr/local/bin/tenon", "usr/local/bin/tenon-dhcp",
		"usr/share/doc/tenon/LICENSE", "usr/share/doc/tenon/THIRD-PARTY-LICENSES",
	}; !slices.Equal(names, want) {
		t.Errorf("files %q, expected %q", names, want)
	}
	program := filepath.Join(dir, "usr/local/bin/tenon")
	content, err := os.ReadFile(program)
	if err != nil || string(content) != "tenon for "+processor {
		t.Errorf("program for %s: %q, %v", processor, content, err)
	}
	if info, err := os.Stat(program); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestImageOfOtherProcessors writes nothing, because no cluster could run the image.
func TestImageOfOtherProcessors(t *testing.T) {
	t.Parallel()
	if name, _ := write(t, "s390x", "riscv64"); name != "" {
		t.Errorf("wrote %s", name)
	}
}

// unpack returns the names of the files, sorted, without directories.
func unpack(t *testing.T, from io.Reader, dir string) (names []string) {
	t.Helper()
	archived := tar.NewReader(from)
	for {
		h, err := archived.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			continue
		}
		content, err := io.ReadAll(archived)
		if err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, content, h.FileInfo().Mode())); err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}
