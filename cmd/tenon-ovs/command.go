package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/ovs"
)

// restore restores the objects of an attachment for the program tenon.
func restore(p plugin.Definition) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := ovs.Repair(ctx, p, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
