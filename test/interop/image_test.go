package interop

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
)

const (
	imageName = "interop.invalid/server:1"
	greeting  = "hello from the container"
)

// image makes an image that serves a greeting at port 80: an archive as docker save writes it, of one layer with a static
// busybox.
func image(t *testing.T) (path string) {
	t.Helper()
	testnet.Require(t, static("busybox"))
	path, err := exec.LookPath("busybox")
	must(t, err)
	busybox, err := os.ReadFile(path)
	must(t, err)
	layer := archive(t, map[string][]byte{"bin/busybox": busybox, "www/index.html": []byte(greeting)})
	config := encode(t, object{
		"architecture": "amd64", "os": "linux",
		"config": object{"Cmd": []string{"/bin/busybox", "httpd", "-f", "-p", "80", "-h", "/www"}},
		"rootfs": object{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	name := fmt.Sprintf("%x.json", sha256.Sum256(config))
	path = filepath.Join(t.TempDir(), "image.tar")
	must(t, os.WriteFile(path, archive(t, map[string][]byte{
		name: config, "layer.tar": layer,
		"manifest.json": encode(t, []object{{"Config": name, "RepoTags": []string{imageName}, "Layers": []string{"layer.tar"}}}),
	}), 0o600))
	return path
}

// static is the need for an executable that needs no libraries.
func static(name string) testnet.Need {
	return func() error {
		path, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		f, err := elf.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if f.Section(".interp") != nil {
			return fmt.Errorf("%s needs libraries, that of Debian's package %s-static does not", path, name)
		}
		return nil
	}
}

type object = map[string]any

func encode(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	must(t, err)
	return b
}

func archive(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, content := range files {
		must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}))
		_, err := w.Write(content)
		must(t, err)
	}
	must(t, w.Close())
	return out.Bytes()
}
