package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam"
)

// lease is a reservation on this node.
type lease struct{ ipam.Lease }

// earlier reports whether the reservation is void because the node has restarted.
func (l lease) earlier() bool { return l.Boot == ipam.BootEarlier || l.Boot == ipam.BootForeignEarlier }

// auditRecord is an event with its node.
type auditRecord struct {
	Node string `json:"node"`
	local.Record
}

func (a *app) audit() *cobra.Command {
	at, days := "", 0
	cmd := &cobra.Command{
		Use:   "audit ADDRESS",
		Short: "Show who had an address, and when",
		Long: `Shows which attachments got and released an address, by the clocks of their nodes.
Pools record this with "pool set POOL --audit"; nodes write their events to etcd in
batches, so the last minutes may be missing. With --at, shows the holder at a time.`,
		Example: a.examples("audit 10.64.3.77", "audit 10.64.3.77 --at 2026-11-02T14:30:00Z"),
		Args:    arguments("ADDRESS"),
		RunE: a.withStore(func(ctx context.Context, s *session, args []string) error {
			addr, err := netip.ParseAddr(args[0])
			if err != nil {
				return usagef("%q is not an IP address", args[0])
			}
			until := a.Now()
			if at != "" {
				if until, err = time.Parse(time.RFC3339, at); err != nil {
					return usagef("--at %q has not the form 2006-01-02T15:04:05Z", at)
				}
			}
			records, err := readAudit(ctx, s, addr, until, days)
			if err != nil {
				return err
			}
			if at != "" {
				return a.holderAt(records, addr, until)
			}
			return a.print(records, func() error { return a.printAudit(records) })
		}),
	}
	cmd.Flags().StringVar(&at, "at", "", "show the holder at `TIME`, as in RFC 3339")
	const week = 7
	cmd.Flags().IntVar(&days, "days", week, "search `N` days before the time")
	return a.jsonFlag(cmd)
}

// readAudit reads the events of an address up to a time, the oldest first: from etcd, and from the
// files of this node, which has newer ones.
func readAudit(ctx context.Context, s *session, addr netip.Addr, until time.Time, days int,
) ([]auditRecord, error) {
	list := []auditRecord{}
	add := func(day string, records []auditRecord, err error) error {
		for _, r := range records {
			if r.Addr == addr && !r.Time.After(until) && !slices.Contains(list, r) {
				list = append(list, r)
			}
		}
		if err != nil {
			return fmt.Errorf("audit of %s: %w", day, err)
		}
		return nil
	}
	for d := days; d >= 0; d-- {
		day := until.UTC().AddDate(0, 0, -d).Format(time.DateOnly)
		batches, err := s.registry.Audit(ctx, day)
		if err != nil {
			return nil, err
		}
		for _, b := range batches {
			records, err := decodeAudit(s.settings.Node, b)
			if err := add(day, records, err); err != nil {
				return nil, err
			}
		}
		log, err := os.ReadFile(filepath.Join(s.settings.Dir, "audit", day+".log"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		records, err := decodeAudit(s.settings.Node, log)
		if err := add(day, records, err); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(list, func(x, y auditRecord) int { return x.Time.Compare(y.Time) })
	return list, nil
}

// decodeAudit decodes JSON on lines. The files of a node do not name it, as batches in etcd do. The
// last line may be incomplete.
func decodeAudit(node string, lines []byte) (list []auditRecord, err error) {
	d := json.NewDecoder(bytes.NewReader(lines))
	for {
		r := auditRecord{Node: node}
		err := d.Decode(&r)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return list, nil
		case err != nil:
			return list, err
		}
		list = append(list, r)
	}
}

func (a *app) printAudit(records []auditRecord) error {
	if len(records) == 0 {
		a.printf("no event is recorded\n")
		return nil
	}
	rows := [][]string{{"TIME", "EVENT", "POOL", "NODE", "NETWORK", "CONTAINER", "INTERFACE", "POD"}}
	for _, r := range records {
		rows = append(rows, []string{r.Time.UTC().Format(time.RFC3339), string(r.Event), r.Pool, r.Node,
			r.Network, r.Container, r.IfName, podOf(r)})
	}
	return a.table(rows)
}

func podOf(r auditRecord) string {
	if r.Namespace == "" {
		return r.Pod
	}
	return r.Namespace + "/" + r.Pod
}

// holderAt prints the holder after the last event before a time.
func (a *app) holderAt(records []auditRecord, addr netip.Addr, at time.Time) error {
	if len(records) == 0 {
		return hint(fmt.Errorf("no event of %s is recorded before %s", addr, at.UTC().Format(time.RFC3339)),
			"pools record events only after pool set POOL --audit; add --days to search longer")
	}
	last := records[len(records)-1]
	return a.print(last, func() error {
		if last.Event == local.EventDel {
			return errors.Join(a.printAudit(records[len(records)-1:]),
				hint(fmt.Errorf("%s had no holder at %s", addr, at.UTC().Format(time.RFC3339))))
		}
		return a.printAudit(records[len(records)-1:])
	})
}
