package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
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

// delegates returns the IPAM plugins that are part of this program, and p.
func delegates(p plugin.Definition) []plugin.Definition {
	list := []plugin.Definition{p}
	for _, d := range all.Plugins {
		if d.Role == plugin.RoleIPAM {
			list = append(list, d)
		}
	}
	return list
}
