//go:build clients || image

package interop

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// releaseFiles has the files of a release that a node uses.
type releaseFiles struct {
	image     string            // path of the image
	manifests map[string]string // by path below contrib/kubernetes
}

// releasesDir names the variable with a directory in which dist keeps releases for later runs.
const releasesDir = "TENON_RELEASES"

// dist builds the image, for processors separated by commas, and the manifests of a release.
func dist(t *testing.T, version, processors string) (r releaseFiles) {
	t.Helper()
	dir := t.TempDir()
	if keep := os.Getenv(releasesDir); keep != "" {
		dir = filepath.Join(keep, version+"-"+processors)
	}
	r.image = filepath.Join(dir, "tenon_"+version+"_image.tar")
	if _, err := os.Stat(r.image); err != nil {
		buildRelease(t, "-out", dir, "-version", version, "-arch", processors)
	}
	r.manifests = readManifests(t, filepath.Join(dir, "tenon_"+version+"_kubernetes.tar.gz"))
	return r
}

func buildRelease(t *testing.T, args ...string) {
	t.Helper()
	build := exec.Command("go", append([]string{"run", "./dist", "-only", "image,kubernetes"},
		args...)...)
	build.Dir = "../../packaging"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
}

// readManifests returns the files of an archive, without their top directory.
func readManifests(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	plain, err := gzip.NewReader(f)
	must(t, err)
	files := map[string]string{}
	archived := tar.NewReader(plain)
	for {
		h, err := archived.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err)
		if h.Typeflag == tar.TypeDir {
			continue
		}
		content, err := io.ReadAll(archived)
		must(t, err)
		_, name, _ := strings.Cut(h.Name, "/")
		files[name] = string(content)
	}
}

// indented returns the block of lines that follow a line and are indented more than it, without
// the common indentation.
func indented(t *testing.T, text, line string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, line+"\n")
	if !ok {
		t.Fatalf("no line %q in\n%s", line, text)
	}
	depth := func(s string) int { return len(s) - len(strings.TrimLeft(s, " ")) }
	var block strings.Builder
	first := depth(rest)
	for line := range strings.Lines(rest) {
		if depth(line) < first {
			break
		}
		block.WriteString(line[first:])
	}
	return block.String()
}

// source is the directory of the configurations to install.
const source = "/run/networks"

// networks writes the network of the ConfigMap.
func (n *node) networks(r releaseFiles) {
	n.t.Helper()
	text, _, _ := strings.Cut(r.manifests["install/tenon.yaml"], "\n---\n")
	n.write(source+"/10-tenon.conflist", indented(n.t, text, "  10-tenon.conflist: |"))
}
