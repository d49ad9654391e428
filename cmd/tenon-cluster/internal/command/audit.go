package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/agent"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam"
)

// lease is a reservation on this node.
type lease struct{ ipam.Lease }

// earlier reports whether the reservation is void because the node has restarted.
func (l lease) earlier() bool {
	return l.Boot == ipam.BootEarlier || l.Boot == ipam.BootForeignEarlier
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
) ([]agent.AuditRecord, error) {
	list := []agent.AuditRecord{}
	add := func(lines []byte) {
		for _, r := range decodeAudit(s.settings.Node, lines) {
			if r.Addr == addr && !r.Time.After(until) && !slices.Contains(list, r) {
				list = append(list, r)
			}
		}
	}
	for d := days; d >= 0; d-- {
		day := until.UTC().AddDate(0, 0, -d).Format(time.DateOnly)
		batches, err := s.registry.Audit(ctx, day)
		if err != nil {
			return nil, err
		}
		for _, b := range batches {
			add(b)
		}
		log, err := os.ReadFile(filepath.Join(s.settings.Dir, "audit", day+".log"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		add(log)
	}
	slices.SortStableFunc(list, func(x, y agent.AuditRecord) int { return x.Time.Compare(y.Time) })
	return list, nil
}

// decodeAudit decodes JSON on lines. The files of a node do not name it, as batches in etcd do.
// Lines that an interrupted write has damaged are skipped.
func decodeAudit(node string, lines []byte) (list []agent.AuditRecord) {
	for line := range bytes.Lines(lines) {
		r := agent.AuditRecord{Node: node}
		if json.Unmarshal(line, &r) == nil {
			list = append(list, r)
		}
	}
	return list
}

func (a *app) printAudit(records []agent.AuditRecord) error {
	if len(records) == 0 {
		a.printf("no event is recorded\n")
		return nil
	}
	rows := [][]string{{"TIME", "EVENT", "POOL", "NODE", "NETWORK", "CONTAINER", "INTERFACE", "POD"}}
	for _, r := range records {
		rows = append(rows, []string{r.Time.UTC().Format(time.RFC3339), string(r.Event), r.Pool,
			r.Node, r.Network, r.Container, r.IfName, podOf(r)})
	}
	return a.table(rows)
}

func podOf(r agent.AuditRecord) string {
	if r.Namespace == "" {
		return r.Pod
	}
	return r.Namespace + "/" + r.Pod
}

// holderAt prints the holder after the last event before a time.
func (a *app) holderAt(records []agent.AuditRecord, addr netip.Addr, at time.Time) error {
	when := at.UTC().Format(time.RFC3339)
	if len(records) == 0 {
		return hint(fmt.Errorf("no event of %s is recorded before %s", addr, when),
			"pools record events only after pool set POOL --audit; add --days to search longer")
	}
	records = records[len(records)-1:]
	err := a.print(records[0], func() error { return a.printAudit(records) })
	if err == nil && records[0].Event == local.EventDel {
		a.json = false // the record is printed already
		err = fmt.Errorf("%s had no holder at %s", addr, when)
	}
	return err
}
