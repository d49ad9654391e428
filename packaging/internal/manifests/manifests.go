// Package manifests writes the manifests and the Helm chart of contrib/kubernetes for the image of
// one release. They need no other file of the release.
package manifests

import (
	"context"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/tenon-cni/tenon/packaging/internal/archive"
	"github.com/tenon-cni/tenon/packaging/internal/image"
	"github.com/tenon-cni/tenon/packaging/internal/release"
)

// chart is the directory of the Helm chart below the directory of the manifests.
const chart = "chart"

// Write writes tenon_VERSION_kubernetes.tar.gz, with one top directory, and returns its name.
func Write(_ context.Context, r *release.Release, _ []release.Target) (string, error) {
	files, err := read(r)
	if err != nil {
		return "", err
	}
	top := r.Name("kubernetes")
	return r.WriteTarGz(top+".tar.gz", top, files)
}

// WriteChart writes the chart as tenon-VERSION.tgz, the name that Helm expects, and returns the
// name.
func WriteChart(_ context.Context, r *release.Release, _ []release.Target) (string, error) {
	all, err := read(r)
	if err != nil {
		return "", err
	}
	var files []archive.File
	for _, f := range all {
		if name, ok := strings.CutPrefix(f.Path, chart+"/"); ok {
			f.Path = name
			files = append(files, f)
		}
	}
	return r.WriteTarGz("tenon-"+r.Version.String()+".tgz", "tenon", files)
}

// read returns all files with the version of the release.
func read(r *release.Release) (files []archive.File, err error) {
	root := filepath.Join(r.Root, "contrib", "kubernetes")
	version := r.Version.String()
	replace := strings.NewReplacer(
		image.Repository+":latest", image.Name(r),
		"# A release replaces both versions.\n", "",
		"version: 0.0.0-dev", "version: "+version,
		"appVersion: latest", "appVersion: "+version,
	)
	err = filepath.WalkDir(root, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		files = append(files, archive.File{
			Path: path.Clean(filepath.ToSlash(name)), Data: []byte(replace.Replace(string(content)))})
		return err
	})
	return files, err
}
