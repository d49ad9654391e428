package cli

import (
	"context"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/program"
)

// cluster returns the command that starts tenon-cluster, a program of its own because of the client
// of etcd.
func (a *app) cluster() *cobra.Command {
	return &cobra.Command{
		Use:   "cluster COMMAND",
		Short: "Manage the address pools and nodes of a cluster",
		Long: `Runs tenon-cluster with the same arguments: it manages the pools, nodes and blocks
that a cluster keeps in etcd, and runs the agent of a node. "tenon cluster --help"
lists its commands.`,
		Example: `  tenon cluster status
  tenon cluster pool create pods 10.64.0.0/12
  tenon cluster blocks --node n7`,
		DisableFlagParsing: true, // the program parses them, --help too
		ValidArgsFunction:  completeCluster,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.Setenv(cluster.CalledAs, "tenon cluster"); err != nil {
				return err
			}
			return execProgram(cluster.Program, args)
		},
	}
}

// completeCluster asks the program for completions. Its last line is a number that directs the
// shell.
func completeCluster(
	cmd *cobra.Command, args []string, word string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	words := append(append([]string{cobra.ShellCompRequestCmd}, args...), word)
	out, err := program.Output(ctx, nil, cluster.Program, words...)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := len(lines) - 1
	directive, err := strconv.Atoi(strings.TrimPrefix(lines[last], ":"))
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return lines[:last], cobra.ShellCompDirective(directive)
}
