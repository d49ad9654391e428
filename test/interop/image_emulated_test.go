//go:build image

package interop

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// onArm64 runs the programs of the image for arm64 under qemu: it installs on a node, upgrades a
// damaged plugin, and allocates an address with an installed one. qemu has neither the ioctl
// NS_GET_NSTYPE nor nfnetlink, so it runs no STATUS, which this version of CNI lacks, no plugin that
// creates an interface, and no removal.
const onArm64 = `
	for dir in /run /var/lib /opt; do mount -t tmpfs node $dir; done
	mkdir -p /opt/source /var/lib/cni
	cp "$0" /opt/source/10-pods.conflist
	for program in tenon-dhcp tenon-ovs tenon-cluster; do "$1/$program" --version; done
	node() { verb=$1; shift; "$image/tenon" node $verb --plugin-dir /opt/bin --net-dir /opt/net.d "$@"; }
	image=$1
	node install --config /opt/source
	cmp "$image/tenon" /opt/bin/host-local
	node status --config /opt/source
	ip netns add web
	export CNI_CONTAINERID=web CNI_IFNAME=eth0 CNI_NETNS=/run/netns/web CNI_PATH=/opt/bin
	for verb in ADD DEL; do
		CNI_COMMAND=$verb /opt/bin/host-local <<-END
			{"cniVersion": "1.1.0", "name": "pods", "type": "host-local",
			 "ipam": {"type": "host-local", "subnet": "10.9.0.0/24"}}
		END
	done
	ip netns del web
	echo damaged >/opt/bin/host-local.new
	mv /opt/bin/host-local.new /opt/bin/host-local
	if node status --config /opt/source; then exit 1; fi
	node install --config /opt/source
	cmp "$image/tenon" /opt/bin/host-local
	node status --config /opt/source
	ls -A /opt/bin /opt/net.d`

// testArm64 runs the image for arm64.
func testArm64(t *testing.T, r releaseFiles) {
	testnet.Require(t, testnet.Root, testnet.Tool("qemu-aarch64-static"))
	dir := t.TempDir()
	unpackImage(t, r.image, "arm64", dir)
	network := filepath.Join(dir, "pods.conflist")
	must(t, os.WriteFile(network, []byte(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [
		{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.9.0.0/24"}}]}`), 0o600))
	out, err := output(exec.Command("../../scripts/qemu-user", "arm64", "sh", "-ec", onArm64, network,
		filepath.Join(dir, "usr/local/bin")))
	must(t, err)
	for _, want := range []string{"tenon-dhcp version 0.1.0\n", "tenon-cluster version 0.1.0\n",
		"0 installed, 1 replaced, ", "ready\n", `"address":"10.9.0.2/24"`,
		"\nhost-local\nhost-local.before-tenon\n", ":\n.tenon-node\n10-pods.conflist\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// descriptors is an index or a manifest of an OCI image layout.
type descriptors struct {
	Manifests, Layers []struct {
		Digest   string
		Platform struct{ Architecture string }
	}
}

// unpackImage writes the files of the image for a processor into a directory.
func unpackImage(t *testing.T, path, processor, dir string) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	files := untar(t, f)
	read := func(name string) (d descriptors) {
		must(t, json.Unmarshal(files[name], &d))
		return d
	}
	blob := func(digest string) string { return "blobs/" + strings.Replace(digest, ":", "/", 1) }
	for _, m := range read(blob(read("index.json").Manifests[0].Digest)).Manifests {
		if m.Platform.Architecture != processor {
			continue
		}
		for _, l := range read(blob(m.Digest)).Layers {
			plain, err := gzip.NewReader(bytes.NewReader(files[blob(l.Digest)]))
			must(t, err)
			for name, content := range untar(t, plain) {
				name = filepath.Join(dir, name)
				must(t, errors.Join(os.MkdirAll(filepath.Dir(name), 0o755),
					os.WriteFile(name, content, 0o755)))
			}
		}
		return
	}
	t.Fatalf("no image for %s in %s", processor, path)
}

// untar returns the files of an archive.
func untar(t *testing.T, from io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	archived := tar.NewReader(from)
	for {
		h, err := archived.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err)
		if h.Typeflag != tar.TypeReg {
			continue
		}
		files[h.Name], err = io.ReadAll(archived)
		must(t, err)
	}
}
