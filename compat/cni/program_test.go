package cni_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestProgramThatUsesEverySymbol vets, for all systems, a program of another module that replaces
// upstream's module by this one and uses each symbol of testdata/api.txt with exactly its type.
func TestProgramThatUsesEverySymbol(t *testing.T) {
	t.Parallel()
	want, names := listed(t)
	source, uses := program(t, want, names)
	if uses < 350 {
		t.Errorf("only %d uses", uses)
	}
	dir := writeProgram(t, source)
	for _, system := range systems {
		if _, err := command(dir, system, "go", "vet", "-mod=mod", "./..."); err != nil {
			t.Error(err)
		}
	}
}

// TestProgramNeedsTheExactType vets programs for lists that differ from the module.
func TestProgramNeedsTheExactType(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"func Missing()": "undefined: utils.Missing",
		"func ValidateNetworkName(name []byte) *types.Error": "cannot use utils.ValidateNetworkName",
	} {
		list, names, err := parseSurface(`
== github.com/containernetworking/cni/pkg/types (package types)
type Error struct
== github.com/containernetworking/cni/pkg/utils (package utils)
` + line)
		if err != nil {
			t.Fatal(err)
		}
		source, _ := program(t, list, names)
		_, err = command(writeProgram(t, source), "linux", "go", "vet", "-mod=mod", "./...")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", line, err, want)
		}
	}
}

// writeProgram writes a module with a main package that uses this module, and returns its
// directory.
func writeProgram(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	compat, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	tenon := filepath.Dir(filepath.Dir(compat))
	sums, err := os.ReadFile(filepath.Join(tenon, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"main.go": source,
		"go.sum":  string(sums),
		"go.mod": fmt.Sprintf(`module example.com/program

go 1.26.0

require github.com/containernetworking/cni v1.3.1

replace (
	github.com/containernetworking/cni => %s
	github.com/tenon-cni/tenon => %s
)
`, compat, tenon),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// program returns a Go file with one declaration for each symbol, and their number. names has the
// names of the packages by import path.
func program(t *testing.T, list surface, names map[string]string) (source string, uses int) {
	t.Helper()
	paths := map[string]string{} // name of an imported package → import path
	for path, name := range names {
		paths[name] = path
	}
	imported := map[string]bool{}
	var body strings.Builder
	for path, symbols := range list {
		for _, key := range slices.Sorted(maps.Keys(symbols)) {
			q := qualifier{pkg: names[path], imported: imported}
			declaration := q.use(symbols[key])
			if q.err != nil {
				t.Fatalf("%s: %v", symbols[key], q.err)
			}
			uses++
			body.WriteString(declaration + "\n")
		}
	}
	var head strings.Builder
	head.WriteString("package main\n\nimport (\n")
	for name := range imported {
		path := paths[name]
		if path == "" { // of the standard library
			path = name
		}
		fmt.Fprintf(&head, "\t%s %q\n", name, path)
	}
	return head.String() + ")\n\nfunc main() {}\n\n" + body.String(), uses
}

// qualifier forms expressions for the symbols of one package as another package writes them. It
// notes the packages that they need, and the first error.
type qualifier struct {
	pkg      string
	imported map[string]bool
	err      error
}

// use returns a declaration that compiles only if the symbol exists with its type.
func (q *qualifier) use(s symbol) string {
	owner := q.typ(strings.TrimPrefix(s.owner, "*"))
	name := q.pkg + "." + s.name
	q.imported[q.pkg] = true
	switch s.kind {
	case "const":
		typ := strings.TrimPrefix(s.typ, "untyped ")
		equal := fmt.Sprintf("var _ = map[bool]int{false: 0, %s == %s: 1}", name, s.value)
		return fmt.Sprintf("const _ %s = %s\n%s", typ, name, equal)
	case "var":
		return fmt.Sprintf("var _ *%s = &%s", q.typ(s.typ), name)
	case "func":
		return fmt.Sprintf("var _ %s = %s", q.typ(s.typ), name)
	case "alias":
		return fmt.Sprintf("var _ *%s = (*%s)(nil)", q.typ(s.typ), name)
	case "method", "interface method":
		receiver := strings.Repeat("*", strings.Count(s.owner, "*")) + owner
		return fmt.Sprintf("var _ %s = (%s).%s", q.method(receiver, s.typ), receiver, s.name)
	case "embedded":
		if !token.IsExported(s.name) { // promotes its methods
			return fmt.Sprintf("var _ %s = %s{}", q.typ(s.typ), owner)
		}
		fallthrough
	case "field":
		return fmt.Sprintf("var _ = func(v *%s) *%s { return &v.%s }", owner, q.typ(s.typ), s.name)
	}
	if s.typ == "struct" || s.typ == "interface" {
		return fmt.Sprintf("var _ %s", name)
	}
	return fmt.Sprintf("var _ = %s(*new(%s))", name, q.typ(s.typ))
}

// method returns the type of a method expression.
func (q *qualifier) method(receiver, signature string) string {
	rest := strings.TrimPrefix(q.typ(signature), "func(")
	if strings.HasPrefix(rest, ")") {
		return "func(" + receiver + rest
	}
	return "func(" + receiver + ", " + rest
}

// typ qualifies the types of the package itself, and notes the other packages.
func (q *qualifier) typ(typ string) string {
	if typ == "" {
		return ""
	}
	expr, err := parser.ParseExpr(typ)
	if err != nil && q.err == nil {
		q.err = err
	}
	ast.Inspect(expr, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				q.imported[x.Name] = true
			}
			return false
		case *ast.Ident:
			if n.IsExported() {
				n.Name = q.pkg + "." + n.Name
			}
		}
		return true
	})
	var b bytes.Buffer
	if err := printer.Fprint(&b, token.NewFileSet(), expr); err != nil && q.err == nil {
		q.err = err
	}
	return b.String()
}
