package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/journal"
	"github.com/tenon-cni/tenon/internal/ops/logs"
	"github.com/tenon-cni/tenon/internal/shell"
	"github.com/tenon-cni/tenon/network"
)

// journal returns the journal that commands write and read. Its directory is [network.NoJournal] if
// it is switched off.
func (r *settings) journal() journal.Journal {
	switch dir := os.Getenv(journal.Env); dir {
	case "":
		return journal.Journal{Dir: filepath.Join(cmp.Or(r.stateDir, network.DefaultStateDir), "journal")}
	case journal.Off:
		return journal.Journal{Dir: network.NoJournal}
	default:
		return journal.Journal{Dir: dir}
	}
}

// readJournal reads the journal, and warns of damaged records and of a journal that is missing.
func (r *settings) readJournal() (journal.Content, error) {
	j := r.journal()
	if j.Dir == network.NoJournal {
		return journal.Content{}, hint(fmt.Errorf("the journal is switched off by %s", journal.Env),
			"unset "+journal.Env)
	}
	c, err := j.Read()
	if err != nil && len(c.Records) == 0 {
		return c, r.needsRoot(fmt.Errorf("journal: %w", err))
	}
	if err != nil {
		r.warn("a part of the journal is missing: %v", err)
	}
	if c.Damaged > 0 {
		r.warn("ignoring %s in %s", count(c.Damaged, "damaged record"), j.Dir)
	}
	if _, err := os.Stat(j.Dir); err != nil {
		r.warn("no journal: %v", err)
		r.printHint("\"tenon add\" creates the journal; to record the plugins of a runtime, run: " +
			"install -d -m 0700 " + shell.Quote(j.Dir))
	}
	return c, nil
}

// completeLogs completes the names of networks and containers in the journal.
func (r *settings) completeLogs(
	_ *cobra.Command, args []string, _ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, _ := r.journal().Read()
	return logs.Names(c.Records), cobra.ShellCompDirectiveNoFileComp
}
