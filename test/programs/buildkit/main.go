// Command buildkit attaches two namespaces with BuildKit's network provider "bridge", prints their
// paths, and detaches them when its input ends. The plugins are buildkit-cni-* in PATH.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/moby/buildkit/util/network"
	"github.com/moby/buildkit/util/network/cniprovider"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

// run uses a directory for the state of the provider.
func run(root string) (err error) {
	provider, err := cniprovider.NewBridge(cniprovider.Opt{Root: root, BridgeName: "buildkit0",
		BridgeSubnet: "10.97.0.0/24"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, provider.Close()) }()
	for range 2 {
		var ns network.Namespace
		if ns, err = provider.New(context.Background(), ""); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, ns.Close()) }()
		spec := &specs.Spec{Linux: &specs.Linux{}}
		if err := ns.Set(spec); err != nil {
			return err
		}
		for _, n := range spec.Linux.Namespaces {
			fmt.Println(n.Path)
		}
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
