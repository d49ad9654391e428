package manifests_test

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/packaging/internal/manifests"
	"github.com/tenon-cni/tenon/packaging/internal/release"
	"github.com/tenon-cni/tenon/packaging/internal/version"
)

type writer func(context.Context, *release.Release, []release.Target) (string, error)

// contents runs a writer for version 1.2.3 and returns the files of its archive.
func contents(t *testing.T, write writer, wantName string) map[string]string {
	t.Helper()
	r := &release.Release{Version: version.Version{Major: 1, Minor: 2, Patch: 3}, Root: "../../..",
		Out: t.TempDir(), Time: time.Unix(1e9, 0)}
	name, err := write(t.Context(), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if name != wantName {
		t.Errorf("wrote %s, expected %s", name, wantName)
	}
	f, err := os.Open(filepath.Join(r.Out, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	archived := tar.NewReader(plain)
	for {
		h, err := archived.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archived)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(content)
	}
}

// TestWrite: every manifest names the image of the release.
func TestWrite(t *testing.T) {
	t.Parallel()
	files := contents(t, manifests.Write, "tenon_1.2.3_kubernetes.tar.gz")
	for _, name := range []string{"install/tenon.yaml", "uninstall/tenon-uninstall.yaml",
		"dhcp/tenon-dhcp.yaml", "cluster/tenon-cluster.yaml"} {
		text := files["tenon_1.2.3_kubernetes/"+name]
		if !strings.Contains(text, "image: ghcr.io/tenon-cni/tenon:1.2.3\n") {
			t.Errorf("%s does not name the image of the release:\n%s", name, text)
		}
	}
	for name, text := range files {
		if strings.Contains(text, "latest") {
			t.Errorf("%s contains \"latest\"", name)
		}
	}
}

// TestWriteChart: the chart has the version of the release, and of the image.
func TestWriteChart(t *testing.T) {
	t.Parallel()
	files := contents(t, manifests.WriteChart, "tenon-1.2.3.tgz")
	text := files["tenon/Chart.yaml"]
	for _, line := range []string{"version: 1.2.3", "appVersion: 1.2.3"} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
	for _, name := range []string{"tenon/values.yaml", "tenon/values.schema.json",
		"tenon/templates/tenon.yaml"} {
		if files[name] == "" {
			t.Errorf("no file %s", name)
		}
	}
}
