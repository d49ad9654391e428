package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/ops/changes"
	"github.com/tenon-cni/tenon/network"
)

// listing is a list at one time.
type listing struct {
	entries any          // for programs
	text    func() error // prints the list for people
	finish  func() error // prints hints, and returns the error of the parts that cannot be read
	dirs    []string     // a change in them may change the list
}

// lister prints a list once or, with --watch, whenever it has changed.
type lister struct {
	*settings
	watch bool

	shown []byte // the entries as JSON; nil before the first time
	notes []byte // the hints, warnings and errors
}

func (l *lister) flag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&l.watch, "watch", "w", false,
		"print the list again when it changes, until Ctrl-C")
}

// show prints the list that read returns, as the flags of the command say.
func (l *lister) show(cmd *cobra.Command, read func(context.Context) (listing, error)) error {
	if l.watch {
		return l.follow(cmd, read)
	}
	list, err := read(cmd.Context())
	if err != nil {
		return err
	}
	if err := l.print(list.entries, list.text); err != nil {
		return err
	}
	return l.unfinished(cmd, list.finish())
}

// follow prints the list whenever it has changed, until the user ends the program.
func (l *lister) follow(
	cmd *cobra.Command, read func(context.Context) (listing, error),
) error {
	err := changes.Follow(cmd.Context(), func(ctx context.Context) ([]string, error) {
		var notes bytes.Buffer
		l.stderr.capture = &notes
		list, err := read(ctx)
		if err == nil {
			_ = l.unfinished(cmd, list.finish()) // prints the error
		}
		l.stderr.capture = nil
		if err != nil {
			return nil, err
		}
		return list.dirs, l.update(list, notes.Bytes())
	})
	return l.needsRoot(err)
}

// update prints the list and the notes about it if they have changed.
func (l *lister) update(list listing, notes []byte) error {
	entries, err := json.Marshal(list.entries)
	if err != nil {
		return err
	}
	changed, news := !bytes.Equal(entries, l.shown), !bytes.Equal(notes, l.notes)
	again := l.stdout.terminal && !l.output.Structured() && (changed || news)
	if changed || again {
		if err := l.printAgain(list); err != nil {
			return err
		}
	}
	if news || again {
		_, _ = l.stderr.Write(notes) // as other messages
	}
	l.shown, l.notes = entries, notes
	return l.stdout.err
}

// clearScreen moves the cursor to the upper left corner and clears the screen (ECMA-48 CUP and ED).
const clearScreen = "\x1b[H\x1b[2J"

// printAgain prints a list: for people on a terminal in the place of the previous one, elsewhere
// below it.
func (l *lister) printAgain(list listing) error {
	switch {
	case l.output.Structured():
		return l.printEach(list.entries)
	case l.stdout.terminal:
		fmt.Fprint(l.stdout.file, clearScreen)
	case l.shown != nil:
		fmt.Fprintln(l.stdout)
	}
	return list.text()
}

// recordDirs returns the directories in which changes show that attachments or their states have
// changed: of the records, and of the paths of network namespaces.
func recordDirs(c *network.Client, records []network.Record) []string {
	dirs, _ := c.RecordDirs() // ListHost has returned the error
	for _, r := range records {
		if dir := filepath.Dir(r.Netns); r.Netns != "" && !strings.HasPrefix(dir, "/proc/") {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}
