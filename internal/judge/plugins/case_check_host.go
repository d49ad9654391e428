package plugins

// hostDrifts are changes on the host, at the peer or the parent of the interface in the container.
// Most of them reach the container; what contradicts the result, CHECK must notice.
var hostDrifts = []Drift{
	{Name: "peer-gone", Shell: "ip link del $peer"},
	{Name: "peer-down", Shell: "ip link set $peer down"},
	{Name: "peer-detached", Shell: "ip -o link show $peer | grep -q ' master ' || " +
		"{ echo \"the peer has no master\"; exit 1; }\nip link set $peer nomaster"},
}

// findPeer is a text for sh(1) that sets $peer to the link of the host which the kernel names as the
// peer or parent of the interface. It is empty if there is none.
const findPeer = `index=$(ip -n $container -o link show $ifname | sed -n 's/^[0-9]*: [^ ]*@if\([0-9]*\):.*/\1/p')
peer=$(ip -o link show | sed -n "s/^$index: \([^:@]*\).*/\1/p")
`
