package script

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/internal/host"
)

// Recording is what happened in a scenario.
type Recording struct {
	Scenario Scenario `json:"scenario"`
	// Start is the state before the first step that takes a snapshot.
	Start  *Snapshot     `json:"start,omitzero"`
	Events []Event       `json:"events"`
	Took   time.Duration `json:"took"`
	// Broken explains why the judge could not finish the scenario; checks then have the outcome error.
	Broken string `json:"broken,omitzero"`
	// Skipped lists what the cell lacks on this host, and Unlimited the limits that it lacks. Limits
	// protect the host; no verdict depends on them.
	Skipped   []string `json:"skipped,omitzero"`
	Unlimited []string `json:"unlimited,omitzero"`
}

// Event is a step that was executed.
type Event struct {
	Step   int       `json:"step"`
	Output string    `json:"output,omitzero"` // of a shell step
	Status int       `json:"status,omitzero"` // of a shell step with Try
	Calls  []Result  `json:"calls,omitzero"`
	After  *Snapshot `json:"after,omitzero"`
}

// Result is a call that ended.
type Result struct {
	Name   string `json:"name"`
	Stdin  []byte `json:"stdin,omitzero"` // as sent, at most 64 KiB
	Stdout []byte `json:"stdout,omitzero"`
	Stderr []byte `json:"stderr,omitzero"`
	// Flooded reports that an output exceeded the limit, and the process was killed.
	Flooded bool          `json:"flooded,omitzero"`
	Status  int           `json:"status"`          // exit status; -1 if a signal ended the process
	Signal  int           `json:"signal,omitzero"` // that ended it
	Late    bool          `json:"late,omitzero"`   // killed at its deadline
	Failed  string        `json:"failed,omitzero"` // error of the start: "permission denied"
	Took    time.Duration `json:"took"`
	// Held reports that a process that the call left behind keeps an output open.
	Held bool `json:"held,omitzero"`
	// Forked reports that there were too many processes, and all were killed. Like Survivors, it is in
	// the first result of a step.
	Forked bool `json:"forked,omitzero"`
	// Survivors are the names of processes that the call left behind. They are killed.
	Survivors []string `json:"survivors,omitzero"`
	// Changes are the system calls of a call with a fault that change something outside the process.
	Changes []Change `json:"changes,omitzero"`
	Hit     bool     `json:"hit,omitzero"` // the fault took place
	// Recorded are the calls of scripted plugins since the previous step, in the order of their start.
	// In a step with several calls, all of them are part of the first.
	Recorded []Recorded `json:"recorded,omitzero"`
}

// Change is a system call that changes something outside the process.
type Change struct {
	Name    string `json:"name"` // the call and its object: "sendto RTM_NEWLINK"
	CanFail bool   `json:"canFail,omitzero"`
}

// Recorded is the call of a scripted plugin, see [Recorder].
type Recorded struct {
	Plugin string   `json:"plugin"`
	Env    []string `json:"env"`
	Stdin  []byte   `json:"stdin"`
	Status int      `json:"status"` // -1 if it was killed
}

// Getenv returns a variable of the recorded environment.
func (r Recorded) Getenv(key string) string {
	for _, kv := range r.Env {
		if k, v, _ := strings.Cut(kv, "="); k == key {
			return v
		}
	}
	return ""
}

// Snapshot is the state of the cell.
type Snapshot struct {
	Host *host.Host `json:"host"`
	// Files of the writable file systems, by path, except the judge's own.
	Files map[string]FileState `json:"files"`
	// Containers maps the names of containers to the identifiers of their namespaces.
	Containers map[string]string `json:"containers,omitzero"`
}

// Lacks returns what the cell lacks, and parts of the state that the snapshots lack.
func (r *Recording) Lacks() []string {
	list := slices.Clone(r.Skipped)
	add := func(s *Snapshot) {
		if s == nil || s.Host == nil {
			return
		}
		missing := slices.Clone(s.Host.Skipped)
		for _, n := range s.Host.Namespaces {
			missing = append(missing, n.Missing...)
		}
		for _, m := range missing {
			if text := fmt.Sprintf("cannot read %s: %s", m.What, m.Reason); !slices.Contains(list, text) {
				list = append(list, text)
			}
		}
	}
	add(r.Start)
	for _, e := range r.Events {
		add(e.After)
	}
	return list
}

// FileState describes a file.
type FileState struct {
	Mode   string `json:"mode"`
	Size   int64  `json:"size,omitzero"`
	Digest string `json:"digest,omitzero"` // SHA-256 of the content; target of a symbolic link
}

// Container returns the namespace of a container, nil if it has ended.
func (s *Snapshot) Container(name string) *host.Namespace {
	id, ok := s.Containers[name]
	if !ok {
		return nil
	}
	return s.Host.Namespace(id)
}

// Call returns the result of a call, and whether it took place.
func (r *Recording) Call(name string) (Result, bool) {
	for _, e := range r.Events {
		for _, c := range e.Calls {
			if c.Name == name {
				return c, true
			}
		}
	}
	return Result{}, false
}

// Before returns the last snapshot before the call of a name, and After the first one behind it.
func (r *Recording) Before(name string) *Snapshot {
	last := r.Start
	for _, e := range r.Events {
		for _, c := range e.Calls {
			if c.Name == name {
				return last
			}
		}
		if e.After != nil {
			last = e.After
		}
	}
	return last
}

// After returns the first snapshot behind the call of a name, nil if there is none.
func (r *Recording) After(name string) *Snapshot {
	found := false
	for _, e := range r.Events {
		for _, c := range e.Calls {
			found = found || c.Name == name
		}
		if found && e.After != nil {
			return e.After
		}
	}
	return nil
}
