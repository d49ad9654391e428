package cni_test

import (
	"slices"
	"testing"

	"github.com/tenon-cni/tenon/cni"
)

// CONV-25: Args matches the variables of Kubernetes runtimes, and PodFrom accepts them in any order
// and among others.
func TestPod(t *testing.T) {
	t.Parallel()
	pod := cni.Pod{Namespace: "shop", Name: "web-0", UID: "7c2d", InfraContainerID: "c0ffee"}
	const want = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=c0ffee;K8S_POD_UID=7c2d"
	if got := pod.Args().String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := (cni.Pod{Name: "web-0"}).Args().String(); got != "IgnoreUnknown=1;K8S_POD_NAME=web-0" {
		t.Errorf("an empty variable is sent: %s", got)
	}
	if err := pod.Args().CheckKnown(); err != nil {
		t.Errorf("a plugin without support for pods: %v", err)
	}
	args := append(pod.Args(), cni.Arg{Key: "K8S_POD_RUNTIMECLASS", Value: "x"})
	slices.Reverse(args)
	if got, ok := cni.PodFrom(args); got != pod || !ok {
		t.Errorf("%+v, %v, want %+v", got, ok, pod)
	}
	for _, text := range []string{"", "K8S_POD_NAME=web-0", "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=",
		"k8s_pod_name=a;k8s_pod_namespace=b"} {
		args, err := cni.ParseArgs(text)
		if err != nil {
			t.Fatal(err)
		}
		if pod, ok := cni.PodFrom(args); ok {
			t.Errorf("%q describes pod %+v", text, pod)
		}
	}
}
