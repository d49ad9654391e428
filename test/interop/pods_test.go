package interop

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// TestContainerd: containerd and its CRI plugin with Tenon's plugins. Pods get addresses and are
// reachable, a host port in use is refused with Tenon's message, and removing a pod leaves nothing
// behind, even if containerd was killed or the network namespace no longer exists. `tenon` checks
// and repairs the attachments of containerd.
func TestContainerd(t *testing.T) {
	t.Parallel()
	c := newContainerd(t)
	tenon := c.install()
	outside := c.Uplink()
	c.configure("")
	c.remove(c.sandbox("first", 8080)) // leaves the shared objects
	before := c.snapshot()

	web := c.sandbox("web", 8080)
	c.served(web, "8080", outside)
	if _, err := c.call("RunPodSandbox", c.pod("late", 8080)); err == nil || !strings.Contains(err.Error(), "8080") || !strings.Contains(err.Error(), web) {
		t.Errorf("error for a host port in use: %v, want the port and its holder %s", err, web)
	}
	other := c.sandbox("other", 8081)
	c.served(other, "8081", outside)

	c.kill()
	greeted(t, outside, "192.0.2.1:8080", true)
	c.start()
	if ids := c.sandboxes(); len(ids) != 2 {
		t.Errorf("after a restart there are pods %q", ids)
	}
	c.served(web, "8080", outside)
	c.Host.Command("nft", "flush", "ruleset") // as a firewall does when it restarts
	greeted(t, outside, "192.0.2.1:8080", false)
	check := []string{tenon, "check", "pods", "--id", web, "--net-dir", netDir}
	if out, err := c.try(check...); err == nil {
		t.Errorf("CHECK succeeds after a flush: %s", out)
	}
	c.run(tenon, "repair", "--net-dir", netDir)
	c.run(check...)
	c.served(web, "8080", outside)
	c.remove(web)
	greeted(t, outside, "192.0.2.1:8080", false)
	c.served(other, "8081", outside)

	_, netns := c.addresses(other)
	c.run("sh", "-c", `umount "$0" && rm "$0"`, netns)
	c.remove(other)
	if ids := c.sandboxes(); ids != nil {
		t.Errorf("pods %q are left", ids)
	}
	c.unchanged(before)
	c.nothingKept()
}

// TestContainerdStatus: without a usable network, containerd reports that it is not ready, and why.
func TestContainerdStatus(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	c := newContainerd(t)
	c.install()
	notReady := func(want string) {
		t.Helper()
		if ready, message := c.networkReady(); ready || !strings.Contains(message, want) {
			t.Errorf("ready: %t, %q, want a message with %q", ready, message, want)
		}
	}
	notReady("no network config found")
	c.write(podNetwork, `{"cniVersion":"1.0.0","name":"pods"}`)
	c.await("reason", func() error {
		if _, message := c.networkReady(); strings.Contains(message, "no network config found") {
			return errors.New(message)
		}
		return nil
	})
	notReady(podNetwork)
	c.configure("")
	c.remove(c.sandbox("pod", 0))
}

// TestContainerdKilled: containerd, killed during an ADD, does not know the pod afterwards. Tenon's
// GC removes its remains and keeps the running pods.
func TestContainerdKilled(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	c := newContainerd(t)
	tenon := c.install()
	c.installNote()
	outside := c.Uplink()
	c.configure(noteConf)
	c.remove(c.sandbox("first", 8080)) // leaves the shared objects
	empty := c.snapshot()
	web := c.sandbox("web", 8080)
	before := c.snapshot()

	c.write(noteDir+"/stop", "")
	run := c.command(c.client, containerdSocket, "RunPodSandbox")
	run.Stdin = bytes.NewReader(encode(t, c.pod("lost", 8082)))
	must(t, run.Start())
	c.await("ADD", func() error {
		_, err := os.Stat(c.path(noteDir + "/stopped"))
		return err
	})
	c.kill()
	_ = run.Wait() // fails because containerd was killed
	c.run("sh", "-c", `cd "$0"; rm stop; kill -KILL $(cat stopped)`, noteDir)
	c.start()
	if diff := testnet.Diff(before, c.snapshot()); !strings.Contains(diff, "8082") || !strings.Contains(diff, "veth") {
		t.Errorf("nothing is left for GC:\n%s", diff)
	}
	c.run(tenon, "gc", "pods", "--keep-recorded", "--net-dir", netDir)
	c.unchanged(before)
	_, netns := c.addresses(web)
	c.endNamespaces(netns)
	// Loopback is a network of its own; only its record has the configuration.
	c.run(tenon, "gc", "cni-loopback", "--all-runtimes", "--keep", web+"/lo")
	c.served(web, "8080", outside)
	c.remove(web)
	c.unchanged(empty)
	c.nothingKept()
}

// endNamespaces ends the namespaces of all pods but one.
func (c *containerd) endNamespaces(except string) {
	c.t.Helper()
	c.run("sh", "-c", `cd /run/netns; for ns in *; do [ $ns = "$0" ] || { umount $ns && rm $ns; }; done`, filepath.Base(except))
}

// TestContainerdForgets: after containerd lost its state, GC with a list of live attachments
// deletes the others.
func TestContainerdForgets(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	c := newContainerd(t)
	tenon := c.install()
	outside := c.Uplink()
	c.configure("")
	c.remove(c.sandbox("first", 8080)) // leaves the shared objects
	before := c.snapshot()
	c.sandbox("web", 8080)
	c.sandbox("other", 8081)
	c.kill()
	c.run("rm", "-r", "/var/lib/containerd")
	c.start()
	c.load()
	kept := c.sandbox("kept", 8082)
	_, netns := c.addresses(kept)
	c.endNamespaces(netns)
	c.run(tenon, "gc", "pods", "--all-runtimes", "--keep", kept+"/eth0", "--net-dir", netDir)
	c.served(kept, "8082", outside)
	if left := c.files("/var/lib/cni/results/pods-*"); len(left) != 1 {
		t.Errorf("attachments %q, want one", left)
	}
	c.remove(kept)
	c.unchanged(before)
}

// TestContainerdSends records the input that containerd gives a plugin with all capabilities,
// without pod IDs and results. Plugins and their tests rely on it: the names of members, which
// containerd spells inconsistently, and the arguments of Kubernetes.
func TestContainerdSends(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	c := newContainerd(t)
	c.install()
	c.installNote()
	c.configure(`,{"type":"bandwidth","capabilities":{"bandwidth":true}}` + noteConf)
	request := c.pod("web", 8080)
	config := request["config"].(object)
	config["annotations"] = object{"kubernetes.io/ingress-bandwidth": "10M", "kubernetes.io/egress-bandwidth": "20M"}
	config["dns_config"] = object{"servers": []string{"192.0.2.53"}, "searches": []string{"example"}, "options": []string{"ndots:5"}}
	id := c.must("RunPodSandbox", request)["podSandboxId"].(string)
	if shaping := c.run("tc", "qdisc"); !strings.Contains(shaping, "rate 10Mbit") || !strings.Contains(shaping, "rate 20Mbit") {
		t.Errorf("rates differ from the annotations: %s", shaping)
	}
	c.remove(id)
	calls := c.run("jq", "-Ss", `map(del(.conf.prevResult) | .args |= (split(";") | sort)) | unique`, noteDir+"/calls") // the order of arguments varies
	path := "testdata/containerd.json"
	if os.Getenv(clientsDir) != "" {
		path = "testdata/containerd2.json"
	}
	golden(t, path, strings.ReplaceAll(calls, id, "ID"))
}

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares text with a file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		must(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
