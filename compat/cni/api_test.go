package cni_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var systems = []string{"linux", "darwin", "freebsd", "windows"}

func listed(t *testing.T) (surface, map[string]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "api.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want, names, err := parseSurface(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return want, names
}

// TestAPI compares the exported symbols of the module with testdata/api.txt, in both directions.
func TestAPI(t *testing.T) {
	t.Parallel()
	want, _ := listed(t)
	for _, system := range systems {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			got, err := load(system)
			if err != nil {
				t.Fatal(err)
			}
			for _, difference := range differences(want, got) {
				t.Error(difference)
			}
		})
	}
}

// TestDifferences compares one list with packages that differ from it in one respect each.
func TestDifferences(t *testing.T) {
	t.Parallel()
	const list = `
== p (package p)
const Limit uint = 15
const Kind untyped string = "kind"
var Dir string
func Open(name string, flags ...int) (*File, error)
method (*File) Close() error
method (File) Name() string
type Alias = File
type File struct
type File, (embedded) Reader Reader
type File, Call.Returns.Err error
type File, Path string ` + "`json:\"path\"`" + `
type File, Walk func(_ *File) error
type Flag bool
type Reader interface
type Reader, Read(p []byte) (n int, err error)
`
	const source = `package p
const Limit uint = 15
const Kind = "kind"
var Dir string
func Open(path string, flags ...int) (*File, error) { return nil, nil }
func (*File) Close() error { return nil }
func (File) Name() string { return "" }
func (File) hidden() {}
type Alias = File
type File struct {
	Reader
	Path string ` + "`json:\"path\"`" + `
	Walk func(*File) error
	Call struct{ Returns struct{ Err error } }
	open bool
}
type Flag bool
type Reader interface{ Read([]byte) (int, error) }
func hidden() {}
`
	for name, row := range map[string]struct{ old, new, want string }{
		"the same, except for names": {"", "", ""},
		"missing function": {"func Open", "func open",
			"p: missing: func Open(string, ...int) (*File, error)"},
		"missing method":      {"Name()", "label()", "p: missing: method (File) Name() string"},
		"missing type":        {"type Flag bool", "", "p: missing: type Flag bool"},
		"additional variable": {"Dir string", "Dir, Root string", "p: additional: var Root string"},
		"additional field":    {"open bool", "Open bool", "p: additional: type File, Open bool"},
		"additional method":   {"(File) hidden", "(File) Size", "p: additional: method (File) Size()"},
		"additional interface method": {"Read([]byte) (int, error)", "Read([]byte) (int, error); Close()",
			"p: additional: type Reader, Close()"},
		"value of a constant": {"= 15", "= 16",
			"p: want const Limit uint = 15, got const Limit uint = 16"},
		"type of a constant": {"Kind =", "Kind string =",
			`p: want const Kind untyped string = "kind", got const Kind string = "kind"`},
		"variable for a constant": {"const Limit", "var Limit",
			"p: want const Limit uint = 15, got var Limit uint"},
		"parameter": {"...int", "...uint",
			"p: want func Open(string, ...int) (*File, error), " +
				"got func Open(string, ...uint) (*File, error)"},
		"receiver": {"(*File) Close", "(File) Close",
			"p: want method (*File) Close() error, got method (File) Close() error"},
		"tag": {`json:"path"`, `json:"file"`,
			"p: want type File, Path string `json:\"path\"`, got type File, Path string `json:\"file\"`"},
		"field of a function type": {"func(*File) error", "func(File) error",
			"p: want type File, Walk func(*File) error, got type File, Walk func(File) error"},
		"field of an anonymous struct": {"Err error", "Err string",
			"p: want type File, Call.Returns.Err error, got type File, Call.Returns.Err string"},
		"field instead of an embedded type": {"\tReader\n", "\tReader Reader\n",
			"p: want type File, (embedded) Reader Reader, got type File, Reader Reader"},
		"type instead of an alias": {"Alias = File", "Alias File",
			"p: additional: type Alias, (embedded) Reader Reader"},
		"method of an interface": {"Read([]byte) (int, error)", "Read([]byte) int",
			"p: want type Reader, Read([]byte) (int, error), got type Reader, Read([]byte) int"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, _, err := parseSurface(list)
			if err != nil {
				t.Fatal(err)
			}
			got, err := surfaceOf(check(t, strings.Replace(source, row.old, row.new, 1)))
			if err != nil {
				t.Fatal(err)
			}
			found := differences(want, surface{"p": got})
			if row.want == "" && len(found) > 0 || row.want != "" && !slices.Contains(found, row.want) {
				t.Errorf("found\n\t%s\nwant\n\t%s", strings.Join(found, "\n\t"), row.want)
			}
		})
	}
}

func TestDifferencesOfPackages(t *testing.T) {
	t.Parallel()
	a := surface{"a": {"X": {kind: "var", name: "X", typ: "int"}}}
	b := surface{"b": {"X": {kind: "var", name: "X", typ: "int"}}}
	want := []string{"a: missing: var X int", "b: additional: var X int"}
	if got := differences(a, b); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// check returns the package of a source file without imports.
func check(t *testing.T, source string) *types.Package {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := (&types.Config{}).Check("p", fset, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}
