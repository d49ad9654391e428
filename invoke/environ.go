package invoke

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
)

func (p Process) environ(ctx context.Context, env cni.Env) []string {
	var extra []string
	if p.Environ != nil {
		extra = p.Environ(ctx)
	}
	if t, ok := TraceFrom(ctx); ok && !setsTrace(extra) {
		extra = slices.Concat(t.Environ(), extra)
	}
	return mergeEnviron(os.Environ(), extra, env)
}

func setsTrace(vars []string) bool {
	return slices.ContainsFunc(vars, func(kv string) bool { return name(kv) == "TRACEPARENT" })
}

// mergeEnviron returns the environment of a plugin without duplicate names: later sources take
// precedence, and within a source the last entry.
func mergeEnviron(inherited, extra []string, env cni.Env) []string {
	drop := protocolNames()
	if setsTrace(extra) {
		drop = append(drop, "TRACESTATE", "BAGGAGE")
	}
	inherited = slices.DeleteFunc(slices.Clone(inherited),
		func(kv string) bool { return slices.Contains(drop, name(kv)) })
	all := slices.Concat(inherited, extra, env.Environ())
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
