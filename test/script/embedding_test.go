package script

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// exampleEnv names the program of the embedding guide.
const exampleEnv = "TENON_SCRIPT_EXAMPLE"

// G of issue 14, field row 67: the first example of the embedding guide, typed as it is there,
// harms no attachment of other runtimes: of tenon, of a runtime with another state directory, of
// libcni.
func TestEmbeddingGuide(t *testing.T) {
	t.Parallel()
	require(t)
	guide, err := os.ReadFile("../../docs/embedding.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)\n```go\n(.*?)```").FindSubmatch(guide)
	if block == nil {
		t.Fatal("the guide has no example")
	}
	run(t, "testdata/guide/embedding.txtar", exampleEnv+"="+build(t, program(t, block[1])))
}

// program makes a program of statements, with a check behind each that sets err.
func program(t *testing.T, statements []byte) []byte {
	t.Helper()
	const head = `package main

import (
	"context"
	"log"
	"os"

	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

func main() {
	ctx, id, path, running := context.Background(), os.Args[1], os.Args[2], append([]string{}, os.Args[3:]...)
`
	files := token.NewFileSet()
	source := head + string(statements) + "}\n"
	parsed, err := parser.ParseFile(files, "main.go", source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	decl, ok := parsed.Decls[len(parsed.Decls)-1].(*ast.FuncDecl)
	if !ok {
		t.Fatal("no main")
	}
	var text bytes.Buffer
	text.WriteString(head)
	checks := 0
	for _, s := range decl.Body.List[1:] {
		text.WriteString(source[files.Position(s.Pos()).Offset:files.Position(s.End()).Offset] + "\n")
		assign, ok := s.(*ast.AssignStmt)
		if !ok {
			continue
		}
		for _, left := range assign.Lhs {
			if name, ok := left.(*ast.Ident); ok && name.Name == "err" {
				checks++
				fmt.Fprintf(&text, "if err != nil {\nlog.Fatal(%d, err)\n}\n", checks)
			}
		}
	}
	text.WriteString("log.Print(ips)\n}\n")
	formatted, err := format.Source(text.Bytes())
	if err != nil {
		t.Fatalf("%v\n%s", err, text.Bytes())
	}
	if checks < 5 {
		t.Errorf("only %d statements set err:\n%s", checks, formatted)
	}
	return formatted
}

// build builds a program in a module of its own and returns its path.
func build(t *testing.T, source []byte) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	mod := strings.Replace(read("go.mod"), "module github.com/tenon-cni/tenon", "module example", 1)
	mod += "\nrequire github.com/tenon-cni/tenon v0.0.0\nreplace github.com/tenon-cni/tenon => " + root + "\n"
	dir := t.TempDir()
	for name, content := range map[string]string{"go.mod": mod, "go.sum": read("go.sum"), "main.go": string(source)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", "example", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, source)
	}
	return filepath.Join(dir, "example")
}
