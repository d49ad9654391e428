package archtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

const module = "github.com/tenon-cni/tenon"

// programTests and programTestSupport are a module of tests for a program that is a module of its
// own, and the packages of that program that only tests use.
const (
	programTests       = "cmd/tenon-cluster/test"
	programTestSupport = "cmd/tenon-cluster/internal/test"
)

// tree is the module in the form that the rules use.
type tree struct {
	fset  *token.FileSet
	files []*file             // Go files, sorted by path
	dirs  map[string][]string // directory → names of all its files
	// The direct imports of each package without its tests, inside and outside the module.
	imports map[string][]string
}

// file is one Go file of the module.
type file struct {
	path    string // slash separated, relative to the module root
	pkg     string // directory: the import path without the module's prefix
	syntax  *ast.File
	lines   int
	imports []string          // import paths, sorted
	names   map[string]string // name in this file → import path
}

// test reports whether the file is compiled only into tests.
func (f *file) test() bool { return strings.HasSuffix(f.path, "_test.go") }

// support reports whether the file serves tests only: a test, or a package that exists for tests.
func (f *file) support() bool {
	return f.test() || under(f.pkg, "test", "internal/testnet", "plugin/plugintest", programTests,
		programTestSupport)
}

// program reports whether the file belongs to a program.
func (f *file) program() bool { return f.syntax.Name.Name == "main" }

// under reports whether pkg is one of the directories or below one.
func under(pkg string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		return pkg == dir || strings.HasPrefix(pkg, dir+"/")
	})
}

// inside returns the directory of a package of this module.
func inside(importPath string) (dir string, ok bool) {
	return strings.CutPrefix(importPath, module+"/")
}

func (t *tree) add(name string, content []byte) error {
	dir, base := path.Split(name)
	dir = path.Clean(dir)
	t.dirs[dir] = append(t.dirs[dir], base)
	if path.Ext(base) != ".go" {
		return nil
	}
	syntax, err := parser.ParseFile(t.fset, name, content,
		parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	f := &file{path: name, pkg: dir, syntax: syntax, lines: bytes.Count(content, []byte("\n")),
		names: map[string]string{}}
	for _, spec := range syntax.Imports {
		imported := strings.Trim(spec.Path.Value, `"`)
		f.names[importName(spec, imported)] = imported
		f.imports = append(f.imports, imported)
	}
	slices.Sort(f.imports)
	if !f.test() {
		from := path.Join(module, dir)
		t.imports[from] = append(t.imports[from], f.imports...)
	}
	t.files = append(t.files, f)
	return nil
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// importName returns the name of an import in a file; without an explicit name it follows the
// convention.
func importName(spec *ast.ImportSpec, imported string) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	name := path.Base(imported)
	if majorVersion.MatchString(name) {
		name = path.Base(path.Dir(imported))
	}
	return name
}

// reach returns the shortest import chain from a directory to a package that match accepts, or nil.
// It does not follow imports of a directory for which closed returns true.
func (t *tree) reach(dir string, match, closed func(importPath string) bool) []string {
	start := path.Join(module, dir)
	before := map[string]string{start: ""}
	for queue := []string{start}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at != start && match(at) {
			var chain []string
			for ; at != ""; at = before[at] {
				chain = append(chain, strings.TrimPrefix(at, module+"/"))
			}
			slices.Reverse(chain)
			return chain
		}
		if closed(at) {
			continue
		}
		for _, next := range t.imports[at] {
			if _, seen := before[next]; !seen {
				before[next] = at
				queue = append(queue, next)
			}
		}
	}
	return nil
}

// packages returns the directories that contain Go files other than tests, sorted.
func (t *tree) packages() []string {
	var dirs []string
	for _, f := range t.files {
		if !f.test() {
			dirs = append(dirs, f.pkg)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

func newTree() *tree {
	return &tree{fset: token.NewFileSet(), dirs: map[string][]string{},
		imports: map[string][]string{}}
}

// loadModule reads the module of this test.
func loadModule(tb testing.TB) *tree {
	tb.Helper()
	root := moduleRoot(tb)
	t := newTree()
	if err := t.walk(root, "."); err != nil {
		tb.Fatal(err)
	}
	for importPath, direct := range outsideImports(tb, root) {
		t.imports[importPath] = direct
	}
	return t
}

// walk adds the files of the module in a directory below the root of the repository.
func (t *tree) walk(root, dir string) error {
	top := filepath.Join(root, dir)
	return filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, nested := os.Stat(filepath.Join(name, "go.mod"))
			hidden := strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" ||
				d.Name() == "bin"
			if name != top && (hidden || nested == nil) {
				return filepath.SkipDir
			}
			return nil
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		var content []byte
		if filepath.Ext(name) == ".go" {
			if content, err = os.ReadFile(name); err != nil {
				return err
			}
		}
		return t.add(filepath.ToSlash(relative), content)
	})
}

// outsideImports lists, with the go command, the imports of packages outside the module.
func outsideImports(tb testing.TB, root string) map[string][]string {
	tb.Helper()
	out := goList(tb, root, "-deps", "-json=ImportPath,Imports", "./...")
	imports := map[string][]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); err != nil {
			tb.Fatal(err)
		}
		if _, own := inside(p.ImportPath); !own {
			imports[p.ImportPath] = p.Imports
		}
	}
	return imports
}

func goList(tb testing.TB, root string, args ...string) []byte {
	tb.Helper()
	cmd := exec.Command("go", append([]string{"list", "-e"}, args...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("%v: %v\n%s", cmd.Args, err, stderr.Bytes())
	}
	return out
}

func moduleRoot(tb testing.TB) string {
	tb.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		tb.Fatal(err)
	}
	return root
}

// outsidePrefix marks files of an archive that represent packages of other modules.
const outsidePrefix = "outside/"

// parseArchive builds a tree from the files of a txtar archive.
func parseArchive(archive *txtar.Archive) (*tree, error) {
	t := newTree()
	for _, f := range archive.Files {
		if name, ok := strings.CutPrefix(f.Name, outsidePrefix); ok {
			syntax, err := parser.ParseFile(t.fset, f.Name, f.Data, parser.ImportsOnly)
			if err != nil {
				return nil, err
			}
			for _, spec := range syntax.Imports {
				from := path.Dir(name)
				t.imports[from] = append(t.imports[from], strings.Trim(spec.Path.Value, `"`))
			}
			continue
		}
		if err := t.add(f.Name, f.Data); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// position formats a node's position like the compiler.
func (t *tree) position(n ast.Node) string {
	p := t.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}
