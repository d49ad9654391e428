// Package traceview reads the spans that package trace has written, as trees of operations, and
// renders them: as steps for people, in HTML, and as OTLP for other programs. Package text prints
// the steps.
package traceview

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/internal/trace"
)

// Span is a step of an operation.
type Span struct {
	trace.Record
	Children   []*Span // in the order of their start
	Unfinished bool    // the process ended before the step, or has not ended
}

// Duration returns the time from the start to the end of the span.
func (s *Span) Duration() time.Duration { return time.Duration(s.End - s.Start) }

// Text returns an attribute that is a text, or "".
func (s *Span) Text(key string) string {
	text, _ := s.Attributes[key].(string)
	return text
}

// Texts returns an attribute that is a list of texts.
func (s *Span) Texts(key string) (list []string) {
	switch values := s.Attributes[key].(type) {
	case []string:
		return values
	case []any:
		for _, v := range values {
			if text, ok := v.(string); ok {
				list = append(list, text)
			}
		}
	}
	return list
}

// Read returns the operations in a file of spans, in the order of their start. damaged is the
// number of lines that cannot be read. Plugins that a runtime has called one after another for the
// same verb and attachment form one operation.
func Read(r io.Reader) (operations []*Span, damaged int, err error) {
	content, err := io.ReadAll(r)
	if err != nil {
		return nil, 0, err
	}
	type key struct{ trace, id string }
	records := map[key]trace.Record{}
	for line := range bytes.Lines(content) {
		record, ok := decode(line)
		if !ok {
			damaged++
			continue
		}
		if k := (key{record.Trace, record.ID}); records[k].End == 0 {
			records[k] = record
		}
	}
	byTrace := map[string][]trace.Record{}
	for k, record := range records {
		byTrace[k.trace] = append(byTrace[k.trace], record)
	}
	var roots []*Span
	for _, id := range slices.Sorted(maps.Keys(byTrace)) {
		roots = append(roots, trees(byTrace[id])...)
	}
	slices.SortStableFunc(roots, byStart)
	return join(roots), damaged, nil
}

// decode decodes a line. If an earlier record was torn, it decodes the last record of the line.
func decode(line []byte) (r trace.Record, ok bool) {
	for len(line) > 0 {
		r = trace.Record{}
		if json.Unmarshal(line, &r) == nil && r.ID != "" && r.Trace != "" {
			return r, true
		}
		next := bytes.Index(line[1:], []byte(trace.Beginning))
		if next < 0 {
			break
		}
		line = line[1+next:]
	}
	return r, false
}

// trees returns the roots of the spans of one trace.
func trees(records []trace.Record) (roots []*Span) {
	slices.SortFunc(records, func(a, b trace.Record) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.ID, b.ID))
	})
	reference := records[0]
	spans := map[string]*Span{}
	list := make([]*Span, len(records))
	for i, r := range records {
		took := max(0, r.End-r.Start)
		if r.Mono != 0 && reference.Mono != 0 { // the wall clock may have been set meanwhile
			r.Start = reference.Start + r.Mono - reference.Mono
		}
		list[i] = &Span{Record: r, Unfinished: r.End == 0}
		list[i].End = r.Start + took
		spans[r.ID] = list[i]
	}
	for _, s := range list {
		if parent := spans[s.Parent]; parent != nil && !descends(spans, parent, s) {
			parent.Children = append(parent.Children, s)
		} else {
			roots = append(roots, s)
		}
	}
	for _, s := range roots {
		s.settle()
	}
	return roots
}

// descends reports whether s is of or one of its descendants. Only a damaged file has such a
// parent.
func descends(spans map[string]*Span, s, of *Span) bool {
	for range spans {
		if s == nil || s == of {
			break
		}
		s = spans[s.Parent]
	}
	return s != nil
}

// settle sorts the children and gives unfinished spans the end of their last descendant.
func (s *Span) settle() {
	slices.SortStableFunc(s.Children, byStart)
	for _, c := range s.Children {
		c.settle()
		if s.Unfinished {
			s.End = max(s.End, c.End)
		}
	}
}

func byStart(a, b *Span) int { return cmp.Compare(a.Start, b.Start) }

// joinWithin is the longest time between two calls of plugins that belong to one operation.
const joinWithin = 2 * time.Second

// join puts the calls of plugins that have no common parent in the file below an operation.
func join(roots []*Span) (operations []*Span) {
	last := map[string]*Span{} // the last operation of each attachment
	for _, s := range roots {
		if s.Kind == trace.Operation {
			operations = append(operations, s)
			continue
		}
		attachment := s.title("")
		o := last[attachment]
		if o == nil || !s.follows(o) {
			o = &Span{Record: s.Record}
			o.Kind, o.Error = trace.Operation, ""
			o.ID = otherID(s.ID)
			o.Name = s.title(s.Text(trace.Verb))
			o.Attributes = maps.Clone(s.Attributes)
			for _, key := range []string{trace.PluginType, trace.PluginPath, trace.ErrorCode} {
				delete(o.Attributes, key)
			}
			operations, last[attachment] = append(operations, o), o
		}
		o.Children = append(o.Children, s)
		o.End, o.Error = max(o.End, s.End), cmp.Or(o.Error, s.Error)
		o.Unfinished = o.Unfinished || s.Unfinished
	}
	return operations
}

// otherID returns an identifier that differs from the ones in the file: package trace sets the last
// bit of its identifiers, and otherID inverts it.
func otherID(id string) string {
	const digits = "0123456789abcdef"
	last := len(id) - 1
	return id[:last] + string(digits[max(0, strings.IndexByte(digits, id[last]))^1])
}

// title returns what [Title] returns for the attachment of a span.
func (s *Span) title(verb string) string {
	return Title(verb, s.Text(trace.Network), s.Text(trace.ContainerID), s.Text(trace.IfName))
}

// follows reports whether the call of a plugin is part of the operation o.
func (s *Span) follows(o *Span) bool {
	verb, gap := s.Text(trace.Verb), time.Duration(s.Start-o.End)
	return o.Text(trace.Verb) == verb && o.Parent == s.Parent && gap < joinWithin &&
		(o.Error == "" || verb != "ADD")
}

// Title returns the name of an operation on an attachment or a network.
func Title(verb, network, container, ifName string) string {
	title := verb
	switch {
	case network != "" && container != "":
		title += " " + network + "/" + container
	case network+container != "":
		title += " " + network + container
	}
	if ifName != "" {
		title += " " + ifName
	}
	return title
}
