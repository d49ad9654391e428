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
		Short: "Finish what was cut short",
		Long: `Deletes what is left of an ADD or a DEL that was cut short or failed, and what was attached before the
machine was started, with the configuration and the arguments that are recorded. Waits for what is under
way. Prints each attachment that was deleted; attachments in use are left alone.`,
		Example: `  tenon recover
  tenon recover --json`,
		Args: arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			entries := []recoverEntry{}
			err := r.client().Recover(cmd.Context(), func(done network.Recovered) {
				e := newRecoverEntry(done)
				entries = append(entries, e)
				if !r.json {
					fmt.Fprintln(a.stdout, e)
				}
			})
			if r.json {
				if err := a.printJSON(entries); err != nil {
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
	r.jsonFlag(cmd, "print the list as JSON")
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
		e.Reason = "ADD was not completed"
	case network.Deleting:
		e.Reason = "DEL was not completed"
	default:
		e.Reason = "attached before the machine was started"
	}
	if r.Err != nil {
		e.Error = cni.AsError(r.Err).Encode(cni.Newest)
	}
	return e
}

func (e recoverEntry) String() string {
	done := "deleted"
	if !e.Deleted {
		done = "not deleted"
	}
	return fmt.Sprintf("%s %v: %s", done, e.key(), e.Reason)
}
