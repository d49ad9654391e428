package trace

import "strings"

// The keys of attributes. Module otel has the same keys for what its spans have.
const (
	Verb         = "cni.verb"
	PluginType   = "cni.plugin"
	PluginPath   = "cni.path" // of the binary
	Network      = "cni.network"
	ContainerID  = "cni.container_id"
	IfName       = "cni.ifname"
	ErrorCode    = "cni.error_code"
	Args         = "cni.args"         // names of the arguments in CNI_ARGS
	Capabilities = "cni.capabilities" // names of the capability arguments
	Result       = "cni.result"       // differences between prevResult and the result
	NetlinkType  = "netlink.type"     // types of the rtnetlink messages of a change
	NFTTable     = "nft.table"        // family and name
	NFTElement   = "nft.element"      // added and deleted elements, in words
	NFTMessages  = "nft.messages"     // number of messages in the transaction
	WaitKind     = "wait"             // what a wait is for: "lock" or "event"
)

// Texts returns the attributes that have a value.
func Texts(all map[string]string) map[string]any {
	attributes := make(map[string]any, len(all))
	for key, value := range all {
		if value != "" {
			attributes[key] = value
		}
	}
	return attributes
}

// ArgNames returns the names of the arguments in CNI_ARGS. The values may be secrets.
func ArgNames(args string) (names []string) {
	for pair := range strings.SplitSeq(args, ";") {
		if name, _, ok := strings.Cut(pair, "="); ok {
			names = append(names, name)
		}
	}
	return names
}
