package archtest

import (
	"go/ast"
	"iter"
	"slices"
)

// nodes yields the nodes of one type, in source order.
func nodes[N ast.Node](f *file) iter.Seq[N] {
	return func(yield func(N) bool) {
		for n := range ast.Preorder(f.syntax) {
			if n, ok := n.(N); ok && !yield(n) {
				return
			}
		}
	}
}

// uses returns the references to the named objects of the given packages.
func uses(f *file, names []string, packages ...string) []*ast.SelectorExpr {
	var found []*ast.SelectorExpr
	for s := range nodes[*ast.SelectorExpr](f) {
		if slices.Contains(names, s.Sel.Name) && slices.Contains(packages, importOf(f, s)) {
			found = append(found, s)
		}
	}
	return found
}

// importOf returns the import path of the package a selector qualifies, or "".
func importOf(f *file, s *ast.SelectorExpr) string {
	if x, ok := s.X.(*ast.Ident); ok {
		return f.names[x.Name]
	}
	return ""
}
