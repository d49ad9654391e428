//go:build image

package interop

import (
	"strings"
	"testing"
)

// TestImageOfRelease uses the image of a release as nodes of both processors do.
func TestImageOfRelease(t *testing.T) {
	t.Parallel()
	r := dist(t, "0.1.0", "amd64,arm64")
	t.Run("containerd", func(t *testing.T) {
		t.Parallel()
		testContainerd(t, r)
	})
	t.Run("arm64", func(t *testing.T) {
		t.Parallel()
		testArm64(t, r)
	})
}

// testContainerd imports the image into Debian's containerd, without a registry, and installs Tenon
// from a container with the privileges of the DaemonSet. A pod is reachable then. The removal leaves
// nothing.
func testContainerd(t *testing.T, r releaseFiles) {
	c := newContainerd(t)
	outside := c.Uplink()
	c.Host.Command("sysctl", "-qw", "net.ipv4.ip_forward=1") // stays set after the removal
	before := c.snapshot()
	c.networks(r)
	c.run("ctr", "--namespace", "k8s.io", "image", "import", "--snapshotter", "native", r.image)
	if out := c.container("--version"); !strings.Contains(out, "0.1.0") {
		t.Errorf("version %q, want 0.1.0", out)
	}
	if out := c.container("node", "install", "--config", source); !strings.Contains(out,
		"installed /etc/cni/net.d/10-tenon.conflist\nready\n") {
		t.Errorf("installation: %s", out)
	}
	c.await("network", c.ready)
	web := c.sandbox("web", 8080)
	greeted(t, outside, "192.0.2.1:8080", true)
	address, _ := c.addresses(web)
	c.run("ping", "-c", "1", "-W", "5", address[0])
	c.remove(web)
	c.container("node", "uninstall")
	c.unchanged(before)
	c.nothingKept()
	if left := c.run("find", "/opt", netDir, "/var/lib/cni", "-type", "f"); left != netDir+"/.keep\n" {
		t.Errorf("files left:\n%s", left)
	}
}

// container runs tenon in a container of the release's image and returns its output.
func (c *containerd) container(args ...string) string {
	c.t.Helper()
	command := []string{"ctr", "--namespace", "k8s.io", "run", "--rm", "--net-host",
		"--snapshotter", "native", "--cgroup", "/" + c.cgroup + "/tenon",
		"--cap-add", "CAP_NET_ADMIN", "--cap-add", "CAP_SYS_ADMIN"}
	for from, to := range map[string]string{plugins: plugins, netDir: "/etc/cni/net.d",
		"/var/lib/cni": "/var/lib/cni", source: source} {
		command = append(command, "--mount", "type=bind,src="+from+",dst="+to+",options=rbind:rw")
	}
	command = append(command, "ghcr.io/tenon-cni/tenon:0.1.0", "tenon", "/usr/local/bin/tenon")
	return c.run(append(command, args...)...)
}
