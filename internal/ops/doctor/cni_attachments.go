package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/internal/ops/plural"
	"github.com/tenon-cni/tenon/network"
)

func attachmentChecks() []Check {
	return []Check{
		{ID: "attachments.namespace", Title: "attachments of containers that no longer exist",
			Run: privileged(checkGone)},
		{ID: "attachments.interrupted", Title: "interrupted ADDs and DELs, and earlier boots",
			Run: privileged(checkInterrupted)},
		{ID: "attachments.records", Title: "attachment records that cannot be read",
			Run: privileged(checkRecords)},
		{
			ID:    "attachments.rules",
			Title: "missing rules of attachments",
			Run:   privileged(checkRules),
		},
		{
			ID:    "attachments.interfaces",
			Title: "missing interfaces, addresses and routes of containers",
			Run:   privileged(checkInterfaces),
		},
		{
			ID:    "attachments.ports",
			Title: "host ports that several containers publish",
			Run:   privileged(checkPorts),
		},
	}
}

// checkGone finds attachments without a network namespace. Safe fixes detach only attachments of
// the command tenon: another runtime detaches its containers itself when it runs again.
func checkGone(_ context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partAttachments); err != nil {
		return nil, err
	}
	byRuntime := map[[2]string][]Attachment{}
	for _, a := range s.CNI.Attachments {
		if a.State == inspect.NamespaceGone {
			key := [2]string{a.Runtime, a.StateDir}
			byRuntime[key] = append(byRuntime[key], a)
		}
	}
	for key, gone := range byRuntime {
		runtime, command := key[0], inDir("tenon prune", key[1])
		f := Finding{ID: "attachments.namespace-gone", Severity: Warning, Affects: containers(gone),
			Objects: objects(gone...),
			Text:    "Addresses, rules and records stay in use until the attachments are removed.",
			Evidence: []Evidence{{"tenon ps", fmt.Sprintf("%s %s", gone[0].Attachment,
				inspect.NamespaceGone)}}}
		if len(gone) == 1 {
			a := gone[0]
			f.Title = fmt.Sprintf(
				"the network namespace of %s no longer exists, its attachment to "+
					"network %s does (%s)",
				a.Container,
				a.Network,
				a.IfName,
			)
			f.Evidence = append(f.Evidence, Evidence{"ls " + a.Netns, "No such file or directory"})
		} else {
			f.Title = fmt.Sprintf("%d attachments belong to network namespaces that no longer exist: %s",
				len(gone), names(containers(gone)))
		}
		if fix := (Fix{Command: command, Safe: true,
			Effect: "runs DEL with the recorded configuration and removes the records"}); runtime == "tenon" {
			fix.Apply = s.detach(gone)
			f.Fix = append(f.Fix, fix)
		} else {
			f.Owner = runtime
			f.Fix = append(f.Fix, Fix{Command: command + " --all-runtimes",
				Effect: "unless " + runtime + " still runs: it detaches its containers itself"})
		}
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.Owner, b.Owner), strings.Compare(a.Title, b.Title))
	})
	return list, nil
}

// inDir returns a command for the attachments in a state directory, "" for the usual one.
func inDir(command, dir string) string {
	if dir == "" {
		return command
	}
	return command + " --state-dir " + dir
}

func containers(list []Attachment) (ids []string) {
	for _, a := range list {
		ids = append(ids, a.Container)
	}
	return ids
}

// detach returns a fix that runs DEL for attachments. Del fails for one that is attached again.
func (s *State) detach(gone []Attachment) func(context.Context) error {
	c := s.Options.Client
	if c == nil {
		return nil
	}
	return func(ctx context.Context) error {
		var errs []error
		for _, a := range gone {
			there := c.For(network.Record{StateDir: a.StateDir})
			errs = append(errs, there.Del(ctx, a.Attachment, network.Fallback{}))
		}
		return errors.Join(errs...)
	}
}

// operationTime is the time after which an operation counts as interrupted.
const operationTime = 2 * network.DefaultTimeout

// checkInterrupted finds what [network.Client.Recover] detaches.
func checkInterrupted(_ context.Context, s *State) ([]Finding, error) {
	if err := s.needs(partAttachments); err != nil {
		return nil, err
	}
	due, old := map[string][]string{}, map[string]bool{} // by directory
	for _, a := range s.CNI.Attachments {
		if a.Runtime == network.ReferenceRuntime {
			continue // libcni does not record its progress
		}
		dir := a.StateDir
		switch a.State {
		case inspect.EarlierBoot:
			old[dir] = true
			due[dir] = append(due[dir], fmt.Sprintf("%s (attached before the last boot)", a.Attachment))
		case inspect.Adding, inspect.Deleting:
			old[dir] = old[dir] || a.Age > operationTime
			due[dir] = append(due[dir],
				fmt.Sprintf("%s (%s for %s)", a.Attachment, a.State, ipam.FormatAge(a.Age)))
		}
	}
	var list []Finding
	for _, dir := range slices.Sorted(maps.Keys(due)) {
		if !old[dir] { // all are in progress
			continue
		}
		fix := Fix{Command: inDir("tenon recover", dir), Safe: true,
			Effect: "waits for operations in progress, then runs DEL for what they left behind"}
		if c := s.Options.Client; c != nil {
			there := c.For(network.Record{StateDir: dir})
			fix.Apply = func(ctx context.Context) error { return there.Recover(ctx, nil) }
		}
		list = append(list, Finding{ID: "attachments.interrupted", Severity: Warning,
			Title:    "interrupted operations have left something behind: " + names(due[dir]),
			Evidence: []Evidence{{"tenon ps", due[dir][0]}}, Fix: []Fix{fix}})
	}
	return list, nil
}

func checkRecords(_ context.Context, s *State) ([]Finding, error) {
	if len(s.Options.Damaged) == 0 {
		return nil, nil
	}
	return []Finding{{ID: "attachments.damaged", Severity: Warning,
		Title: plural.Count(len(s.Options.Damaged), "attachment record") + " cannot be read",
		Text: "GC removes nothing of networks with such records, because it cannot know whether the " +
			"container still exists: " + strings.Join(
			s.Options.Damaged,
			"; ",
		) + ".",
		Evidence: []Evidence{{"ls " + s.Options.StateDir, ""}},
		Fix: []Fix{{Command: "tenon del NETWORK - --id CONTAINER",
			Effect: "once the container has ended; tenon recover removes records of earlier boots"}}}}, nil
}
