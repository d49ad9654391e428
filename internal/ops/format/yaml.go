package format

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// toYAML returns a JSON text as YAML, with the keys in the same order.
func toYAML(text []byte) ([]byte, error) {
	y := yamlWriter{in: json.NewDecoder(bytes.NewReader(text))}
	y.in.UseNumber()
	err := y.value(0, false)
	return y.out.Bytes(), err
}

// yamlWriter writes the tokens of a JSON text as YAML. Everything that a reader of YAML 1.1 or 1.2
// could take for a value that is not text becomes a quoted scalar.
type yamlWriter struct {
	in  *json.Decoder
	out bytes.Buffer
}

// value writes the next value at a depth of indentation. afterKey reports whether the value follows
// a key on the same line; otherwise it is at its place already.
func (y *yamlWriter) value(depth int, afterKey bool) error {
	token, err := y.in.Token()
	if err != nil {
		return err
	}
	open, isCollection := token.(json.Delim)
	if isCollection && y.in.More() {
		return y.block(open, depth, afterKey)
	}
	if afterKey {
		y.out.WriteByte(' ')
	}
	if !isCollection {
		y.out.WriteString(scalar(token))
		return nil
	}
	end, err := y.in.Token()
	y.out.WriteString(open.String())
	if err == nil {
		y.out.WriteString(end.(json.Delim).String())
	}
	return err
}

// block writes the elements of a collection that is not empty, each on its own line.
func (y *yamlWriter) block(open json.Delim, depth int, afterKey bool) error {
	for first := true; y.in.More(); first = false {
		if !first || afterKey {
			y.out.WriteByte('\n')
			y.out.WriteString(strings.Repeat("  ", depth))
		}
		if open == '[' {
			y.out.WriteString("- ")
		} else {
			key, err := y.in.Token()
			if err != nil {
				return err
			}
			y.out.WriteString(scalar(key))
			y.out.WriteByte(':')
		}
		if err := y.value(depth+1, open == '{'); err != nil {
			return err
		}
	}
	_, err := y.in.Token() // the end
	return err
}

// scalar returns a text, number, boolean or null as YAML.
func scalar(token json.Token) string {
	switch v := token.(type) {
	case string:
		if plain(v) {
			return v
		}
		return strconv.Quote(v) // YAML has all escapes of Go
	case json.Number:
		// YAML 1.1 wants a point in numbers with an exponent.
		if digits, exponent, found := strings.Cut(v.String(), "e"); found && !strings.Contains(digits, ".") {
			return digits + ".0e" + exponent
		}
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return "null"
}

// reserved are the words that YAML 1.1 or 1.2 takes for booleans and null, in lower case.
var reserved = []string{"y", "yes", "n", "no", "true", "false", "on", "off", "null"}

// plain reports whether a text needs no quotes: it starts with a letter or a slash, consists of
// letters, digits, single spaces inside, and a few marks, and is no reserved word.
func plain(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '/'
		inside := letter || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' ||
			c == ' ' && i < len(s)-1
		if !letter && (i == 0 || !inside) {
			return false
		}
	}
	return s != "" && !slices.Contains(reserved, strings.ToLower(s))
}
