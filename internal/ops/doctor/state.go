package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/netns"
	"github.com/tenon-cni/tenon/internal/ops/why"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// Options name the directories that doctor looks at.
type Options struct {
	Records    []network.Record // attachments, see [network.Client.ListHost]
	NetDir     string
	PluginDirs []string
	StateDir   string
	CacheDir   string   // of libcni; "" if it is ignored
	Damaged    []string // errors about attachment records that cannot be read
	// Client asks plugins for their versions and applies fixes; nil disables both.
	Client *network.Client `json:"-"`

	OnlyPaths bool // see [host.Options]
}

// State is what the checks work on: one snapshot of the host, read before the first check runs.
// Checks read nothing else, so that their answers agree, and a stored State gives the same findings
// on another host.
type State struct {
	*why.Places
	Options  Options   `json:"options"`
	Networks []Network `json:"networks"` // by name
	Node     Node      `json:"node"`     // for the checks of the host
	CNI      CNI       `json:"cni"`      // for the checks of the CNI side
	// Missing are the parts that could not be read, with the reason. Checks that need one return
	// [Skip].
	Missing map[string]string `json:"missing,omitzero"`

	missing sync.Mutex // guards Missing while the parts are read
}

// Network is a network that runtimes use: configured in the directory, or recorded for an
// attachment.
type Network struct {
	Name       string   `json:"name"`
	Source     string   `json:"source,omitzero"` // the file; "" if there is none any more
	Plugins    []Plugin `json:"plugins"`
	Containers int      `json:"containers"` // attachments

	list *cni.List
}

// Plugin is the configuration of a plugin in a network.
type Plugin struct {
	Type string          `json:"type"`
	Conf json.RawMessage `json:"conf"`
}

// Read reads the state of this host. The error is about the namespace of the caller.
func Read(ctx context.Context, o Options) (*State, error) {
	own, err := netns.Current()
	if err != nil {
		return nil, err
	}
	defer own.Close()
	from := host.Options{Partial: true, OnlyPaths: o.OnlyPaths}
	for _, rec := range o.Records {
		if rec.Netns != "" {
			from.Paths = append(from.Paths, rec.Netns)
		}
	}
	h, err := host.Read(ctx, from)
	if err != nil {
		return nil, err
	}
	s := &State{Places: &why.Places{Host: h, Records: o.Records}, Options: o}
	for _, m := range h.Own().Missing {
		s.miss(m.What, m.Reason)
	}
	s.Networks = networks(s.configured(), o.Records)
	var running sync.WaitGroup
	running.Go(func() { s.readNode(ctx, own) })
	running.Go(func() { s.readCNI(ctx, own) })
	running.Wait()
	return s, nil
}

// Checks returns all checks, in the order of the output.
func Checks() []Check { return append(hostChecks(), cniChecks()...) }

// configured returns the networks that runtimes find in the directory. The checks of the CNI side
// report broken files.
func (s *State) configured() (list []Network) {
	if s.Options.NetDir == "" {
		return nil
	}
	catalog, err := config.Discover(s.Options.NetDir)
	if err != nil {
		return nil
	}
	for _, f := range catalog.Files {
		if f.Network != nil && f.Use == config.Chosen {
			list = append(list, newNetwork(f.Network.List, f.Network.Source))
		}
	}
	return list
}

// networks adds the networks of attachments to the configured ones.
func networks(list []Network, records []network.Record) []Network {
	for _, rec := range records {
		name := rec.Attachment.Network
		i := slices.IndexFunc(list, func(n Network) bool { return n.Name == name })
		if i < 0 {
			i, list = len(list), append(list, newNetwork(rec.List, ""))
			list[i].Name = name
		}
		list[i].Containers++
	}
	return list
}

func newNetwork(l *cni.List, source string) Network {
	if l == nil {
		return Network{Source: source}
	}
	n := Network{Name: l.Name, Source: source, list: l}
	for _, p := range l.Plugins {
		conf, err := p.MarshalJSON()
		if err != nil {
			conf = json.RawMessage("{}")
		}
		n.Plugins = append(n.Plugins, Plugin{p.Type, conf})
	}
	return n
}

// sourceDeadline limits the time to read one source of the state.
const sourceDeadline = time.Second

// deadlines limit sources that take longer on a busy host: some only compute, and plugin directories
// contain large programs.
var deadlines = map[string]time.Duration{
	partRules: 10 * time.Second, partFeatures: 10 * time.Second, partInotify: 10 * time.Second,
	partPlugins: 5 * time.Second,
}

// source reads a part of the state. An error, or a deadline that passes, is noted in Missing under
// the name.
func source[T any](
	ctx context.Context, s *State, name string, read func(context.Context) (T, error),
) (value T) {
	limit := cmp.Or(deadlines[name], sourceDeadline)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		v, err := read(ctx)
		answers <- answer{v, err}
	}()
	var a answer
	select {
	case a = <-answers:
	case <-ctx.Done():
		a.err = fmt.Errorf("not read after %v: %w", limit, ctx.Err())
	}
	if a.err != nil {
		s.miss(name, a.err.Error())
	}
	return a.value
}

// miss notes that a part could not be read.
func (s *State) miss(name, reason string) {
	s.missing.Lock()
	defer s.missing.Unlock()
	if s.Missing == nil {
		s.Missing = map[string]string{}
	}
	s.Missing[name] = reason
}

// needs returns an error made by [Skip] if one of the parts could not be read.
func (s *State) needs(parts ...string) error {
	for _, p := range parts {
		if reason, missing := s.Missing[p]; missing {
			return Skip("%s", strings.TrimPrefix(p+": "+reason, partPrivilege+": "))
		}
	}
	return nil
}
