package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/repair"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/plugin"
)

// repairs collects the results of a repair.
type repairs struct {
	*settings
	client  *network.Client
	dryRun  bool
	entries []repairEntry // not nil
}

// repairEntry is a plugin of an attachment whose rules were incomplete, or an attachment that was
// skipped.
type repairEntry struct {
	keyEntry
	Plugin   string          `json:"plugin,omitempty"`
	Missing  []string        `json:"missing"`
	Repaired bool            `json:"repaired"`
	Moved    []session.Move  `json:"moved,omitempty"` // to another backend; with --dry-run, would be moved
	Note     string          `json:"note,omitempty"`  // why repair skipped it
	Error    json.RawMessage `json:"error,omitempty"`

	foreign bool
}

func newRepairEntry(key cni.Attachment) repairEntry {
	return repairEntry{keyEntry: keyEntry(key), Missing: []string{}}
}

// skip lists an attachment that repair skips, with the reason, once.
func (p *repairs) skip(key cni.Attachment, why error) {
	if slices.ContainsFunc(
		p.entries,
		func(e repairEntry) bool { return e.key() == key && e.Note != "" && !e.foreign },
	) {
		return // already listed for another plugin
	}
	e := newRepairEntry(key)
	e.Note = cni.AsError(why).Msg
	p.entries = append(p.entries, e)
}

// run repairs the plugin calls that [network.Client.Repair] passes.
func (p *repairs) run(ctx context.Context, calls []invoke.Call) error {
	do := repair.Run
	if p.dryRun {
		do = func(ctx context.Context, plugins []plugin.Definition, calls []invoke.Call) ([]repair.Outcome, error) {
			return repair.Missing(ctx, plugins, calls, p.client.Caller)
		}
	}
	outcomes, err := do(ctx, p.plugins(), calls)
	errs := []error{err}
	for i, o := range outcomes {
		name, _, _ := cni.DecodeHeader(calls[i].Stdin)
		key := calls[i].Env.Attachment(name)
		e := newRepairEntry(key)
		e.Plugin, e.Missing = filepath.Base(calls[i].Path), append(e.Missing, o.Restored...)
		e.Moved = o.Moved
		e.Repaired = len(o.Restored) > 0 && o.Err == nil && !p.dryRun
		switch {
		case errors.Is(o.Err, repair.ErrForeign):
			e.Note, e.foreign = fmt.Sprintf("%s %v", calls[i].Path, o.Err), true
		case o.Failed():
			e.Error = cni.AsError(o.Err).Encode(cni.Newest)
			errs = append(errs, fmt.Errorf("%v: %s: %w", key, e.Plugin, o.Err))
		case o.Err != nil:
			p.skip(key, o.Err)
			continue
		case len(o.Restored) == 0 && len(o.Moved) == 0:
			continue
		}
		p.entries = append(p.entries, e)
	}
	return errors.Join(errs...)
}

// checkForeign adds the result of CHECK to attachments with plugins that are not Tenon's.
func (p *repairs) checkForeign(ctx context.Context) {
	results := map[cni.Attachment]string{}
	for i, e := range p.entries {
		if !e.foreign {
			continue
		}
		if results[e.key()] == "" {
			results[e.key()] = "CHECK succeeds"
			if err := holder(p.client, e.key()).Check(ctx, e.key(), nil); err != nil {
				results[e.key()] = "CHECK fails: " + cni.AsError(err).Msg
			}
		}
		p.entries[i].Note += "; " + results[e.key()]
	}
}

// print prints the entries. complete reports whether every repair succeeded.
func (p *repairs) print(complete bool) error {
	if p.output.Structured() {
		return p.printValue(p.entries)
	}
	repaired := 0
	for _, e := range p.entries {
		changed, err := p.printMoves(e)
		if err != nil {
			return err
		}
		repaired += changed
		verb, text := "repaired", strings.Join(e.Missing, ", ")
		switch {
		case e.Error != nil:
			continue // printed as an error
		case e.Note != "":
			verb, text = "skipped", e.Note
		case len(e.Missing) == 0:
			continue
		case p.dryRun:
			verb = "would repair"
			fallthrough
		default:
			repaired++
		}
		if _, err := fmt.Fprintf(p.stdout, "%s %s: %s\n", verb, strings.TrimSpace(e.key().String()+" "+e.Plugin), text); err != nil {
			return err
		}
	}
	if complete && repaired == 0 {
		fmt.Fprintln(p.stdout, "nothing to repair")
	}
	return nil
}

// printMoves prints a line for each move to another backend and returns the number of lines.
func (p *repairs) printMoves(e repairEntry) (int, error) {
	verb := "moved"
	if p.dryRun {
		verb = "would move"
	}
	for i, m := range e.Moved {
		_, err := fmt.Fprintf(
			p.stdout,
			"%s %s of %s to %s: %s\n",
			verb,
			m.What,
			e.key(),
			m.Backend,
			m.Reason,
		)
		if err != nil {
			return i, err
		}
	}
	return len(e.Moved), nil
}
