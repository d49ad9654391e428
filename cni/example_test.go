package cni_test

import (
	"fmt"
	"net/netip"

	"github.com/tenon-cni/tenon/cni"
)

func ExampleCapabilities_Encode() {
	// the annotation kubernetes.io/ingress-bandwidth of a pod
	ingress, err := cni.ParseBitRate("1.5M")
	if err != nil {
		panic(err)
	}
	capabilities, err := cni.Capabilities{
		PortMappings: []cni.PortMapping{{HostPort: 5353, ContainerPort: 53, Protocol: cni.UDP}},
		IPs:          []netip.Prefix{netip.MustParsePrefix("10.1.2.3/24")},
		Bandwidth:    cni.Bandwidth{IngressRate: ingress, IngressBurst: 200 * cni.Kbit},
	}.Encode()
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"portMappings", "ips", "bandwidth"} {
		fmt.Printf("%s %s\n", name, capabilities[name])
	}

	_, err = cni.Capabilities{PortMappings: []cni.PortMapping{{HostPort: 5353}}}.Encode()
	fmt.Println(err)
	// Output:
	// portMappings [{"hostPort":5353,"containerPort":53,"protocol":"udp"}]
	// ips ["10.1.2.3/24"]
	// bandwidth {"ingressRate":1500000,"ingressBurst":200000}
	// capability portMappings: host port 5353 to container port 0: port 0 is not valid
}

func ExamplePod_Args() {
	fmt.Println(cni.Pod{Namespace: "shop", Name: "web-0", UID: "7c2d",
		InfraContainerID: "c0ffee"}.Args())
	// Output:
	// IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=c0ffee;K8S_POD_UID=7c2d
}

// A plugin reads the description of its pod.
func ExamplePodFrom() {
	args, err := cni.ParseArgs("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0")
	if err != nil {
		panic(err)
	}
	pod, ok := cni.PodFrom(args)
	fmt.Println(pod.Namespace, pod.Name, ok)
	// Output: shop web-0 true
}
