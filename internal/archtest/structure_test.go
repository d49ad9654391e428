package archtest

import (
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
)

// mayImport is the import graph: for each part of the module, the other parts that its packages may
// import directly. A package belongs to the part with the longest matching name.
var mayImport = map[string][]string{
	// Programs.
	"cmd": {"internal/cli", "internal/dhcp", "conformance/judge", "plugin", "plugins/all",
		"cni"},
	"cmd/tenon/man":   {"internal/cli", "internal/dhcp", "internal/manual", "plugins/all"},
	"internal/manual": {},
	"internal/cli": {
		"cni", "invoke", "network", "network/config", "plugin", "plugins", "plugins/all",
		"internal/ops", "internal/dhcp", "internal/ipam", "internal/repair", "internal/session",
		"internal/program", "internal/cluster", "internal/journal", "internal/trace",
		"internal/statefile", "internal/shell", "conformance/judge", "conformance/report",
	},
	"internal/ops": {
		"cni", "invoke", "network", "network/config", "plugin", "plugins", "plugins/all",
		"internal/dhcp", "internal/firewalld", "internal/ipam", "internal/repair",
		"internal/session",
		"internal/kernel", "internal/statefile", "internal/document", "internal/host",
		"internal/netns", "internal/nft", "internal/journal", "internal/trace", "internal/mounts",
	},

	// The state of a host, for the commands that explain it.
	"internal/host": {"internal/netlink", "internal/nft", "internal/iptables", "internal/netns",
		"internal/statefile"},

	// Plugins, the flows that they share, and the public package that provides these.
	"plugins/all/link": {"plugins/all", "plugin", "invoke"},
	"plugins/all":      {"plugins", "internal/repair", "plugin", "invoke", "cni"},
	"plugins": {
		"internal/attach", "internal/chained", "internal/session", "internal/ipam",
		"internal/cluster", "internal/kernel",
		"internal/dhcp", "internal/firewalld", "internal/statefile", "internal/ledger",
		"internal/program", "internal/trace", "plugin", "cni",
	},
	"plugin/linux": {"internal/attach", "internal/chained", "internal/session",
		"internal/kernel", "plugin", "cni"},
	"internal/attach":  {"internal/session", "internal/kernel", "plugin", "invoke", "cni"},
	"internal/chained": {"internal/session", "internal/kernel", "plugin", "cni"},
	"internal/repair":  {"internal/session", "internal/kernel", "plugin", "invoke", "cni"},
	"internal/session": {"internal/kernel", "plugin", "cni"},
	"internal/ipam":    {"cni", "internal/statefile", "internal/trace"},
	"internal/cluster": {"cni", "internal/ipam", "internal/statefile", "internal/unixsocket"},
	"internal/dhcp": {"cni", "internal/kernel", "internal/about", "internal/statefile",
		"internal/ledger", "internal/program", "internal/trace", "internal/unixsocket"},
	"internal/program":   {},
	"internal/firewalld": {},

	// Clusters: internal/cluster and below is what tenon links, too.
	"internal/cluster/routes": {"internal/kernel"},
	"cmd/tenon-cluster": {"cmd/tenon-cluster/internal/command",
		"cmd/tenon-cluster/internal/daemon", "cmd/tenon-cluster/internal/settings", "plugin"},
	"cmd/tenon-cluster/man": {"cmd/tenon-cluster/internal/command", "internal/cluster",
		"cmd/tenon-cluster/internal/settings", "internal/manual"},
	"cmd/tenon-cluster/internal/command": {
		"cmd/tenon-cluster/internal/registry", "cmd/tenon-cluster/internal/settings",
		"cmd/tenon-cluster/internal/usage", "internal/cluster", "internal/ipam", "internal/ops", "internal/statefile",
		"network/config", "plugins", "cni",
	},
	"cmd/tenon-cluster/internal/daemon": {
		"cmd/tenon-cluster/internal/agent", "cmd/tenon-cluster/internal/registry",
		"cmd/tenon-cluster/internal/settings", "internal/cluster", "internal/cluster/routes",
		"internal/statefile", "internal/unixsocket",
	},
	"cmd/tenon-cluster/internal/agent": {
		"cmd/tenon-cluster/internal/registry", "cmd/tenon-cluster/internal/usage",
		"internal/cluster", "internal/cluster/routes", "internal/ipam", "internal/statefile", "cni",
	},
	"cmd/tenon-cluster/internal/registry": {"internal/cluster"},
	"cmd/tenon-cluster/internal/settings": {"internal/cluster"},
	"cmd/tenon-cluster/internal/usage":    {"internal/statefile"},

	// Open vSwitch.
	"cmd/tenon-ovs": {"cmd/tenon-ovs/internal/vswitch", "invoke", "plugin", "plugins",
		"plugins/all/link"},
	"cmd/tenon-ovs/internal/vswitch": {"plugins", "cni"},

	// OpenTelemetry, and libcni's API on Tenon.
	"otel":   {"network", "invoke", "cni"},
	"compat": {"network/cache", "invoke", "cni"},

	// The protocol and the runtime.
	"network/metrics": {"network", "cni", "internal/statefile"},
	"network": {"network/config", "internal/records", "invoke", "cni", "internal/about",
		"internal/statefile", "internal/journal"},
	"network/config":   {"invoke", "cni", "internal/document", "internal/statefile"},
	"network/cache":    {"cni", "internal/statefile"},
	"internal/records": {"network/config", "network/cache", "cni", "internal/statefile"},
	"conformance":      {"cni"},
	"plugin":           {"invoke", "cni", "internal/about", "internal/journal", "internal/trace"},
	"invoke":           {"cni", "internal/trace"},
	"cni":              {},

	// The judge of plugins.
	"conformance/judge":  {"conformance", "conformance/report", "internal/judge"},
	"conformance/report": {"conformance", "cni"},
	"internal/judge": {"conformance", "conformance/report", "internal/host", "internal/netlink",
		"internal/nft", "internal/netns", "internal/mounts", "internal/tracer", "internal/shell",
		"cni"},
	"internal/tracer": {},

	// The kernel.
	"internal/kernel": {"internal/netlink", "internal/nft", "internal/iptables",
		"internal/netns", "internal/trace"},
	"internal/iptables": {"internal/nft", "internal/netlink", "internal/netns"},
	"internal/nft":      {"internal/netlink", "internal/netns", "internal/trace"},
	"internal/netlink":  {"internal/netns", "internal/trace"},
	"internal/netns":    {"internal/trace"},

	// The steps of operations, recorded on all layers.
	"internal/trace": {},

	// Files that hold state, sockets, mounts, and texts.
	"internal/about":      {"cni"},
	"internal/statefile":  {},
	"internal/unixsocket": {},
	"internal/document":   {},
	"internal/shell":      {},
	"internal/ledger":     {"internal/statefile"},
	"internal/mounts":     {},
	"internal/journal":    {"internal/statefile", "cni"},
}

// importGraph compares the direct imports of every package with mayImport. Test suites are exempt,
// because they use all layers.
func importGraph(t *tree, violated report) {
	for _, pkg := range t.packages() {
		if under(pkg, testSuites...) || pkg == "internal/archtest" {
			continue
		}
		from := partOf(pkg)
		if from == "" {
			violated(pkg, "belongs to no part of the import graph: see mayImport")
			continue
		}
		for _, imported := range slices.Compact(slices.Sorted(slices.Values(t.imports[path.Join(module, pkg)]))) {
			dir, ok := inside(imported)
			to := partOf(dir)
			if ok && to != from && !slices.Contains(mayImport[from], to) {
				violated(pkg, "imports %s: the import graph has no edge from %s to %s", dir, from,
					to)
			}
		}
	}
}

// partOf returns the key of mayImport that a package belongs to, or "".
func partOf(pkg string) string {
	longest := ""
	for part := range maps.Keys(mayImport) {
		if under(pkg, part) && len(part) > len(longest) {
			longest = part
		}
	}
	return longest
}

// largeTypes are types that should be split, with limits of their own that only go down.
var largeTypes = map[string]int{
	"internal/cli.app":          80,
	"internal/cli.settings":     80,
	"internal/ops/doctor.State": 80,
	"internal/ops/why.walk":     90,
	"network.Client":            110,
}

// methodSets limits the number of methods of a type: a type with more should be several types.
func methodSets(t *tree, violated report) {
	const limit, exportedLimit = 60, 30
	all, exported := map[string]int{}, map[string]int{}
	for _, f := range t.files {
		if f.support() {
			continue
		}
		for _, d := range f.syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			name := f.pkg + "." + receiver(fn.Recv.List[0].Type)
			all[name]++
			if fn.Name.IsExported() {
				exported[name]++
			}
		}
	}
	for name, n := range all {
		pkg, typ, _ := strings.Cut(name, ".")
		if most := max(limit, largeTypes[name]); n > most {
			violated(pkg, "type %s has %d methods, at most %d: split it", typ, n, most)
		}
		if n := exported[name]; n > exportedLimit {
			violated(pkg, "type %s has %d exported methods, at most %d: group them", typ, n,
				exportedLimit)
		}
	}
}

// receiver returns the name of the type that a method belongs to.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
