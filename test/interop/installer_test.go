//go:build clients

package interop

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

const installerPod = manifests + "/tenon.yaml"

// installer makes kubelet run the pod of a DaemonSet. A kubelet without an API server knows no
// ConfigMap, and the configuration directory of the node is not /etc/cni/net.d.
func (c *containerd) installer(r releaseFiles, manifest string) {
	c.t.Helper()
	c.networks(r)
	pod := indented(c.t, r.manifests[manifest], "  template:")
	pod = strings.NewReplacer(
		"metadata:\n", "metadata:\n  name: tenon\n  namespace: kube-system\n",
		"configMap: {name: tenon-networks}", "hostPath: {path: "+source+", type: Directory}",
		"hostPath: {path: /etc/cni/net.d,", "hostPath: {path: "+netDir+",",
	).Replace(pod)
	c.write(installerPod, "apiVersion: v1\nkind: Pod\n"+pod)
}

// tenon runs a command in the running container of the installer.
func (c *containerd) tenon(args ...string) (string, error) {
	c.t.Helper()
	list, _ := c.must("ListContainers", object{"filter": object{
		"state": object{"state": "CONTAINER_RUNNING"}, "label_selector": object{
			"io.kubernetes.container.name": "tenon"}}})["containers"].([]any)
	if len(list) != 1 {
		return "", fmt.Errorf("%d containers run, want 1", len(list))
	}
	id := list[0].(object)["id"].(string)
	return c.try(append([]string{"ctr", "--namespace", "k8s.io", "task", "exec",
		"--exec-id", fmt.Sprint("test", time.Now().UnixNano()), id, "/usr/local/bin/tenon"}, args...)...)
}

// inventory lists the files of other programs, and of Tenon, in the directories that both use: path,
// kind, mode, owner, target of a link, and digest.
func (c *containerd) inventory() string {
	c.t.Helper()
	return c.run("sh", "-c", `find "$@" ! -type d -printf '%p %y %m %U:%G %l\n' 2>/dev/null | sort
		find "$@" -type f -exec sha256sum {} + 2>/dev/null | sort`,
		"inventory", "/opt", netDir, "/var/lib/cni", "/run/cni", "/run/tenon")
}

// serve runs a registry on the node and pushes the image of a release to it. It returns the
// manifests with the address of the registry.
func (c *containerd) serve(r releaseFiles, version string) releaseFiles {
	c.t.Helper()
	const address = "127.0.0.1:5000"
	c.run("sh", "-c", `crane registry serve --address $0 >/run/registry.log 2>&1 &`, address)
	c.run("sh", "-c", `mkdir /run/layout; tar -x -C /run/layout -f "$0"`, r.image)
	name := address + "/tenon:" + version
	c.await("registry", func() error {
		_, err := c.try("crane", "push", "--index", "/run/layout", name)
		return err
	})
	served := releaseFiles{image: r.image, manifests: map[string]string{}}
	for path, text := range r.manifests {
		served.manifests[path] = strings.ReplaceAll(text, "ghcr.io/tenon-cni/tenon:"+version, name)
	}
	return served
}

// attachLoop calls ADD and DEL of installed plugins until a file disappears, and fails with the
// first call that fails. It prints the number of ADDs.
const attachLoop = `
	n=0
	export CNI_CONTAINERID=loop CNI_IFNAME=eth0 CNI_NETNS=/run/loop CNI_PATH=/opt/cni/bin
	touch $CNI_NETNS
	unshare --net=$CNI_NETNS true
	while [ -e "$0" ]; do
		for verb in ADD DEL; do
			CNI_COMMAND=$verb /opt/cni/bin/bridge >/run/answer <<-END || { cat /run/answer >&2; exit 1; }
				{"cniVersion": "1.0.0", "name": "loop", "type": "bridge", "bridge": "loop0", "isGateway": true,
				 "ipam": {"type": "host-local", "subnet": "10.99.0.0/24"}}
			END
		done
		n=$((n + 1))
	done
	ip link delete loop0
	umount $CNI_NETNS
	rm -r /var/lib/cni/networks/loop
	echo $n`

// attaching runs attachLoop until the returned function is called.
func (c *containerd) attaching() (stop func()) {
	c.t.Helper()
	const file = "/run/attaching"
	c.write(file, "")
	ended := make(chan error, 1)
	var out string
	go func() {
		var err error
		out, err = c.try("sh", "-ec", attachLoop, file)
		ended <- err
	}()
	return func() {
		c.t.Helper()
		c.run("rm", file)
		must(c.t, <-ended)
		if c.t.Logf("%s attachments during the upgrade", strings.TrimSpace(out)); out == "0\n" {
			c.t.Error("no attachment during the upgrade")
		}
	}
}

// logged returns the log of the installer.
func (c *containerd) logged() string {
	out, _ := c.try("sh", "-c", "cat "+podLogs+"/kube-system_tenon-*/*/*.log")
	return out
}

// changed returns the time of the last change of a file's name or content.
func (c *containerd) changed(path string) time.Time {
	c.t.Helper()
	info, err := os.Lstat(c.path(path))
	must(c.t, err)
	ctim := info.Sys().(*syscall.Stat_t).Ctim
	return time.Unix(ctim.Unix())
}

// TestClientsInstaller imports the image of a release offline and runs the pod of its DaemonSet:
// the plugins appear, then the configuration, and the node gets ready. A pod that runs meanwhile
// survives an upgrade to an image from a registry. The pod of the other DaemonSet waits for the end
// of that pod and then leaves the files, links and rules that were there before.
func TestClientsInstaller(t *testing.T) {
	t.Parallel()
	first, second := dist(t, "0.1.0", runtime.GOARCH), dist(t, "0.2.0", runtime.GOARCH)
	c := newClients(t)
	outside := c.Uplink()
	c.Host.Command("sysctl", "-qw", "net.ipv4.ip_forward=1") // stays set after the removal
	c.run("sh", "-c", `cd "$0"; echo other >bridge; chmod 751 bridge; chown 1234:4321 bridge; ln -s /missing ptp`,
		plugins)
	before, files := c.snapshot(), c.inventory()
	c.hostPod() // makes the control groups of the node, which kubelet expects
	c.kubelet()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.try("sh", "-c", "grep -E '^[EF]' /run/kubelet.log | tail -50"))
			t.Log(c.logged())
		}
	})

	start := time.Now()
	c.run("ctr", "--namespace", "k8s.io", "image", "import", first.image)
	c.installer(first, "install/tenon.yaml")
	c.awaitLong("installation", c.ready)
	c.staticPod("web", 8080)
	web := func(want bool) error {
		answer, err := get(outside, "192.0.2.1:8080")
		if got := strings.Contains(string(answer), greeting); got != want {
			return fmt.Errorf("%q, %w", answer, errors.Join(err, errors.New("not as expected")))
		}
		return nil
	}
	c.awaitLong("pod", func() error { return web(true) })
	t.Logf("from import to the answer of a pod: %v", time.Since(start).Round(time.Second/10))
	address, _ := c.addresses(c.sandboxOf("web"))
	c.run("ping", "-c", "1", "-W", "5", address[0])
	if !strings.HasPrefix(address[0], "10.244.0.") {
		t.Errorf("address %q, want one of 10.244.0.0/24", address)
	}
	configured := c.changed(netDir + "/10-tenon.conflist")
	for _, name := range c.files(plugins + "/*") {
		if at := c.changed(plugins + "/" + name); at.After(configured) {
			t.Errorf("plugin %s appeared at %v, after the configuration at %v", name, at, configured)
		}
	}
	status := []string{"node", "status", "--config", "/etc/tenon/net.d"}
	_, err := c.tenon(status...)
	must(t, err)

	// A package removes a file: the installer restores it.
	c.run("rm", plugins+"/bridge")
	c.awaitLong("restored plugin", func() error {
		_, err := os.Stat(c.path(plugins + "/bridge"))
		return err
	})
	_, err = c.tenon(status...)
	must(t, err)

	// upgrade
	connection := open(t, outside, "192.0.2.1:8080")
	earlier := c.run("sha256sum", plugins+"/bridge")
	start = time.Now()
	second = c.serve(second, "0.2.0")
	stop := c.attaching()
	c.installer(second, "install/tenon.yaml")
	c.awaitLong("upgrade", func() error {
		out, err := c.tenon("--version")
		if err == nil && !strings.Contains(out, "0.2.0") {
			err = errors.New(out)
		}
		if err == nil {
			_, err = c.tenon(status...)
		}
		return err
	})
	t.Logf("from the push to a registry to the upgrade: %v", time.Since(start).Round(time.Second/10))
	stop()
	if now := c.run("sha256sum", plugins+"/bridge"); now == earlier {
		t.Errorf("the upgrade did not replace the plugin: %s", now)
	}
	connection.goesOn()
	must(t, web(true))

	// uninstall
	c.installer(second, "uninstall/tenon-uninstall.yaml")
	c.awaitLong("refusal", func() error {
		if log := c.logged(); !strings.Contains(log, "eth0 is attached") {
			return errors.New(log)
		}
		return nil
	})
	must(t, web(true))
	if names := c.files(plugins + "/bridge"); names == nil {
		t.Error("the plugins are gone while a pod is attached")
	}
	c.run("rm", manifests+"/web.yaml")
	c.awaitLong("removal", func() error {
		_, err := c.tenon("node", "status", "--absent")
		return err
	})
	c.run("rm", installerPod)
	c.awaitLong("end of all pods", c.podless)
	c.unchanged(before)
	c.nothingKept()
	if left := c.inventory(); left != files {
		t.Errorf("files\n%s\nwant\n%s", left, files)
	}
	if left := c.run("nft", "list", "ruleset"); left != "" {
		t.Errorf("rules left:\n%s", left)
	}
}

// podless returns an error if a pod runs. containerd keeps ended sandboxes until it has a network
// again.
func (c *containerd) podless() error {
	if left := c.must("ListPodSandbox", object{"filter": object{
		"state": object{"state": "SANDBOX_READY"}}})["items"]; left != nil {
		return fmt.Errorf("pods %v", left)
	}
	return nil
}

// hostPod runs and removes a pod in the network of the node.
func (c *containerd) hostPod() {
	c.t.Helper()
	request := c.pod("host", 0)
	config := request["config"].(object)
	delete(config, "hostname") // the node's
	config["linux"].(object)["security_context"] = object{
		"namespace_options": object{"network": "NODE"}}
	c.remove(c.must("RunPodSandbox", request)["podSandboxId"].(string))
}

// sandboxOf returns the ID of the sandbox of a static pod.
func (c *containerd) sandboxOf(name string) string {
	c.t.Helper()
	list, _ := c.must("ListPodSandbox", object{"filter": object{"label_selector": object{
		"io.kubernetes.pod.name": name + "-node"}}})["items"].([]any)
	if len(list) != 1 {
		c.t.Fatalf("pod %s has %d sandboxes, want 1", name, len(list))
	}
	return list[0].(object)["id"].(string)
}
