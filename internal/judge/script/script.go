package script

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// The paths within the cell in which a scenario runs.
const (
	Dir     = "/run/conform"  // of the judge, on a file system that ends with the scenario
	Plugins = Dir + "/bin"    // the directory in CNI_PATH
	Outputs = Dir + "/output" // standard output of each call: NAME
	Calls   = Dir + "/calls"  // what scripted plugins recorded, see [Recorder]
	Netns   = "/run/netns"    // namespaces of containers, as ip(8) creates them

	DaemonLog = Dir + "/daemon.log" // outputs of daemons
)

// DefaultDeadline is the time that a call may take unless it sets another.
const DefaultDeadline = 60 * time.Second

// Scenario is a series of steps in a host of its own: network namespace, processes and files.
type Scenario struct {
	Name    string `json:"name"`    // unique for a subject and version: "del-twice"
	Version string `json:"version"` // of the specification; empty if it concerns none
	Role    string `json:"role,omitzero"`
	// Programs are copied into [Plugins] by the base names of their paths on the host.
	Programs []string `json:"programs,omitzero"`
	Files    []File   `json:"files,omitzero"` // written before the first step
	// NoDetection disables the detection of duplicate IPv6 addresses on the host, which takes more than
	// a second.
	NoDetection bool   `json:"noDetection,omitzero"`
	Steps       []Step `json:"steps"`
}

// File is a file in the cell.
type File struct {
	Path string `json:"path"`
	Data string `json:"data"`
	Mode uint32 `json:"mode,omitzero"` // 0o644 if zero
}

// Step is a shell command, a new container, a call, several calls at the same time, or a daemon.
type Step struct {
	// Container is created by the judge itself: scenarios have many, and commands would cost more time
	// than the calls.
	Container *Container `json:"container,omitzero"`
	// Daemon is a text for sh(1), which is executed in the background until the end of the scenario.
	// The step waits until Shell succeeds, unless that is empty. Processes of the daemon are no
	// survivors of a call.
	Daemon string `json:"daemon,omitzero"`
	// Shell is a text for sh(1), executed with -e. A step that fails ends the scenario, unless Try.
	Shell string `json:"shell,omitzero"`
	Try   bool   `json:"try,omitzero"`
	Calls []Call `json:"calls,omitzero"`
	// Quiet leaves out the snapshot after the step. Steps of the preparation need none.
	Quiet bool `json:"quiet,omitzero"`
}

// Call is one execution of a program.
type Call struct {
	Name string   `json:"name"` // unique in the scenario: "add"
	Path string   `json:"path"` // of the program in the cell
	Args []string `json:"args,omitzero"`
	Env  []string `json:"env"` // the complete environment, "KEY=VALUE"
	// Stdin is empty for a call without standard input.
	Stdin    Text          `json:"stdin,omitzero"`
	Deadline time.Duration `json:"deadline,omitzero"` // 0: DefaultDeadline
	// Open keeps the standard input open after the text until the process ends.
	Open bool `json:"open,omitzero"`
	// Fault traces the call; nil does not.
	Fault *Fault `json:"fault,omitzero"`
}

// Fault disturbs a call at one of the system calls of its first process that change something outside
// the process.
type Fault struct {
	Effect Effect `json:"effect"`
	N      int    `json:"n"` // index of the change, from 0
}

func (f *Fault) String() string {
	switch f.Effect {
	case KillBefore:
		return fmt.Sprintf("the judge kills this call before change %d; a shell cannot, see tenon conform replay", f.N+1)
	case FailWith:
		return fmt.Sprintf("the judge lets change %d of this call fail; a shell cannot, see tenon conform replay", f.N+1)
	}
	return "the judge counts the changes of this call"
}

// Effect is the effect of a fault.
type Effect string

// The effects.
const (
	NoEffect   Effect = "none"
	KillBefore Effect = "kill" // SIGKILL before the system call
	FailWith   Effect = "fail" // the system call fails with an error that the kernel can return
)

// Text is a text that can contain the output of earlier calls.
type Text []Part

// Part is literal text of any bytes, or the standard output of the call named Output.
type Part struct {
	Literal string `json:"literal,omitzero"`
	Repeat  int    `json:"repeat,omitzero"` // number of times that Literal occurs, if not once
	Output  string `json:"output,omitzero"`
}

// Literal returns a text without parts of other calls.
func Literal(s string) Text { return Text{{Literal: s}} }

// Object returns the JSON text of an object. A value of type Text is inserted as it is.
func Object(members map[string]any) (Text, error) {
	plain := map[string]any{}
	var inserted []string
	for k, v := range members {
		if _, is := v.(Text); is {
			inserted = append(inserted, k)
			continue
		}
		plain[k] = v
	}
	b, err := json.Marshal(plain)
	if err != nil {
		return nil, err
	}
	out := Text{{Literal: string(b[:len(b)-1])}}
	slices.Sort(inserted)
	separator := ","
	if len(plain) == 0 {
		separator = ""
	}
	for _, k := range inserted {
		name, err := json.Marshal(k)
		if err != nil {
			return nil, err
		}
		out = append(out, Part{Literal: separator + string(name) + ":"})
		out = append(out, members[k].(Text)...)
		separator = ","
	}
	return append(out, Part{Literal: "}"}), nil
}

// Expand returns the text with the outputs of calls.
func (t Text) Expand(output func(call string) []byte) []byte {
	var b []byte
	for _, p := range t {
		for range max(p.Repeat, 1) {
			b = append(b, p.Literal...)
		}
		if p.Output != "" {
			b = append(b, output(p.Output)...)
		}
	}
	return b
}

// Validate reports an error of the scenario: names that are not unique, and references to calls that
// do not come before.
func (s *Scenario) Validate() error {
	known := map[string]bool{}
	for i, step := range s.Steps {
		kinds := 0
		for _, is := range []bool{step.Shell != "" || step.Daemon != "", len(step.Calls) > 0, step.Container != nil} {
			if is {
				kinds++
			}
		}
		if kinds != 1 {
			return fmt.Errorf("scenario %s: step %d must be a command, a container or calls", s.Name, i)
		}
		for _, c := range step.Calls {
			for _, p := range c.Stdin {
				if p.Output != "" && !known[p.Output] {
					return fmt.Errorf("scenario %s: call %s refers to %s", s.Name, c.Name, p.Output)
				}
			}
		}
		for _, c := range step.Calls {
			if c.Name == "" || known[c.Name] {
				return fmt.Errorf("scenario %s: name %q of a call is empty or not unique", s.Name, c.Name)
			}
			known[c.Name] = true
		}
	}
	return nil
}
