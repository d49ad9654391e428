//go:build clients

package interop

import (
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"strings"
	"testing"
	"time"
)

// controlPlane starts etcd and the parts of Kubernetes that run DaemonSets and pods. They end with
// the node.
const controlPlane = `
	mkdir -p /run/kube
	cd /run/kube
	openssl genrsa -out sa.key 2048 2>/dev/null
	echo secret,admin,1,system:masters >tokens.csv
	etcd --data-dir /run/kube/etcd --listen-client-urls http://127.0.0.1:2379 \
		--advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380 >etcd.log 2>&1 &
	kube-apiserver --etcd-servers http://127.0.0.1:2379 --cert-dir certs --bind-address 127.0.0.1 \
		--advertise-address 192.0.2.1 --endpoint-reconciler-type none --service-cluster-ip-range 10.96.0.0/16 \
		--service-account-issuer https://kubernetes.invalid --service-account-key-file sa.key \
		--service-account-signing-key-file sa.key --token-auth-file tokens.csv \
		--authorization-mode AlwaysAllow >apiserver.log 2>&1 &
	kube-controller-manager --kubeconfig config --leader-elect=false --secure-port 0 \
		--service-account-private-key-file sa.key >controllers.log 2>&1 &
	kube-scheduler --kubeconfig config --leader-elect=false --secure-port 0 >scheduler.log 2>&1 &`

const kubeconfig = `
apiVersion: v1
kind: Config
clusters: [{name: node, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: secret}}]
contexts: [{name: node, context: {cluster: node, user: admin}}]
current-context: node
`

// kubectl runs kubectl in the node.
func (c *containerd) kubectl(args ...string) (string, error) {
	c.t.Helper()
	return c.try(append([]string{"kubectl", "--kubeconfig", "/run/kube/config"}, args...)...)
}

// apply applies a kustomization of a release and waits until it is on the node.
func (c *containerd) apply(version, name string) {
	c.t.Helper()
	_, err := c.kubectl("apply", "-k", "/run/"+version+"/"+name)
	must(c.t, err)
	c.rolledOut()
}

func (c *containerd) rolledOut() {
	c.t.Helper()
	_, err := c.kubectl("-n", "kube-system", "rollout", "status", "daemonset", "tenon", "--timeout=5m")
	must(c.t, err)
}

// unpack writes the manifests of a release and imports its image. The configuration directory of
// the node is not /etc/cni/net.d.
func (c *containerd) unpack(r releaseFiles, version string) {
	c.t.Helper()
	for name, text := range r.manifests {
		c.write(path.Join("/run", version, name), strings.ReplaceAll(text,
			"hostPath: {path: /etc/cni/net.d,", "hostPath: {path: "+netDir+","))
	}
	c.run("ctr", "--namespace", "k8s.io", "image", "import", r.image)
}

const webPod = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  containers:
  - name: server
    image: ` + imageName + `
    imagePullPolicy: Never
    command: [/bin/busybox, httpd, -f, -p, "8000", -h, /www]
    ports: [{containerPort: 8000, hostPort: 8080}]
`

// TestClientsDaemonSet follows docs/kubernetes.md on a cluster of one node with an API server:
// kubectl installs, upgrades, changes the network and uninstalls.
func TestClientsDaemonSet(t *testing.T) {
	t.Parallel()
	first, second := dist(t, "0.1.0", runtime.GOARCH), dist(t, "0.2.0", runtime.GOARCH)
	c := newClients(t)
	outside := c.Uplink()
	c.Host.Command("sysctl", "-qw", "net.ipv4.ip_forward=1") // stays set after the removal
	before, files := c.snapshot(), c.inventory()
	c.hostPod()
	c.write("/run/kube/config", kubeconfig)
	c.run("sh", "-ec", controlPlane)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.try("sh", "-c", "tail -n 20 /run/kube/*.log; grep -E '^[EF]' /run/kubelet.log | tail"))
			t.Log(c.kubectl("get", "nodes,pods,daemonsets", "-A", "-o", "wide"))
			t.Log(c.logged())
		}
	})
	c.awaitLong("API server", func() error {
		_, err := c.kubectl("-n", "kube-system", "get", "serviceaccount", "default")
		return err
	})
	c.kubelet("--kubeconfig", "/run/kube/config", "--node-ip", "192.0.2.1")
	c.unpack(first, "first")
	c.unpack(second, "second")

	start := time.Now()
	c.apply("first", "install")
	c.write("/run/web.yaml", webPod)
	c.awaitLong("creation of a pod", func() error {
		_, err := c.kubectl("apply", "-f", "/run/web.yaml")
		return err
	})
	serves := func() error {
		answer, err := get(outside, "192.0.2.1:8080")
		if !strings.Contains(string(answer), greeting) {
			return fmt.Errorf("%q, %w", answer, errors.Join(err, errors.New("not as expected")))
		}
		return nil
	}
	c.awaitLong("pod", serves)
	t.Logf("from kubectl apply to the answer of a pod: %v", time.Since(start).Round(time.Second/10))

	stop, connection := c.attaching(), open(t, outside, "192.0.2.1:8080")
	c.apply("second", "install")
	stop()
	connection.goesOn()
	if out, err := c.tenon("--version"); err != nil || !strings.Contains(out, "0.2.0") {
		t.Errorf("version %q, %v", out, err)
	}

	_, err := c.kubectl("-n", "kube-system", "patch", "configmap", "tenon-networks", "--type=merge",
		"--patch", `{"data": {"20-other.conflist":
			"{\"cniVersion\": \"1.0.0\", \"name\": \"other\", \"plugins\": [{\"type\": \"loopback\"}]}"}}`)
	must(t, err)
	c.awaitLong("changed ConfigMap", func() error {
		_, err := os.Stat(c.path(netDir + "/20-other.conflist"))
		return err
	})

	_, err = c.kubectl("apply", "-k", "/run/second/uninstall")
	must(t, err)
	c.awaitLong("refusal", func() error {
		if log := c.logged(); !strings.Contains(log, "eth0 is attached") {
			return errors.New(log)
		}
		return nil
	})
	must(t, serves())
	_, err = c.kubectl("delete", "pod", "web")
	must(t, err)
	c.rolledOut()
	_, err = c.kubectl("delete", "-k", "/run/second/install")
	must(t, err)
	c.awaitLong("end of all pods", c.podless)
	c.unchanged(before)
	c.nothingKept()
	if left := c.inventory(); left != files {
		t.Errorf("files\n%s\nwant\n%s", left, files)
	}
}
