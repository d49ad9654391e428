package sysctl

import "slices"

// global are the settings below net that are there in every network namespace, can be written in it, and act on the whole
// machine.
//
// All others that act on the machine are there in the first namespace only (most of net/core, nf_conntrack_max of net, memory
// limits of TCP and UDP, thresholds of neighbour tables), or cannot be written elsewhere: since 5.13 the kernel takes the write
// permission from those whose value it holds for all namespaces. TestGlobal measures it for the kernel it runs on.
var global = []string{
	// A switch in the code, so the kernel does not find a value. Once it is on, nobody can switch it off.
	"net/netfilter/nf_hooks_lwtunnel",

	// Before 5.13 (CVE-2021-38209).
	"net/ipv4/tcp_allowed_congestion_control",
	"net/netfilter/nf_conntrack_buckets",
	"net/netfilter/nf_conntrack_expect_max",
	"net/netfilter/nf_conntrack_max",
}

// Global reports whether a setting acts on the whole machine wherever it is written. The key is written with slashes.
func Global(key string) bool { return slices.Contains(global, key) }
