package network

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tenon-cni/tenon/cni"
)

// FileError is what is wrong with a file of a configuration folder, and where.
type FileError struct {
	Path         string
	Line, Column int // from 1, columns in characters; 0 where no place can be told
	Err          error
}

// Error begins with the place as compilers write it: PATH:LINE:COLUMN.
func (e *FileError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("%s:%d:%d: %v", e.Path, e.Line, e.Column, e.Err)
}

// Unwrap returns Err.
func (e *FileError) Unwrap() error { return e.Err }

// fileError says that err was found in the content of a file.
func fileError(path string, content []byte, err error) *FileError {
	e := &FileError{Path: path, Err: err}
	if offset := errorOffset(content, err); offset >= 0 && offset < len(content) {
		before := content[:offset]
		e.Line = 1 + bytes.Count(before, []byte("\n"))
		e.Column = 1 + utf8.RuneCount(before[1+bytes.LastIndexByte(before, '\n'):])
	}
	return e
}

// errorOffset returns where in a document the byte or the value begins that err complains of, -1 if that is unknown. Of
// a value that is missing it is the object that lacks it, of a document that ends too soon the last byte.
func errorOffset(document []byte, err error) int {
	if errors.As(err, new(*FileError)) {
		return -1 // it is about another file
	}
	if s := (*json.SyntaxError)(nil); errors.As(err, &s) {
		return int(s.Offset) - 1
	}
	if pointer := cni.Pointer(err); pointer != "" {
		return valueOffset(document, strings.Split(pointer[1:], "/"))
	}
	return -1
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// valueOffset returns where the value at the end of a path of keys and indices begins or, where that does not exist, the
// innermost object around it that does; -1 is the document itself, which is no place to point at.
func valueOffset(document []byte, path []string) int {
	value, found := document, -1
	for _, token := range path {
		offset, member := child(value, unescape.Replace(token))
		if member == nil {
			break
		}
		found, value = max(found, 0)+offset, member
	}
	return found
}

// child returns a member or an element of a JSON value and where it begins; nil if there is none. Keys are matched as
// configurations are read: exactly or else without regard to case, and the last of several counts.
func child(value []byte, token string) (offset int, member []byte) {
	d := json.NewDecoder(bytes.NewReader(value))
	open, err := d.Token()
	exact := false
	for i := 0; err == nil && d.More(); i++ {
		key := strconv.Itoa(i)
		if open == json.Delim('{') {
			t, err := d.Token()
			if err != nil {
				break
			}
			key, _ = t.(string)
		}
		var raw json.RawMessage
		if err = d.Decode(&raw); err != nil {
			break
		}
		if key == token || !exact && strings.EqualFold(key, token) {
			exact = exact || key == token
			offset, member = int(d.InputOffset())-len(raw), raw
		}
	}
	return offset, member
}
