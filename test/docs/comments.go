package docs

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/tenon-cni/tenon/plugin"
)

const module = "github.com/tenon-cni/tenon/"

// comments reads the comments of configuration fields and names JSON keys in place of Go fields.
type comments struct {
	root string
	read map[string]map[string]string // import path → field as in [plugin.Schema] → comment
}

// annotate adds descriptions to a schema and to the schemas in it. A field without a comment is an
// error.
func (c *comments) annotate(s *plugin.Schema) error {
	if s == nil {
		return nil
	}
	errs := []error{c.annotate(s.Items), c.annotate(s.Additional)}
	for _, key := range s.Order {
		p := s.Properties[key]
		if p.Description == "" && p.Field != "" {
			text, err := c.comment(p.Field)
			errs = append(errs, err)
			p.Description = text
		}
		errs = append(errs, c.annotate(p))
	}
	return errors.Join(errs...)
}

func (c *comments) comment(field string) (string, error) {
	dir := field[:strings.LastIndex(field, "/")+1]
	name, _, _ := strings.Cut(field[len(dir):], ".")
	path := dir + name
	if c.read[path] == nil {
		fields, err := readPackage(filepath.Join(c.root, strings.TrimPrefix(path, module)), path)
		if err != nil {
			return "", err
		}
		if c.read == nil {
			c.read = map[string]map[string]string{}
		}
		c.read[path] = fields
	}
	text := c.read[path][field]
	if text == "" {
		return "", fmt.Errorf("field %s has no comment", field)
	}
	return text, nil
}

// readPackage returns the comments of all fields of a package's types.
func readPackage(dir, path string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	r := reader{fset: token.NewFileSet(), fields: map[string]string{}}
	for _, name := range files {
		f, err := parser.ParseFile(r.fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for n := range ast.Preorder(f) {
			if spec, ok := n.(*ast.TypeSpec); ok {
				r.typ(path+"."+spec.Name.Name, spec.Type)
			}
		}
	}
	return r.fields, nil
}

type reader struct {
	fset   *token.FileSet
	fields map[string]string
}

// typ reads the fields of a struct. A comment also applies to the following fields without a
// comment.
func (r *reader) typ(name string, t ast.Expr) {
	s, ok := t.(*ast.StructType)
	if !ok {
		return
	}
	keys := jsonKeys(s)
	text, line := "", 0
	for _, f := range s.Fields.List {
		own := f.Comment.Text()
		if own == "" {
			own = f.Doc.Text()
		}
		if own != "" || r.fset.Position(f.Pos()).Line != line+1 {
			text = own
		}
		line = r.fset.Position(f.End()).Line
		for _, id := range f.Names {
			r.fields[name+"."+id.Name] = plain(text, id.Name, keys, f.Tag)
			r.typ(name+"."+id.Name, f.Type)
		}
	}
}

// jsonKeys maps the names of fields to their keys.
func jsonKeys(s *ast.StructType) map[string]string {
	keys := map[string]string{}
	for _, f := range s.Fields.List {
		for _, id := range f.Names {
			key, _, _ := strings.Cut(tag(f.Tag).Get("json"), ",")
			if key != "" {
				keys[id.Name] = key
			}
		}
	}
	return keys
}

func tag(lit *ast.BasicLit) reflect.StructTag {
	if lit == nil {
		return ""
	}
	return reflect.StructTag(strings.Trim(lit.Value, "`"))
}

var (
	word         = regexp.MustCompile(`\w+`)
	link         = regexp.MustCompile(`\[([\w.]+)\]`)
	defaultClose = regexp.MustCompile(` Default:? .*\.$`)
)

// plain turns the comment of a field into a description of its key: "MTU is the size of packets."
// becomes "The size of packets." It replaces field names by keys and links by words, and drops the
// default, which a tag states.
func plain(comment, name string, keys map[string]string, lit *ast.BasicLit) string {
	text := strings.Join(strings.Fields(comment), " ")
	text = link.ReplaceAllString(text, "$1")
	if tag(lit).Get("default") != "" {
		text = defaultClose.ReplaceAllString(text, "")
	}
	if rest, ok := strings.CutPrefix(text, name+" "); ok {
		for _, verb := range []string{"is ", "are "} {
			rest = strings.TrimPrefix(rest, verb)
		}
		text = rest
	}
	text = word.ReplaceAllStringFunc(text, func(w string) string {
		if key, ok := keys[w]; ok && w != strings.ToLower(w) && w != strings.ToUpper(w) { // not an ordinary word, nor an acronym
			return key
		}
		return w
	})
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + strings.TrimSuffix(text[1:], ".")
}
