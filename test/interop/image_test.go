package interop

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/testnet"
)

const (
	imageName = "interop.invalid/server:1"
	greeting  = "hello from the container"
)

// image writes an image that serves a greeting at port 80, in the format of docker save: one layer
// with a static busybox.
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

// static is the need for a statically linked binary.
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
			return fmt.Errorf("%s is linked dynamically; install Debian's package %s-static", path, name)
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

// greeted checks whether the server of the image answers at an address.
func greeted(t *testing.T, from *testnet.Namespace, address string, want bool) {
	t.Helper()
	var answer []byte
	var err error
	for range 50 { // the server may still be starting
		if answer, err = get(from, address); err == nil || !want {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if got := strings.Contains(string(answer), greeting); got != want {
		t.Errorf("%s to %s: %q (%v), want a greeting: %t", from.Name, address, answer, err, want)
	}
}

func get(from *testnet.Namespace, address string) (answer []byte, err error) {
	err = from.Run(func() error {
		c, err := net.DialTimeout("tcp", address, 500*time.Millisecond)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return err
		}
		if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
			return err
		}
		answer, err = io.ReadAll(c)
		return err
	})
	return answer, err
}
