// Command scale simulates a large cluster and prints what it costs: in memory with virtual time, or
// on three members of etcd in namespaces of their own.
//
//	go run ./scale -nodes 5000 -pods 110                  in memory, with package memkv
//	go run ./scale -etcd -nodes 200 -pods 110             on etcd of the package etcd-server
//
// Every 30 seconds, it prints to standard error how far it is.
//
// Every node has the real agent and the real allocator with its files. In memory, all nodes but
// -seers are blind: they do not watch the others.
package main

import (
	"testing"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/test/load"
)

func main() {
	// A bubble of testing/synctest and the lab need a test.
	testing.Main(func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "scale", F: load.Flags()}}, nil, nil)
}
