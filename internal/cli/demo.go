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
		Short: "See it work, in a sandbox of its own",
		Long: `Attaches two containers to a dual-stack network, lets one ping the other and all of them reach a port
of the host that leads to one, takes addresses and rules away and puts them back, deletes everything and
proves that nothing is left. Takes a second or two and needs no container runtime. All of it happens in
network and mount namespaces of its own: nothing on this machine changes. Works without root where user
namespaces are allowed.`,
		Example: "  tenon demo",
		Args:    arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := demo.Demo{
				Out: a.stdout.file, Err: a.stderr, Colour: coloured(a.stdout.file),
				Inner: []string{"demo", "--" + insideFlag}, Plugins: builtInNames(), Repair: all.Repair,
			}
			if inside != "" {
				return d.Play(cmd.Context(), inside)
			}
			err := d.Run(cmd.Context())
			if child := (*exec.ExitError)(nil); errors.As(err, &child) && child.Exited() {
				return exitStatus(child.ExitCode()) // it has said why
			}
			return err
		},
	}
	cmd.Flags().StringVar(&inside, insideFlag, "", "play in this folder, within namespaces made for it")
	_ = cmd.Flags().MarkHidden(insideFlag) // fails only if there is no such flag
	return cmd
}

// coloured reports whether colours can be shown: on a terminal, unless NO_COLOR is set (no-color.org).
func coloured(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
