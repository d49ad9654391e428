package archtest

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

// report records one violation; where is a file, a file:line or a directory.
type report func(where, format string, args ...any)

// rules are checked on the module by TestRules, and on testdata/NAME.txtar by
// TestRulesFindViolations.
var rules = []struct {
	name  string
	check func(*tree, report)
}{
	{"layers", layers},
	{"import-graph", importGraph},
	{"method-sets", methodSets},
	{"protocol-is-standard-library", protocolIsStandardLibrary},
	{"kernel-interfaces", kernelInterfaces},
	{"one-door", oneDoor},
	{"namespaces", namespaces},
	{"processes", processes},
	{"process-globals", processGlobals},
	{"heavy-dependencies", heavyDependencies},
	{"main-is-thin", mainIsThin},
	{"plugins", plugins},
	{"package-comments", packageComments},
	{"package-names", packageNames},
	{"context-values", contextValues},
	{"no-sleep", noSleep},
	{"no-init", noInit},
	{"no-error-text", noErrorText},
	{"no-silent-skip", noSilentSkip},
	{"public-api-no-internals", publicAPINoInternals},
	{"compat", compat},
}

// The layers of the design, from the lowest to the highest. A package of a layer must not depend on
// the packages listed with it, neither directly nor through other packages.
var (
	kernelLayer = []string{"internal/kernel", "internal/netlink", "internal/nft",
		"internal/iptables", "internal/netns"}
	flows    = []string{"internal/attach", "internal/chained", "internal/session", "internal/ipam"}
	programs = []string{"internal/ops", "internal/cli", "cmd"}
	protocol = []string{"cni", "invoke", "network", "plugin", "conformance", "plugins"}

	layerRules = []struct{ from, never []string }{
		{[]string{"cni"}, []string{"invoke", "network", "plugin", "conformance", "plugins", "internal", "cmd"}},
		{[]string{"invoke"}, slices.Concat([]string{"network", "plugin", "conformance", "plugins"}, kernelLayer, flows, programs)},
		{[]string{"network", "plugin"},
			slices.Concat([]string{"conformance", "plugins"}, kernelLayer, flows, programs)},
		{[]string{"plugin"}, []string{"network"}},
		{[]string{door}, slices.Concat([]string{"network", "conformance", "plugins", "internal/testnet", "internal/archtest", "test"}, programs)},
		{[]string{"conformance"}, slices.Concat([]string{"plugins"}, flows, programs)},
		{append([]string{"internal/ledger"}, kernelLayer...),
			slices.Concat(protocol, flows, programs)},
		{[]string{"internal/netlink", "internal/nft", "internal/iptables"},
			[]string{"internal/kernel"}},
		{[]string{"internal/session"},
			[]string{"internal/attach", "internal/chained", "internal/ipam"}},
		{append([]string{"internal/repair"}, flows...),
			slices.Concat([]string{"network", "conformance", "plugins"}, programs)},
		{[]string{"plugins"}, slices.Concat([]string{"network", "conformance"}, programs)},
		{[]string{"internal/ops"}, []string{"internal/cli", "cmd"}},
		{[]string{"internal/cli"}, []string{"cmd"}},
		{append([]string{"cmd", "internal"}, protocol...),
			[]string{"internal/testnet", "internal/archtest", "test", programTests,
				programTestSupport}},
	}
)

// door is the package through which plugins of other modules use the kernel packages and the flows.
// Only rules that name it apply to it.
const door = "plugin/linux"

// testSuites exercise real plugins on a real kernel, so they reach across the layers.
var testSuites = []string{"plugin/plugintest", "internal/testnet", "test", programTests,
	programTestSupport}

func layers(t *tree, violated report) {
	for _, pkg := range t.packages() {
		if under(pkg, testSuites...) {
			continue
		}
		for _, rule := range layerRules {
			if !under(pkg, rule.from...) || pkg == door && !slices.Contains(rule.from, door) {
				continue
			}
			for _, never := range rule.never {
				chain := t.reach(pkg, func(p string) bool {
					dir, ok := inside(p)
					return ok && under(dir, never)
				}, func(p string) bool { _, ok := inside(p); return !ok })
				if chain != nil {
					violated(pkg, "must not reach %s: %s", never, strings.Join(chain, " → "))
				}
			}
		}
	}
}

func protocolIsStandardLibrary(t *tree, violated report) {
	for _, imported := range t.imports[path.Join(module, "cni")] {
		switch first, _, _ := strings.Cut(imported, "/"); {
		case strings.Contains(first, "."):
			violated("cni", "imports %s: the protocol needs the standard library only", imported)
		case slices.Contains([]string{"os", "syscall", "net", "io/fs"}, imported) ||
			strings.HasPrefix(imported, "os/"):
			violated("cni", "imports %s: the protocol is data, without input or output", imported)
		}
	}
}

// interfaceOwners names, for each kernel interface, the only package that uses it; it does so
// without a library. All other packages use that package.
var interfaceOwners = map[string]string{
	"NETLINK_ROUTE":         "internal/netlink",
	"NFNL_SUBSYS_NFTABLES":  "internal/nft/nftmsg",
	"NFNL_SUBSYS_CTNETLINK": "internal/netlink",
}

// tracer names the system calls and messages of other processes, which it watches.
const tracer = "internal/tracer"

func kernelInterfaces(t *tree, violated report) {
	for _, f := range t.files {
		if f.support() || f.pkg == tracer {
			continue
		}
		for name, owner := range interfaceOwners {
			for _, u := range uses(f, []string{name}, "golang.org/x/sys/unix", "syscall") {
				if f.pkg != owner {
					violated(t.position(u), "%s: only %s may use it", name, owner)
				}
			}
		}
	}
}

// behindDoor are the packages that plugins and flows may use only through internal/kernel.
var behindDoor = []string{
	"internal/netlink", "internal/nft", "internal/iptables", "internal/netns",
}

func oneDoor(t *tree, violated report) {
	users := append([]string{"plugins", "plugin/linux", "internal/repair", "internal/dhcp"},
		flows...)
	for _, f := range t.files {
		if f.test() || !under(f.pkg, users...) {
			continue
		}
		for _, imported := range f.imports {
			if dir, ok := inside(imported); ok && under(dir, behindDoor...) {
				violated(f.path, "imports %s: plugins reach the kernel through internal/kernel",
					dir)
			}
		}
	}
}

func namespaces(t *tree, violated report) {
	names := []string{"Setns", "Unshare", "SYS_SETNS", "SYS_UNSHARE"}
	for _, f := range t.files {
		if under(f.pkg, "internal/netns", tracer) || f.support() {
			continue
		}
		for _, u := range uses(f, names, "golang.org/x/sys/unix", "syscall") {
			violated(t.position(u), "%s: only internal/netns changes the namespace of a thread",
				u.Sel.Name)
		}
	}
}

// bannedPrograms are shells, and programs that Tenon replaces with netlink.
var bannedPrograms = []string{
	"ip", "tc", "bridge", "nft", "ipset", "ebtables", "iptables", "ip6tables", "sysctl",
	"conntrack",
	"modprobe", "sh", "bash", "/bin/sh", "/bin/bash",
}

func processes(t *tree, violated report) {
	// internal/program replaces the plugin that runs as "dhcp daemon" with tenon-dhcp, for example.
	const replacer = "internal/program"
	starters := []string{"invoke", "internal/iptables", "internal/netlink/tap_label.go",
		"internal/cli", "internal/ops", "internal/judge", tracer,
		"cmd/tenon-cluster/internal/daemon"}
	for _, f := range t.files {
		if f.support() {
			continue
		}
		starts := uses(f, []string{"StartProcess", "ForkExec", "Exec"}, "os", "syscall",
			"golang.org/x/sys/unix")
		for _, u := range starts {
			if f.pkg == replacer && u.Sel.Name == "Exec" {
				continue
			}
			violated(t.position(u), "%s: start processes with os/exec", u.Sel.Name)
		}
		if !slices.Contains(f.imports, "os/exec") {
			continue
		}
		if !under(f.path, starters...) && f.pkg != replacer {
			violated(f.path, "imports os/exec: only %s and %s start processes",
				strings.Join(starters, ", "), replacer)
		}
		if f.pkg == "internal/judge/cell" {
			continue // the steps of scenarios are texts for a shell
		}
		for lit := range nodes[*ast.BasicLit](f) {
			text := strings.Trim(lit.Value, "\"`")
			restore := slices.Contains([]string{"iptables-restore", "ip6tables-restore",
				"iptables-save", "ip6tables-save"}, text)
			if slices.Contains(bannedPrograms, text) || restore && f.pkg != "internal/iptables" {
				violated(t.position(lit), "names the program %q in a file that starts processes",
					text)
			}
		}
	}
}

// blankImport is the package that programs import for its effect only: it registers the plugins and
// reads the variable that switches it off.
const blankImport = "plugins/all/link"

func processGlobals(t *tree, violated report) {
	for _, f := range t.files {
		mains := f.pkg == "plugin" || f.pkg == "conformance/judge"
		if under(f.pkg, "cmd") && f.program() || under(f.pkg, "internal/cli") ||
			mains && declaresMain(f) || f.pkg == blankImport || f.support() {
			continue
		}
		names := []string{"Getenv", "LookupEnv", "Setenv", "Stdout", "Exit"}
		for _, u := range uses(f, names, "os") {
			violated(t.position(u),
				"os.%s: only cmd, internal/cli, plugin.Main and judge.Main own the process", u.Sel.Name)
		}
		for _, u := range uses(f, []string{"Print", "Printf", "Println"}, "fmt") {
			violated(t.position(u),
				"fmt.%s writes to standard output, which belongs to plugin.Main", u.Sel.Name)
		}
		for _, u := range uses(f, []string{"Fatal", "Fatalf", "Fatalln"}, "log") {
			violated(t.position(u), "log.%s ends the process", u.Sel.Name)
		}
	}
}

func declaresMain(f *file) bool {
	return slices.ContainsFunc(f.syntax.Decls, func(d ast.Decl) bool {
		fn, ok := d.(*ast.FuncDecl)
		return ok && fn.Recv == nil && fn.Name.Name == "Main"
	})
}

// heavy lists packages that would slow down the start of every plugin if cmd/tenon linked them
// (TRC-06), among them the libraries for tracing. The first queries the CPU's features, which
// causes a VM exit in a virtual machine; the second depends on the first. net/rpc brings in
// net/http and encoding/gob, with an initialiser of 0.14 ms; only tenon-dhcp links them.
var heavy = []string{
	"golang.org/x/sys/cpu", "github.com/vishvananda/netlink",
	"google.golang.org/grpc", "google.golang.org/protobuf", "github.com/golang/protobuf",
	"github.com/gogo/protobuf",
	"go.opentelemetry.io", "k8s.io", "sigs.k8s.io", "go.etcd.io",
	"github.com/ovn-kubernetes/libovsdb", "net/http", "net/rpc", "encoding/gob", "testing",
	"github.com/insomniacslk/dhcp",
}

func heavyDependencies(t *tree, violated report) {
	// The second package depends on the whole runtime library.
	for _, light := range []string{"cmd/tenon", "network/metrics"} {
		for _, banned := range heavy {
			found := func(p string) bool { return under(p, banned) }
			chain := t.reach(light, found, func(string) bool { return false })
			if chain != nil {
				violated(light, "links %s: %s", banned, strings.Join(chain, " → "))
			}
		}
	}
}

// mainIsThin limits the length of a program's files. Its command line may be longer: command.go.
func mainIsThin(t *tree, violated report) {
	const limit, commandLimit = 40, 140
	for _, f := range t.files {
		most := limit
		if path.Base(f.path) == "command.go" {
			most = commandLimit
		}
		if under(f.pkg, "cmd") && f.program() && !f.support() && f.lines > most {
			violated(f.path, "%d lines, at most %d: logic belongs below internal", f.lines, most)
		}
	}
}

func plugins(t *tree, violated report) {
	for _, f := range t.files {
		for _, imported := range f.imports {
			dir, ok := inside(imported)
			if ok && under(dir, "plugins") && under(f.pkg, "plugin/plugintest") && !f.test() {
				violated(f.path, "imports %s: the suite must work for plugins of other modules",
					dir)
			}
			foreign := ok && under(dir, "plugins") && dir != f.pkg && !under(f.pkg, "plugins/all") &&
				(dir != "plugins/all" || !f.test()) // tests pass delegates in the list
			if foreign && under(f.pkg, "plugins") {
				violated(f.path, "imports %s: plugins must not import each other", dir)
			}
		}
	}
	for _, pkg := range t.packages() {
		name, ok := strings.CutPrefix(pkg, "plugins/")
		if !ok || name == "all" || strings.Contains(name, "/") {
			continue
		}
		listed := slices.ContainsFunc([]string{"plugins/all", "cmd/" + name},
			func(list string) bool {
				return slices.Contains(t.imports[path.Join(module, list)], path.Join(module, pkg))
			})
		if !listed {
			violated(pkg, "is neither listed in plugins/all/all.go nor a binary of its own")
		}
		if !slices.Contains(t.dirs[pkg], "doc.md") {
			violated(pkg, "has no doc.md")
		}
	}
}

func packageComments(t *tree, violated report) {
	for _, pkg := range t.packages() {
		documented := slices.ContainsFunc(t.files, func(f *file) bool {
			return f.pkg == pkg && !f.test() && f.syntax.Doc != nil
		})
		if !documented {
			violated(pkg, "has no package comment")
		}
	}
}

func packageNames(t *tree, violated report) {
	empty := []string{"util", "utils", "common", "helper", "helpers", "pkg", "types", "misc",
		"shared"}
	for _, pkg := range t.packages() {
		for part := range strings.SplitSeq(pkg, "/") {
			if slices.Contains(empty, part) {
				violated(pkg, "the name %q does not describe the package", part)
			}
		}
	}
}

// valueFiles are the only files that may put values, the trace data, into a context.
var valueFiles = []string{"invoke/trace.go", "internal/trace/context.go"}

func contextValues(t *tree, violated report) {
	for _, f := range t.files {
		if f.support() || slices.Contains(valueFiles, f.path) {
			continue
		}
		for _, u := range uses(f, []string{"WithValue"}, "context") {
			violated(t.position(u),
				"context.WithValue: a context carries trace data only; pass a parameter")
		}
	}
}

func noSleep(t *tree, violated report) {
	for _, f := range t.files {
		if f.support() {
			continue
		}
		for _, u := range uses(f, []string{"Sleep"}, "time") {
			violated(t.position(u), "time.Sleep: wait for the event, with a deadline")
		}
	}
}

func noInit(t *tree, violated report) {
	for _, f := range t.files {
		if f.pkg == blankImport {
			continue
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				violated(t.position(fn), "init runs before every plugin; make it an explicit call")
			}
		}
	}
}

func noErrorText(t *tree, violated report) {
	questions := []string{"Contains", "ContainsAny", "ContainsRune", "Cut", "EqualFold",
		"HasPrefix", "HasSuffix", "Index"}
	for _, f := range t.files {
		if f.support() {
			continue
		}
		for call := range nodes[*ast.CallExpr](f) {
			s, ok := call.Fun.(*ast.SelectorExpr)
			if ok && importOf(f, s) == "strings" && slices.Contains(questions, s.Sel.Name) &&
				slices.ContainsFunc(call.Args, isErrorText) {
				violated(t.position(call),
					"strings.%s of an error's text: decide with errors.Is or errors.As", s.Sel.Name)
			}
		}
		for cmp := range nodes[*ast.BinaryExpr](f) {
			if (cmp.Op == token.EQL || cmp.Op == token.NEQ) &&
				(isErrorText(cmp.X) || isErrorText(cmp.Y)) {
				violated(t.position(cmp),
					"compares an error's text: decide with errors.Is or errors.As")
			}
		}
	}
}

// isErrorText matches x.Error().
func isErrorText(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) > 0 {
		return false
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Error"
}

func noSilentSkip(t *tree, violated report) {
	for _, f := range t.files {
		if under(f.pkg, "internal/testnet") {
			continue
		}
		for call := range nodes[*ast.CallExpr](f) {
			s, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, s.Sel.Name) {
				continue
			}
			if x, ok := s.X.(*ast.Ident); ok &&
				slices.Contains([]string{"t", "b", "f", "tb"}, x.Name) {
				violated(t.position(call), "%s.%s: declare the requirement with testnet.Require",
					x.Name, s.Sel.Name)
			}
		}
	}
}

// publicAPINoInternals checks that exported declarations of public packages use no types of
// internal packages, which other modules cannot import.
func publicAPINoInternals(t *tree, violated report) {
	for _, f := range t.files {
		if !under(f.pkg, publicPackages...) || f.test() {
			continue
		}
		for _, d := range f.syntax.Decls {
			for _, declared := range exportedNodes(d) {
				for n := range ast.Preorder(declared) {
					s, ok := n.(*ast.SelectorExpr)
					if !ok {
						continue
					}
					if dir, ok := inside(importOf(f, s)); ok && under(dir, "internal") {
						violated(t.position(s), "%s is exported with a type of %s", t.print(s), dir)
					}
				}
			}
		}
	}
}

// exportedNodes returns the parts of a declaration that other packages see: signatures, type
// definitions without unexported fields, types of constants and variables. The type of a variable
// is known only if it is declared or if the value is a literal.
func exportedNodes(d ast.Decl) []ast.Node {
	var list []ast.Node
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && (d.Recv == nil || receiverExported(d)) {
			list = append(list, d.Type)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() {
					list = append(list, visible(spec)...)
				}
			case *ast.ValueSpec:
				if slices.ContainsFunc(spec.Names, (*ast.Ident).IsExported) {
					list = append(list, valueTypes(spec)...)
				}
			}
		}
	}
	return list
}

// visible returns the types in a type definition; for a struct, the types of its embedded and
// exported fields.
func visible(spec *ast.TypeSpec) []ast.Node {
	var list []ast.Node
	if spec.TypeParams != nil {
		list = append(list, spec.TypeParams)
	}
	fields, ok := spec.Type.(*ast.StructType)
	if !ok {
		return append(list, spec.Type)
	}
	for _, field := range fields.Fields.List {
		if len(field.Names) == 0 || slices.ContainsFunc(field.Names, (*ast.Ident).IsExported) {
			list = append(list, field.Type)
		}
	}
	return list
}

func valueTypes(spec *ast.ValueSpec) []ast.Node {
	if spec.Type != nil {
		return []ast.Node{spec.Type}
	}
	var list []ast.Node
	for _, value := range spec.Values {
		if address, ok := value.(*ast.UnaryExpr); ok {
			value = address.X
		}
		if literal, ok := value.(*ast.CompositeLit); ok && literal.Type != nil {
			list = append(list, literal.Type)
		}
	}
	return list
}

// compatModule is the module below compat: libcni's API on top of Tenon. linkedPlugins is the
// package with which a program that uses it runs Tenon's plugins in its own process.
const (
	compatModule  = "github.com/containernetworking/cni"
	linkedPlugins = "plugins/all/link"
)

// compat checks that the compat module needs only the standard library and public packages of
// Tenon, and that Tenon does not need the compat module.
func compat(t *tree, violated report) {
	for _, f := range t.files {
		for _, imported := range f.imports {
			first, _, _ := strings.Cut(imported, "/")
			dir, own := inside(imported)
			switch {
			case !under(f.path, "compat"):
				if under(imported, compatModule) {
					violated(f.path, "imports %s: Tenon must not depend on compat", imported)
				}
			case !strings.Contains(first, "."), under(imported, compatModule):
			case own && (under(dir, publicPackages...) || dir == linkedPlugins && f.test()):
			default:
				violated(f.path, "imports %s: compat needs only the standard library and "+
					"public packages of Tenon", imported)
			}
		}
	}
}
