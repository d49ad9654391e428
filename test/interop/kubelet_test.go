//go:build clients

package interop

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

const (
	manifests     = "/run/manifests"
	kubeletConfig = "/run/kubelet.yaml"
	podLogs       = "/run/pods"
)

// startKubelet starts the kubelet in a mount namespace in which files with the values that it wants
// hide the settings of the whole host, so that it changes none.
const startKubelet = `
	while read -r key value; do
		mkdir -p /run/settings/${key%/*} && echo $value >/run/settings/$key && mount --bind /run/settings/$key /proc/sys/$key
	done <<-END
		vm/overcommit_memory 1
		vm/panic_on_oom 0
		kernel/panic 10
		kernel/panic_on_oops 1
		kernel/keys/root_maxkeys 1000000
		kernel/keys/root_maxbytes 25000000
	END
	kubelet --config "$0" --root-dir /var/lib/kubelet --hostname-override node "$@" >>/run/kubelet.log 2>&1 &
	echo $! >/run/kubelet.pid`

// kubelet starts the kubelet, without an API server unless arguments name one: it runs the pods of a
// directory and ends with the node.
func (c *containerd) kubelet(args ...string) {
	c.t.Helper()
	c.write(kubeletConfig, fmt.Sprintf(`
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: %s
podLogsDir: %s
containerRuntimeEndpoint: unix://%s
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
enableServer: false
cgroupDriver: cgroupfs
cgroupRoot: /%s
cgroupsPerQOS: true
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
resolvConf: ""
fileCheckFrequency: 1s
syncFrequency: 1s
imageMinimumGCAge: 24h
`, manifests, podLogs, containerdSocket, c.cgroup))
	c.write(manifests+"/.keep", "")
	c.run(append([]string{"unshare", "--mount", "--propagation", "slave", "sh", "-ec", startKubelet,
		kubeletConfig}, args...)...)
}

// staticPod makes kubelet run a pod with a host port.
func (c *containerd) staticPod(name string, hostPort int) {
	c.t.Helper()
	c.write(manifests+"/"+name+".yaml", fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: server
    image: %s
    imagePullPolicy: Never
    command: [/bin/busybox, httpd, -f, -p, "8000", -h, /www] # the sandbox has port 80
    ports: [{containerPort: 8000, hostPort: %d}]
`, name, imageName, hostPort))
}

// TestClientsKubelet: kubelet runs static pods with host ports, restarts their containers without a
// free address, survives its own restart, and removes pods completely.
func TestClientsKubelet(t *testing.T) {
	t.Parallel()
	c := newClients(t)
	c.install()
	outside := c.Uplink()
	c.configureSmall("10.85.0.0/30", "") // one address for pods; kubelet removes unknown pods
	c.remove(c.sandbox("first", 8080))
	before := c.snapshot()
	c.kubelet()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.try("sh", "-c", "grep -E '^[EF]' /run/kubelet.log | tail -50"))
		}
	})
	c.staticPod("web", 8080)
	serves := func(want bool) func() error {
		return func() error {
			answer, err := get(outside, "192.0.2.1:8080")
			if got := strings.Contains(string(answer), greeting); got != want {
				return fmt.Errorf("%q, %w", answer, errors.Join(err, errors.New("not as expected")))
			}
			return nil
		}
	}
	c.awaitLong("static pod", serves(true))

	if _, err := c.call("RunPodSandbox", c.pod("late", 0)); err == nil || !strings.Contains(err.Error(), "10.85.0.") {
		t.Errorf("a pod without a free address: %v, want an error that names the range", err)
	}
	c.endContainers()
	c.awaitLong("restart of the container with a full pool", serves(true))

	c.run("sh", "-c", `kill $(cat /run/kubelet.pid); while kill -0 $(cat /run/kubelet.pid) 2>/dev/null; do sleep 0.02; done`)
	c.kubelet()
	must(t, serves(true)())
	c.run("rm", filepath.Join(manifests, "web.yaml"))
	c.awaitLong("end of the static pod", serves(false))
	c.awaitLong("removal of the pod", func() error {
		if ids := c.files("/var/lib/cni/results/pods-*"); len(ids) > 0 {
			return fmt.Errorf("attachments %q are left", ids)
		}
		return nil
	})
	c.unchanged(before)
}

// endContainers kills the servers of all pods, but not the pods.
func (c *containerd) endContainers() {
	c.t.Helper()
	list, _ := c.must("ListContainers", object{})["containers"].([]any)
	if len(list) == 0 {
		c.t.Error("no container to end")
	}
	for _, item := range list {
		c.run("ctr", "--namespace", "k8s.io", "task", "kill", "--signal", "KILL", item.(object)["id"].(string))
	}
}
