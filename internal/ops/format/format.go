// Package format encodes values for programs: as JSON, as YAML or with a template. It knows neither
// the commands nor what they print for people.
package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"
)

// Names of formats.
const (
	JSON     = "json"
	YAML     = "yaml"
	Template = "go-template" // with "=" and the text of the template
	Wide     = "wide"        // tables with more columns; only in [Output.Others]
)

// Output is the format in which a command prints, the value of its flag --output. The zero value
// is text for people.
type Output struct {
	// Others are formats of this command that the package does not encode, such as [Wide].
	Others []string

	name     string
	template *template.Template
}

// UnknownError is the error of [Output.Set] for a name that is not a format.
type UnknownError struct {
	Name  string
	Known []string // see [Output.Names]
}

func (e *UnknownError) Error() string { return fmt.Sprintf("unknown format %q", e.Name) }

// TemplateError is the error of a template that cannot be parsed or does not fit the value.
type TemplateError struct {
	error
	List bool // the template was executed on a list
}

func (e *TemplateError) Unwrap() error { return e.error }

// String implements [pflag.Value].
func (o *Output) String() string { return o.name }

// Type implements [pflag.Value].
func (o *Output) Type() string { return "FORMAT" }

// Set implements [pflag.Value]. The error is an [UnknownError] or a [TemplateError].
func (o *Output) Set(format string) error {
	name, text, hasText := strings.Cut(format, "=")
	if name == Template && hasText {
		t, err := template.New(Template).Funcs(functions()).Parse(text)
		if err != nil {
			return &TemplateError{error: err}
		}
		o.name, o.template = name, t
		return nil
	}
	if name == Template {
		return &TemplateError{error: fmt.Errorf("%s has no template", Template)}
	}
	if !slices.Contains(o.Names(), format) {
		return &UnknownError{format, o.Names()}
	}
	o.name = format
	return nil
}

// functions returns what templates can call in addition to the functions of text/template.
func functions() template.FuncMap {
	return template.FuncMap{
		"json": func(v any) (string, error) {
			b, err := json.Marshal(v)
			return string(b), err
		},
		"join": func(list []any, separator string) string {
			words := make([]string, len(list))
			for i, v := range list {
				words[i] = fmt.Sprint(v)
			}
			return strings.Join(words, separator)
		},
	}
}

// Names returns the formats of the command, [Template] last.
func (o *Output) Names() []string {
	return slices.Concat(o.Others, []string{JSON, YAML, Template})
}

// Is reports whether this is the selected format.
func (o *Output) Is(name string) bool { return o.name == name }

// Structured reports whether the output is for programs.
func (o *Output) Structured() bool { return o.Is(JSON) || o.Is(YAML) || o.Is(Template) }

// Write writes a value: as indented JSON, unless YAML or a template is selected. It writes nothing
// if the template does not fit the value; the error is then a [TemplateError].
func (o *Output) Write(w io.Writer, v any) error {
	text, err := o.encode(v, func(v any) ([]byte, error) { return json.MarshalIndent(v, "", "  ") })
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// WriteEach writes one of several values as [Output.Write] does, but JSON on a line of its own and
// YAML as a document.
func (o *Output) WriteEach(w io.Writer, v any) error {
	text, err := o.encode(v, json.Marshal)
	if err != nil {
		return err
	}
	if o.Is(YAML) {
		text = append([]byte("---\n"), text...)
	}
	_, err = w.Write(text)
	return err
}

// encode returns a value as text that ends with a line break.
func (o *Output) encode(v any, toJSON func(any) ([]byte, error)) ([]byte, error) {
	text, err := toJSON(v)
	if err != nil {
		return nil, err
	}
	switch o.name {
	case YAML:
		text, err = toYAML(text)
	case Template:
		text, err = o.execute(text)
	}
	if !bytes.HasSuffix(text, []byte("\n")) {
		text = append(text, '\n')
	}
	return text, err
}

// execute runs the template on a value with the names of its JSON.
func (o *Output) execute(text []byte) ([]byte, error) {
	v, err := decode(text)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := o.template.Execute(&b, v); err != nil {
		_, isList := v.([]any)
		return nil, &TemplateError{err, isList}
	}
	return b.Bytes(), nil
}

// WriteError writes an error object of CNI, which is JSON, as JSON or YAML. It writes nothing in
// other formats: a template is for the output, and people read standard error.
func (o *Output) WriteError(w io.Writer, object []byte) error {
	switch o.name {
	case JSON:
		_, err := fmt.Fprintf(w, "%s\n", object)
		return err
	case YAML:
		return o.Write(w, json.RawMessage(object))
	}
	return nil
}
