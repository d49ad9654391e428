package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// maxSize is the largest recording that Decode accepts, in bytes of JSON. A recording with 64 calls
// that flood their outputs has half of it.
const maxSize = 256 << 20

// ErrFormat reports data that is no recording.
var ErrFormat = errors.New("not a recording")

// encoding is a recording without the sysctls of its snapshots, which are most of it and hardly change.
type encoding struct {
	Recording Recording `json:"recording"`
	// Settings has one element for each snapshot: the sysctls by the identifier of the namespace.
	Settings []map[string]delta `json:"settings"`
}

// delta is the difference of sysctls from the previous snapshot of the same namespace.
type delta struct {
	Set     map[string]string `json:"set,omitzero"`
	Deleted []string          `json:"deleted,omitzero"`
}

// Encode writes the recording as JSON, which [Decode] reads.
func (r *Recording) Encode(w io.Writer) error {
	s := encoding{Recording: *r}
	known := map[string]map[string]string{}
	strip := func(from *Snapshot) *Snapshot {
		if from == nil || from.Host == nil {
			return from
		}
		snapshot, state, deltas := *from, *from.Host, map[string]delta{}
		snapshot.Host = &state
		state.Namespaces = slices.Clone(state.Namespaces)
		for i := range state.Namespaces {
			n := &state.Namespaces[i]
			if n.Settings != nil {
				deltas[n.ID] = difference(known[n.ID], n.Settings)
				known[n.ID] = n.Settings
			}
			n.Settings = nil
		}
		s.Settings = append(s.Settings, deltas)
		return &snapshot
	}
	s.Recording.Start = strip(r.Start)
	s.Recording.Events = slices.Clone(r.Events)
	for i := range s.Recording.Events {
		e := &s.Recording.Events[i]
		e.After = strip(e.After)
	}
	return json.NewEncoder(w).Encode(&s)
}

func difference(old, now map[string]string) (d delta) {
	d.Set = map[string]string{}
	for name, value := range now {
		if was, ok := old[name]; !ok || was != value {
			d.Set[name] = value
		}
	}
	for name := range old {
		if _, ok := now[name]; !ok {
			d.Deleted = append(d.Deleted, name)
		}
	}
	slices.Sort(d.Deleted)
	return d
}

// Decode reads a recording that [Recording.Encode] wrote. It returns an error wrapping [ErrFormat] if
// the data is something else. Snapshots share the maps of sysctls that did not change: callers must
// not modify them.
func Decode(from io.Reader) (*Recording, error) {
	limited := &io.LimitedReader{R: from, N: maxSize}
	var s encoding
	if err := json.NewDecoder(limited).Decode(&s); err != nil {
		if limited.N == 0 {
			err = fmt.Errorf("longer than %d MiB", maxSize>>20)
		}
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	r := &s.Recording
	known := map[string]map[string]string{}
	next := 0
	for _, snapshot := range r.snapshots() {
		if next == len(s.Settings) {
			return nil, fmt.Errorf("%w: a snapshot lacks its sysctls", ErrFormat)
		}
		deltas := s.Settings[next]
		next++
		for i := range snapshot.Host.Namespaces {
			n := &snapshot.Host.Namespaces[i]
			if d, ok := deltas[n.ID]; ok {
				known[n.ID] = d.apply(known[n.ID])
				n.Settings = known[n.ID]
			}
		}
	}
	return r, r.valid()
}

// snapshots returns the snapshots of a recording in their order.
func (r *Recording) snapshots() (list []*Snapshot) {
	if r.Start != nil && r.Start.Host != nil {
		list = append(list, r.Start)
	}
	for _, e := range r.Events {
		if e.After != nil && e.After.Host != nil {
			list = append(list, e.After)
		}
	}
	return list
}

func (d delta) apply(old map[string]string) map[string]string {
	if len(d.Set) == 0 && len(d.Deleted) == 0 && old != nil {
		return old
	}
	now := maps.Clone(old)
	if now == nil {
		now = map[string]string{}
	}
	maps.Copy(now, d.Set)
	for _, name := range d.Deleted {
		delete(now, name)
	}
	return now
}

// valid reports an error unless checks can rely on the structure: each event belongs to a step and has
// its results, and each snapshot comes after the first one and has the namespace of the cell.
func (r *Recording) valid() error {
	if err := r.Scenario.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	for i, e := range r.Events {
		if e.Step != i || i >= len(r.Scenario.Steps) || len(e.Calls) != len(r.Scenario.Steps[i].Calls) {
			return fmt.Errorf("%w: event %d belongs to no step", ErrFormat, i)
		}
		for k, c := range e.Calls {
			if c.Name != r.Scenario.Steps[i].Calls[k].Name {
				return fmt.Errorf("%w: event %d has the result of another call", ErrFormat, i)
			}
		}
	}
	if r.Broken == "" && len(r.Events) != len(r.Scenario.Steps) {
		return fmt.Errorf("%w: it has ended early", ErrFormat)
	}
	states := []*Snapshot{r.Start}
	for _, e := range r.Events {
		states = append(states, e.After)
	}
	for _, s := range states {
		if s != nil && r.Start == nil {
			return fmt.Errorf("%w: it lacks the first snapshot", ErrFormat)
		}
		if s != nil && (s.Host == nil || len(s.Host.Namespaces) == 0) {
			return fmt.Errorf("%w: a snapshot lacks the namespace of the cell", ErrFormat)
		}
	}
	return nil
}
