package cli

import (
	"errors"
	"os"
	"os/exec"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/ops/demo"
	"github.com/tenon-cni/tenon/plugins/all"
)

func (a *app) demo() *cobra.Command {
	inside := ""
	const insideFlag = "inside"
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch Tenon work, in a sandbox",
		Long: `Attaches two containers to a dual-stack network, pings one from the other,
reaches a published port, deletes addresses and rules to show that CHECK notices,
repairs them, detaches everything and proves that nothing is left. Takes a second
or two and needs no container runtime. Runs in its own network and mount
namespaces, so nothing on this host changes. Works without root where user
namespaces are allowed.`,
		Example: "  tenon demo",
		Args:    arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := demo.Demo{
				Out: a.stdout.file, Err: a.stderr.file, Colour: coloured(a.stdout.file),
				Inner: []string{
					"demo",
					"--" + insideFlag,
				}, Plugins: builtInNames(), Repair: all.Repair,
			}
			if inside != "" {
				return d.Play(cmd.Context(), inside)
			}
			err := d.Run(cmd.Context())
			if child := (*exec.ExitError)(nil); errors.As(err, &child) && child.Exited() {
				return exitStatus(child.ExitCode()) // the child has reported the error
			}
			return err
		},
	}
	cmd.Flags().StringVar(&inside, insideFlag, "",
		"run in this directory, in namespaces created for the demonstration")
	_ = cmd.Flags().MarkHidden(insideFlag) // fails only if the flag does not exist
	return cmd
}

// coloured reports whether colours can be shown: on a terminal, unless NO_COLOR is set
// (no-color.org).
func coloured(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
