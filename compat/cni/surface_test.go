package cni_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/printer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// surface is the exported API of a module.
type surface map[string]map[string]symbol // import path → key → symbol

// symbol is one line of testdata/api.txt.
type symbol struct {
	kind  string // const, var, func, method, type, alias, field, embedded or interface method
	owner string // the type of a field or method; "*T" for a pointer receiver
	name  string
	// typ is the type without the names of parameters, in the form of a Go expression. For a type
	// with members, which are symbols, it is "struct" or "interface".
	typ   string
	value string // of a constant
	tag   string // of a field, with its quotes
}

// key identifies the symbol in its package.
func (s symbol) key() string {
	if s.owner == "" {
		return s.name
	}
	return strings.TrimPrefix(s.owner, "*") + "." + s.name
}

func (s symbol) String() string {
	signature := strings.TrimPrefix(s.typ, "func")
	switch s.kind {
	case "const":
		return fmt.Sprintf("const %s %s = %s", s.name, s.typ, s.value)
	case "func":
		return "func " + s.name + signature
	case "method":
		return "method (" + s.owner + ") " + s.name + signature
	case "interface method":
		return "type " + s.owner + ", " + s.name + signature
	case "alias":
		return "type " + s.name + " = " + s.typ
	case "field":
		return strings.TrimSpace("type " + s.owner + ", " + s.name + " " + s.typ + " " + s.tag)
	case "embedded":
		return "type " + s.owner + ", (embedded) " + s.name + " " + s.typ
	}
	return s.kind + " " + s.name + " " + s.typ
}

// forms are the lines of the list. The first that matches applies.
var forms = []struct {
	kind string
	line *regexp.Regexp
}{
	{"const", regexp.MustCompile(`^const (?<name>\w+) (?<typ>.+?) = (?<value>.+)$`)},
	{"var", regexp.MustCompile(`^var (?<name>\w+) (?<typ>.+)$`)},
	{"func", regexp.MustCompile(`^func (?<name>\w+)(?<typ>\(.+)$`)},
	{"method", regexp.MustCompile(`^method \((?<owner>\*?\w+)\) (?<name>\w+)(?<typ>\(.+)$`)},
	{"interface method", regexp.MustCompile(`^type (?<owner>\w+), (?<name>\w+)(?<typ>\(.+)$`)},
	{"embedded", regexp.MustCompile(`^type (?<owner>\w+), \(embedded\) (?<name>\w+) (?<typ>.+)$`)},
	{"field", regexp.MustCompile(
		"^type (?<owner>\\w+), (?<name>[\\w.]+) (?<typ>[^`]+?)(?: (?<tag>`.*`))?$")},
	{"alias", regexp.MustCompile(`^type (?<name>\w+) = (?<typ>.+)$`)},
	{"type", regexp.MustCompile(`^type (?<name>\w+) (?<typ>.+)$`)},
}

func parseSymbol(line string) (symbol, error) {
	for _, form := range forms {
		m := form.line.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		group := func(name string) string {
			if i := form.line.SubexpIndex(name); i >= 0 {
				return m[i]
			}
			return ""
		}
		s := symbol{kind: form.kind, owner: group("owner"), name: group("name"),
			typ: group("typ"), value: group("value"), tag: group("tag")}
		if strings.HasPrefix(s.typ, "(") {
			s.typ = "func" + s.typ
		}
		if s.typ == "struct" || s.typ == "interface" || strings.HasPrefix(s.typ, "untyped ") {
			return s, nil
		}
		var err error
		s.typ, err = withoutNames(s.typ)
		return s, err
	}
	return symbol{}, fmt.Errorf("not a declaration: %q", line)
}

// withoutNames formats a type without the names of parameters and results, which are not part of
// its identity, and writes any as interface{}.
func withoutNames(typ string) (string, error) {
	expr, err := parser.ParseExpr(typ)
	if err != nil {
		return "", fmt.Errorf("type %q: %w", typ, err)
	}
	ast.Inspect(expr, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType:
			dropNames(n.Params)
			dropNames(n.Results)
		case *ast.Ident:
			if n.Name == "any" {
				n.Name = "interface{}"
			}
		}
		return true
	})
	var b bytes.Buffer
	err = printer.Fprint(&b, token.NewFileSet(), expr)
	return strings.Join(strings.Fields(b.String()), " "), err
}

func dropNames(fields *ast.FieldList) {
	if fields == nil {
		return
	}
	var list []*ast.Field
	for _, f := range fields.List {
		for range max(1, len(f.Names)) {
			list = append(list, &ast.Field{Type: f.Type})
		}
	}
	fields.List = list
}

// packageLine starts the part of a package in the list.
var packageLine = regexp.MustCompile(`^== (\S+) \(package (\w+)\)$`)

// parseSurface reads a list such as testdata/api.txt. It also returns the names of the packages.
func parseSurface(text string) (surface, map[string]string, error) {
	all, names := surface{}, map[string]string{}
	var at map[string]symbol
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if m := packageLine.FindStringSubmatch(line); m != nil {
			at = map[string]symbol{}
			all[m[1]], names[m[1]] = at, m[2]
			continue
		}
		s, err := parseSymbol(line)
		if err != nil {
			return nil, nil, err
		}
		if _, twice := at[s.key()]; twice || at == nil {
			return nil, nil, fmt.Errorf("twice, or before a package: %q", line)
		}
		at[s.key()] = s
	}
	return all, names, nil
}

// differences compares two surfaces, symbol by symbol.
func differences(want, got surface) []string {
	var found []string
	for path := range union(want, got) {
		for key := range union(want[path], got[path]) {
			w, inWant := want[path][key]
			g, inGot := got[path][key]
			switch {
			case !inGot:
				found = append(found, fmt.Sprintf("%s: missing: %s", path, w))
			case !inWant:
				found = append(found, fmt.Sprintf("%s: additional: %s", path, g))
			case w != g:
				found = append(found, fmt.Sprintf("%s: want %s, got %s", path, w, g))
			}
		}
	}
	slices.Sort(found)
	return found
}

func union[V any](a, b map[string]V) map[string]V {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]V{}
	}
	maps.Copy(all, b)
	return all
}

// surfaceOf lists the exported symbols of a package.
func surfaceOf(pkg *types.Package) (map[string]symbol, error) {
	l := lister{pkg: pkg}
	for _, name := range pkg.Scope().Names() {
		if token.IsExported(name) {
			l.object(pkg.Scope().Lookup(name))
		}
	}
	all := map[string]symbol{}
	for _, line := range l.lines {
		s, err := parseSymbol(line)
		if err != nil {
			return nil, err
		}
		all[s.key()] = s
	}
	return all, nil
}

// lister writes the lines of one package.
type lister struct {
	pkg   *types.Package
	lines []string
}

func (l *lister) add(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// compilerName matches the names that the compiler gives to results without a name.
var compilerName = regexp.MustCompile(`#\w+`)

// typ formats a type; only types of other packages have the package's name.
func (l *lister) typ(t types.Type) string {
	text := types.TypeString(t, func(p *types.Package) string {
		if p == l.pkg {
			return ""
		}
		return p.Name()
	})
	return compilerName.ReplaceAllString(text, "_")
}

func (l *lister) signature(t types.Type) string { return strings.TrimPrefix(l.typ(t), "func") }

func (l *lister) object(o types.Object) {
	switch o := o.(type) {
	case *types.Const:
		l.add("const %s %s = %s", o.Name(), l.typ(o.Type()), o.Val().ExactString())
	case *types.Var:
		l.add("var %s %s", o.Name(), l.typ(o.Type()))
	case *types.Func:
		l.add("func %s%s", o.Name(), l.signature(o.Type()))
	case *types.TypeName:
		if alias, ok := o.Type().(*types.Alias); ok {
			l.add("type %s = %s", o.Name(), l.typ(alias.Rhs()))
			return
		}
		l.named(o.Name(), o.Type().(*types.Named))
	}
}

func (l *lister) named(name string, t *types.Named) {
	switch underlying := t.Underlying().(type) {
	case *types.Struct:
		l.add("type %s struct", name)
		l.fields(name, "", underlying)
	case *types.Interface:
		l.add("type %s interface", name)
		for m := range underlying.Methods() {
			if m.Exported() {
				l.add("type %s, %s%s", name, m.Name(), l.signature(m.Type()))
			}
		}
	default:
		l.add("type %s %s", name, l.typ(underlying))
	}
	for m := range t.Methods() {
		if m.Exported() {
			receiver := l.typ(m.Signature().Recv().Type())
			l.add("method (%s) %s%s", receiver, m.Name(), l.signature(m.Type()))
		}
	}
}

// fields lists the embedded and exported fields of a struct. A field that is an anonymous struct is
// the list of its own fields, and their names have the prefix of the outer one.
func (l *lister) fields(owner, prefix string, s *types.Struct) {
	for i := range s.NumFields() {
		f := s.Field(i)
		inner, anonymous := f.Type().(*types.Struct)
		switch {
		case f.Embedded():
			l.add("type %s, (embedded) %s %s", owner, prefix+f.Name(), l.typ(f.Type()))
		case !f.Exported():
		case anonymous && inner.NumFields() > 0:
			l.fields(owner, prefix+f.Name()+".", inner)
		case s.Tag(i) != "":
			l.add("type %s, %s %s `%s`", owner, prefix+f.Name(), l.typ(f.Type()), s.Tag(i))
		default:
			l.add("type %s, %s %s", owner, prefix+f.Name(), l.typ(f.Type()))
		}
	}
}

// load reads the exported symbols of all packages of this module that other modules can import, as
// compiled for an operating system.
func load(system string) (surface, error) {
	out, err := command(".", system, "go", "list", "-export", "-deps",
		"-json=ImportPath,Name,Export,DepOnly", "./...")
	if err != nil {
		return nil, err
	}
	exports := map[string]string{} // import path → file with export data
	var own []string
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var p struct {
			ImportPath, Name, Export string
			DepOnly                  bool
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		hidden := slices.Contains(strings.Split(p.ImportPath, "/"), "internal")
		if !p.DepOnly && p.Name != "main" && !hidden {
			own = append(own, p.ImportPath)
		}
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	compiled := importer.ForCompiler(token.NewFileSet(), "gc", open)
	all := surface{}
	for _, path := range own {
		pkg, err := compiled.Import(path)
		if err != nil {
			return nil, err
		}
		symbols, err := surfaceOf(pkg)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(symbols) > 0 {
			all[path] = symbols
		}
	}
	return all, nil
}

// command runs a program for an operating system and returns its standard output.
func command(dir, system, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v for %s: %w\n%s%s", cmd.Args, system, err, out, stderr.Bytes())
	}
	return string(out), nil
}
