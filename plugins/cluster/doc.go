// Package cluster implements the IPAM plugin cluster. It allocates addresses from the blocks that
// belong to this node in a cluster, without asking the cluster's store, and asks the agent on the
// node for what the blocks do not have: another block, the address of a name, quota.
//
// Package internal/cluster/local implements the allocation and the files. This package implements
// the configuration, the conversation with the agent, and the error codes.
package cluster

import _ "embed"

//go:embed doc.md
var doc string
