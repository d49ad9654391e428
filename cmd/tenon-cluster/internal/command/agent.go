package command

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/settings"
)

func (a *app) agent() *cobra.Command {
	debug, remove := false, false
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent of this node",
		Long: `Joins the cluster, claims and returns blocks for the plugin "cluster", and programs
routes to the blocks of other nodes. It can be restarted at any time: containers
keep their addresses, and the plugin allocates from the node's blocks meanwhile.
Routes stay when it stops; --remove removes them.`,
		Example: a.examples("agent", "agent --routes vxlan --labels zone=a"),
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf, err := settings.Load(cmd.Flags(), a.Lookup)
			if err != nil {
				return err
			}
			if len(conf.Endpoints) == 0 && !remove {
				return a.explain(cmd.Context(), conf, settings.ErrNoEndpoints)
			}
			level := slog.LevelInfo
			if debug {
				level = slog.LevelDebug
			}
			log := slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: level}))
			if remove {
				return a.Remove(cmd.Context(), conf, log)
			}
			return a.Agent(cmd.Context(), conf, log)
		},
	}
	settings.AddAgentFlags(cmd.Flags())
	cmd.Flags().BoolVar(&remove, "remove", false,
		"remove the routes and devices of a stopped agent")
	cmd.Flags().BoolVar(&debug, "debug", false, "log details")
	return cmd
}
