package archtest

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// publicPackages, with the packages below them, are the public API.
var publicPackages = []string{"cni", "invoke", "network", "plugin", "conformance"}

// TestPublicAPI compares the exported identifiers of each public package with api/PACKAGE.txt, so
// that a review shows a change as a diff.
func TestPublicAPI(t *testing.T) {
	t.Parallel()
	tree := loadModule(t)
	dir := filepath.Join(moduleRoot(t), "api")
	files := map[string]bool{}
	for _, pkg := range tree.packages() {
		if under(pkg, publicPackages...) {
			name := strings.ReplaceAll(pkg, "/", "-") + ".txt"
			files[name] = true
			compareGolden(t, filepath.Join(dir, name), strings.Join(exported(tree, pkg), "\n")+"\n")
		}
	}
	stale, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stale {
		if !files[filepath.Base(name)] {
			t.Errorf("%s: no such package", name)
		}
	}
}

func TestExportedListsThePublicSurface(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile(filepath.Join("testdata", "api", "surface.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	last := len(archive.Files) - 1
	tree, err := parseArchive(&txtar.Archive{Files: archive.Files[:last]})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(exported(tree, "network"), "\n") + "\n"
	if diff := cmp.Diff(string(archive.Files[last].Data), got); diff != "" {
		t.Errorf("exported identifiers (-want +got):\n%s", diff)
	}
}

// TestDependencies compares the modules linked into the binaries, and those needed only by tests,
// with dependencies.txt.
func TestDependencies(t *testing.T) {
	t.Parallel()
	compareGolden(t, filepath.Join("testdata", "dependencies.txt"),
		dependencies(t, moduleRoot(t), "./cmd/..."))
}

// dependencies lists the modules linked into the programs of a module, and those needed only by its
// tests.
func dependencies(t *testing.T, root, programs string) string {
	t.Helper()
	const format = `{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}`
	linked := lines(goList(t, root, "-deps", "-f", format, programs))
	all := lines(goList(t, root, "-deps", "-test", "-f", format, "./..."))
	tests := slices.DeleteFunc(slices.Clone(all), func(m string) bool {
		return slices.Contains(linked, m)
	})
	var list strings.Builder
	fmt.Fprintf(&list, "# linked into binaries\n%s\n# needed by tests only\n%s\n",
		strings.Join(linked, "\n"), strings.Join(tests, "\n"))
	return list.String()
}

func lines(out []byte) []string {
	all := strings.Fields(strings.ReplaceAll(string(out), " ", "@"))
	slices.Sort(all)
	return slices.Compact(all)
}

// compareGolden fails the test if the file differs from got, or writes it with -update.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); if the change is intended, run: go test ./internal/archtest -update\n%s", filepath.Base(name), diff)
	}
}

// exported lists the exported identifiers of a package, one per line, sorted.
func exported(t *tree, pkg string) []string {
	var list []string
	for _, f := range t.files {
		if f.pkg != pkg || f.test() {
			continue
		}
		for _, d := range f.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && (d.Recv == nil || receiverExported(d)) {
					list = append(list,
						t.print(&ast.FuncDecl{Recv: unnamed(d.Recv), Name: d.Name,
							Type: signature(d.Type)}))
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					list = append(list, t.exportedSpec(d.Tok, spec)...)
				}
			}
		}
	}
	slices.Sort(list)
	return list
}

// signature omits the names of parameters and results, which are not part of the API.
func signature(f *ast.FuncType) *ast.FuncType {
	return &ast.FuncType{TypeParams: f.TypeParams, Params: unnamed(f.Params),
		Results: unnamed(f.Results)}
}

func unnamed(fields *ast.FieldList) *ast.FieldList {
	if fields == nil {
		return nil
	}
	var list ast.FieldList
	for _, f := range fields.List {
		for range max(1, len(f.Names)) {
			list.List = append(list.List, &ast.Field{Type: f.Type})
		}
	}
	return &list
}

func receiverExported(d *ast.FuncDecl) bool {
	for n := range ast.Preorder(d.Recv.List[0].Type) {
		if id, ok := n.(*ast.Ident); ok {
			return id.IsExported()
		}
	}
	return false
}

func (t *tree) exportedSpec(tok token.Token, spec ast.Spec) []string {
	var list []string
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for i, name := range spec.Names {
			if !name.IsExported() {
				continue
			}
			line := tok.String() + " " + name.Name
			if spec.Type != nil {
				line += " " + t.print(spec.Type)
			}
			if tok == token.CONST && len(spec.Values) == len(spec.Names) {
				line += " = " + t.print(spec.Values[i])
			}
			list = append(list, line)
		}
	case *ast.TypeSpec:
		if !spec.Name.IsExported() {
			return nil
		}
		name := spec.Name.Name
		if spec.TypeParams != nil {
			var parameters []string
			for _, p := range spec.TypeParams.List {
				for _, id := range p.Names {
					parameters = append(parameters, id.Name+" "+t.print(p.Type))
				}
			}
			name += "[" + strings.Join(parameters, ", ") + "]"
		}
		if spec.Assign.IsValid() {
			name += " ="
		}
		switch kind := spec.Type.(type) {
		case *ast.StructType:
			list = append(list, "type "+name+" struct")
			list = append(list, t.members(spec.Name.Name, kind.Fields)...)
		case *ast.InterfaceType:
			list = append(list, "type "+name+" interface")
			list = append(list, t.members(spec.Name.Name, kind.Methods)...)
		default:
			list = append(list, "type "+name+" "+t.print(kind))
		}
	}
	return list
}

// members lists the exported fields of a struct or methods of an interface, and the embedded types
// of either.
func (t *tree) members(owner string, fields *ast.FieldList) []string {
	var list []string
	for _, f := range fields.List {
		if len(f.Names) == 0 {
			list = append(list, "type "+owner+", embeds "+t.print(f.Type))
		}
		for _, name := range f.Names {
			if !name.IsExported() {
				continue
			}
			kind := f.Type
			if method, ok := kind.(*ast.FuncType); ok {
				kind = signature(method)
			}
			line := "type " + owner + ", " + name.Name + " " + t.print(kind)
			if f.Tag != nil {
				line += " " + f.Tag.Value
			}
			list = append(list, line)
		}
	}
	return list
}

// print formats a node on one line.
func (t *tree) print(n ast.Node) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, t.fset, n); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
