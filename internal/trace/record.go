package trace

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Record is a span as a line of the file. A span can have two records, of its beginning, without
// End, and of its end.
type Record struct {
	Trace      string         `json:"trace"` // 32 hexadecimal digits
	ID         string         `json:"span"`  // 16 hexadecimal digits
	Parent     string         `json:"parent,omitempty"`
	Name       string         `json:"name"`
	Kind       Kind           `json:"kind"`
	PID        int            `json:"pid"`
	Start      int64          `json:"start"`         // Unix time in nanoseconds
	End        int64          `json:"end,omitempty"` // 0 if the span has not ended
	Mono       int64          `json:"mono"`          // CLOCK_MONOTONIC at the start, in nanoseconds
	Attributes map[string]any `json:"attributes,omitempty"`
	Error      string         `json:"error,omitempty"`
}

// Beginning begins every line of the file.
const Beginning = `{"trace":"`

func (r *Record) set(key string, value any) {
	if r.Attributes == nil {
		r.Attributes = map[string]any{}
	}
	r.Attributes[key] = value
}

// maxLine is the length of the longest line in bytes. Writes of this size to a pipe are atomic
// (PIPE_BUF in pipe(7)); for a regular file the kernel serializes all writes that append.
const maxLine = 4096

// limits are the numbers of list entries, and of bytes in a text, that an encoding keeps; the last
// ones always fit a line.
var limits = []struct{ entries, text int }{{64, 1024}, {16, 160}, {4, 48}, {0, 16}}

// identity lists the attributes that are neither masked nor shortened unless the line would be too
// long, because readers find the spans of an attachment by them.
var identity = []string{Verb, PluginType, Network, ContainerID, IfName}

// encode returns the record as a line of at most maxLine bytes. It shortens texts and lists that
// are too long and masks the hidden values.
func (r Record) encode(hidden []string) []byte {
	var line []byte
	for i, limit := range limits {
		short := func(text string) string {
			for _, value := range hidden {
				text = strings.ReplaceAll(text, value, "…")
			}
			if len(text) > limit.text {
				text = strings.ToValidUTF8(text[:limit.text], "") + "…"
			}
			return text
		}
		keep := identity
		if i == len(limits)-1 {
			keep = nil
		}
		line, _ = json.Marshal(r.shortened(short, limit.entries, keep)) // has only texts and numbers
		if len(line) < maxLine {
			break
		}
	}
	return append(line, '\n')
}

// shortened returns the record with texts that passed through short, and lists of at most entries
// entries. It keeps the attributes with these keys and, if there are any, the names of calls.
func (r Record) shortened(short func(string) string, entries int, keep []string) Record {
	out := r
	out.Error = short(r.Error)
	if r.Kind == Change || r.Kind == Undo || r.Kind == Wait || keep == nil {
		out.Name = short(r.Name)
	}
	out.Attributes = make(map[string]any, len(r.Attributes))
	for key, value := range r.Attributes {
		switch text := value.(type) {
		case string:
			if !slices.Contains(keep, key) {
				value = short(text)
			}
		case []string:
			value = shortList(text, entries, short)
		}
		out.Attributes[key] = value
	}
	return out
}

func shortList(list []string, most int, short func(string) string) []string {
	kept := make([]string, 0, min(len(list), most)+1)
	for i, text := range list {
		if i == most {
			kept = append(kept, fmt.Sprintf("… %d more", len(list)-most))
			break
		}
		kept = append(kept, short(text))
	}
	return kept
}
