package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/conformance"
)

// mention is a place in a test that names an identifier.
type mention struct {
	id, file, test string // test: the declaration around it; empty outside declarations
	line           int
}

func (m mention) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s:%d %s", m.file, m.line, m.test))
}

// scan finds the identifiers in all tests of a module: in Go files that are tests or import package
// testing, and in the archives of test/script.
func scan(root fs.FS, rows []conformance.Row) ([]mention, error) {
	s := scanner{root: root, ids: identifiers(rows)}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != ".":
			hidden := strings.HasPrefix(d.Name(), ".") || d.Name() == "bin"
			if hidden || d.Name() == "testdata" && path.Dir(name) != "test/script" {
				return fs.SkipDir
			}
			return nil
		case path.Ext(name) == ".go":
			return s.goFile(name)
		case path.Ext(name) == ".txtar":
			return s.archive(name)
		}
		return nil
	})
	return s.found, err
}

// identifiers matches the letters of an existing identifier, followed by any number.
func identifiers(rows []conformance.Row) *regexp.Regexp {
	var areas []string
	for _, r := range rows {
		areas = append(areas, r.ID[:strings.LastIndex(r.ID, "-")])
	}
	slices.Sort(areas)
	return regexp.MustCompile(`(?:^|[^\w-])((?:` + strings.Join(slices.Compact(areas), "|") + `)-[0-9]{2,3})\b`)
}

type scanner struct {
	root  fs.FS
	ids   *regexp.Regexp
	found []mention
}

func (s *scanner) add(file, test string, line int, text string) {
	for i, part := range strings.Split(text, "\n") {
		for len(part) > 0 {
			at := s.ids.FindStringSubmatchIndex(part)
			if at == nil {
				break
			}
			s.found = append(s.found, mention{part[at[2]:at[3]], file, test, line + i})
			part = part[at[3]:]
		}
	}
}

func (s *scanner) archive(name string) error {
	b, err := fs.ReadFile(s.root, name)
	if err == nil {
		s.add(name, "", 1, string(b))
	}
	return err
}

func (s *scanner) goFile(name string) error {
	b, err := fs.ReadFile(s.root, name)
	if err != nil {
		return err
	}
	if !strings.HasSuffix(name, "_test.go") && !strings.Contains(string(b), "\t\"testing\"\n") || !s.ids.Match(b) {
		return nil
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, b, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	at := func(pos token.Pos, text string) { s.add(name, declaration(f, pos), fset.Position(pos).Line, text) }
	for _, group := range f.Comments {
		for _, c := range group.List {
			at(c.Pos(), c.Text)
		}
	}
	for n := range ast.Preorder(f) {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			at(lit.Pos(), lit.Value)
		}
	}
	return nil
}

// declaration returns the name of the function or variable, with its comment, around a position.
func declaration(f *ast.File, pos token.Pos) string {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if from(d.Doc, d) <= pos && pos < d.End() {
				return d.Name.Name
			}
		case *ast.GenDecl:
			if from(d.Doc, d) > pos || pos >= d.End() || len(d.Specs) == 0 {
				continue
			}
			if v, ok := d.Specs[0].(*ast.ValueSpec); ok {
				return v.Names[0].Name
			}
		}
	}
	return ""
}

func from(doc *ast.CommentGroup, d ast.Decl) token.Pos {
	if doc != nil {
		return doc.Pos()
	}
	return d.Pos()
}
