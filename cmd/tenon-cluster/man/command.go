package main

import (
	"os"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/command"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/settings"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/manual"
)

// cluster describes the command tenon-cluster.
func cluster() manual.Program {
	return manual.Program{
		Command: command.Root(command.Environment{Stdout: os.Stdout, Lookup: os.LookupEnv}),
		Status: []manual.Entry{
			{Name: "0", Text: "Success."},
			{Name: "1", Text: "Failure, or findings of check. Standard error has the reason and a hint."},
			{Name: "2", Text: "Wrong usage."},
		},
		Environment: []manual.Entry{
			{Name: "TENON_CLUSTER_CONFIG", Text: "Default of --config."},
			{Name: "TENON_CLUSTER_NAME", Text: "Default of --NAME, in upper case with underscores, " +
				"such as TENON_CLUSTER_ENDPOINTS for --endpoints. Flags take precedence."},
		},
		Files: []manual.Entry{
			{Name: settings.DefaultFile, Text: "Settings of this node; the environment and flags take precedence."},
			{Name: local.DefaultDir, Text: "Blocks and reservations of this node."},
			{Name: local.DefaultSocket, Text: "Socket of the agent."},
		},
		SeeAlso: []string{"tenon(8)", "tenon-cluster-agent(8)", "etcd(1)", "etcdctl(1)"},
	}
}
