package doctor

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/internal/ops/plural"
)

// CNI is what the checks of the CNI side work on.
type CNI struct {
	Files       []ConfigFile  `json:"files,omitzero"`
	Mistakes    []Mistake     `json:"mistakes,omitzero"` // in the files
	Plugins     []PluginFile  `json:"plugins,omitzero"`  // in the plugin directories
	Directories []PluginDir   `json:"directories,omitzero"`
	Attachments []Attachment  `json:"attachments,omitzero"`
	Broken      []BrokenRules `json:"brokenRules,omitzero"` // of attachments in use
	Pools       []Pool        `json:"pools,omitzero"`       // of host-local
	Sockets     []Socket      `json:"sockets,omitzero"`
}

// Attachment is a recorded attachment and its state.
type Attachment struct {
	cni.Attachment
	State   inspect.State `json:"state"`
	Age     time.Duration `json:"age"` // nanoseconds since the start of ADD
	Runtime string        `json:"runtime"`
	Netns   string        `json:"netns"`

	// StateDir has the record; "" if it is the one of the options, or if libcni has the record.
	StateDir string `json:"stateDir,omitzero"`
}

// Names of parts of the state, for [State.needs].
const (
	partConfig      = "configurations"
	partPlugins     = "plugin directories"
	partAttachments = "attachments"
	partRules       = "rules of attachments"
	partPools       = "reservations of host-local"
	partSockets     = "sockets of daemons"
)

// readCNI reads the state of the CNI side: attachments, configurations, plugins, pools and daemons.
// It runs at the same time as readNode.
func (s *State) readCNI(ctx context.Context, own *netns.NS) {
	s.CNI.Attachments = source(ctx, s, partAttachments, s.readAttachments)
	var running sync.WaitGroup
	running.Go(func() {
		read := source(ctx, s, partConfig, s.readConfig)
		s.CNI.Files, s.CNI.Mistakes = read.files, read.mistakes
	})
	running.Go(func() {
		read := source(ctx, s, partPlugins, s.readPlugins)
		s.CNI.Plugins, s.CNI.Directories = read.files, read.dirs
	})
	running.Go(func() {
		s.CNI.Broken = source(
			ctx,
			s,
			partRules,
			func(ctx context.Context) (list []BrokenRules, err error) {
				err = own.Visit(func() error {
					list, err = s.readRules(ctx)
					return err
				})
				return list, err
			},
		)
	})
	running.Go(func() { s.CNI.Pools = source(ctx, s, partPools, s.readPools) })
	running.Go(func() { s.CNI.Sockets = source(ctx, s, partSockets, s.readSockets) })
	running.Wait()
}

// readAttachments returns the states of the recorded attachments.
func (s *State) readAttachments(context.Context) (list []Attachment, err error) {
	found, err := inspect.Attachments(s.Options.Records)
	for _, a := range found {
		dir := a.StateDir
		if dir == s.Options.StateDir {
			dir = ""
		}
		list = append(list, Attachment{a.Attachment, a.State, a.Age, a.Runtime, a.Netns, dir})
	}
	return list, err
}

// cniChecks returns the checks of plugin directories, configurations, records and IPAM stores.
func cniChecks() []Check {
	return slices.Concat(configChecks(), pluginChecks(), attachmentChecks(), addressChecks(),
		leftoverChecks(), daemonChecks())
}

// recorded returns the owners of the attachments of all runtimes.
func (s *State) recorded() map[cni.Owner]bool {
	known := map[cni.Owner]bool{}
	for _, r := range s.Records {
		known[r.Attachment.Owner()] = true
	}
	return known
}

// names joins names for people: at most four, and the number of the others.
func names(list []string) string {
	const most = 4
	list = slices.Clone(list)
	slices.Sort(list)
	list = slices.Compact(list)
	if len(list) > most+1 {
		return strings.Join(list[:most], ", ") + " and " + plural.Count(len(list)-most, "other")
	}
	if n := len(list); n > 1 {
		return strings.Join(list[:n-1], ", ") + " and " + list[n-1]
	}
	return strings.Join(list, "")
}
