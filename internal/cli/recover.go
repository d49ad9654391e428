package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/network"
)

func (a *app) recover() *cobra.Command {
	r := &settings{app: a}
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Clean up after interrupted operations",
		Long: `Detaches what interrupted or failed ADDs and DELs have left behind, and
attachments from before the node was restarted, with the configuration and
arguments from the attachment records. Waits for operations in progress. Prints
each attachment; leaves attachments in use alone.`,
		Example: `  tenon recover
  tenon recover --json`,
		Args: arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			entries := []recoverEntry{}
			err := r.client().Recover(cmd.Context(), func(done network.Recovered) {
				e := newRecoverEntry(done)
				entries = append(entries, e)
				if !r.output.Structured() {
					fmt.Fprintln(a.stdout, e)
				}
			})
			if r.output.Structured() {
				if err := r.printValue(entries); err != nil {
					return err
				}
			} else if err == nil && len(entries) == 0 {
				fmt.Fprintln(a.stdout, "nothing to recover")
			}
			return a.unfinished(cmd, r.explain(err, nil))
		},
	}
	r.pluginFlags(cmd)
	r.recordFlags(cmd)
	r.ignoredNetDirFlag(cmd)
	r.outputFlags(cmd)
	return cmd
}

// recoverEntry is an attachment for which DEL ran.
type recoverEntry struct {
	keyEntry
	Reason  string          `json:"reason"`
	Deleted bool            `json:"deleted"`
	Error   json.RawMessage `json:"error,omitempty"`
}

func newRecoverEntry(r network.Recovered) recoverEntry {
	e := recoverEntry{keyEntry: keyEntry(r.Record.Attachment), Deleted: r.Err == nil}
	switch r.Record.State {
	case network.Adding:
		e.Reason = "ADD incomplete"
	case network.Deleting:
		e.Reason = "DEL incomplete"
	default:
		e.Reason = "attached before the node was restarted"
	}
	if r.Err != nil {
		e.Error = cni.AsError(r.Err).Encode(cni.Newest)
	}
	return e
}

func (e recoverEntry) String() string {
	done := "detached"
	if !e.Deleted {
		done = "not detached"
	}
	return fmt.Sprintf("%s %v: %s", done, e.key(), e.Reason)
}
