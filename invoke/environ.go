package invoke

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/trace"
)

// journalOff makes plugins of Tenon write no journal.
const journalOff = "TENON_JOURNAL=off"

func (p Process) environ(ctx context.Context, c Call) []string {
	env := c.Env
	var extra []string
	if p.Environ != nil {
		extra = p.Environ(ctx)
	}
	if c.Journaled {
		extra = append(slices.Clip(extra), journalOff)
	}
	if t, ok := TraceFrom(ctx); ok && !setsTrace(extra) {
		extra = slices.Concat(t.Environ(), extra)
	}
	if s := trace.From(ctx); s != nil {
		extra = slices.Concat(extra, s.Environ())
	}
	if p.Base == nil {
		return mergeEnviron(os.Environ(), extra, protocolNames(), env.Environ())
	}
	if cni.EnvFrom(lookup(p.Base)) == env {
		return mergeEnviron(p.Base, extra, nil, nil)
	}
	return mergeEnviron(p.Base, extra, protocolNames(), env.Environ())
}

// lookup returns a function that reads a variable in vars, as [os.Getenv] does in the environment
// of this process.
func lookup(vars []string) func(name string) string {
	values := make(map[string]string, len(vars))
	for _, kv := range vars {
		name, value, _ := strings.Cut(kv, "=")
		values[name] = value
	}
	return func(name string) string { return values[name] }
}

func setsTrace(vars []string) bool {
	return slices.ContainsFunc(vars, func(kv string) bool { return name(kv) == "TRACEPARENT" })
}

// mergeEnviron returns the environment of a plugin without duplicate names: later sources take
// precedence, and within a source the last entry. The names in drop are not inherited.
func mergeEnviron(inherited, extra, drop, protocol []string) []string {
	if setsTrace(extra) {
		drop = append(drop, "TRACESTATE", "BAGGAGE")
	}
	inherited = slices.DeleteFunc(slices.Clone(inherited),
		func(kv string) bool { return slices.Contains(drop, name(kv)) })
	all := slices.Concat(inherited, extra, protocol)
	merged := make([]string, 0, len(all))
	seen := map[string]bool{}
	for _, kv := range slices.Backward(all) {
		if n := name(kv); !seen[n] {
			seen[n] = true
			merged = append(merged, kv)
		}
	}
	slices.Reverse(merged)
	return merged
}

// protocolNames returns the variables of [cni.Env]. Other variables that start with CNI_ belong to
// plugins.
func protocolNames() []string {
	var names []string
	cni.EnvFrom(func(name string) string {
		names = append(names, name)
		return ""
	})
	return names
}

func name(kv string) string {
	n, _, _ := strings.Cut(kv, "=")
	return n
}
