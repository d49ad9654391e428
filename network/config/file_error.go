package config

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/document"
)

// FileError is an error in a file of a configuration directory, with its position.
type FileError struct {
	Path         string
	Line, Column int // from 1, columns in characters; 0 if the position is unknown
	Err          error
}

// Error starts with the position in the form that compilers use: PATH:LINE:COLUMN.
func (e *FileError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("%s:%d:%d: %v", e.Path, e.Line, e.Column, e.Err)
}

// Unwrap returns Err.
func (e *FileError) Unwrap() error { return e.Err }

// fileError adds the path and the position in content to err.
func fileError(path string, content []byte, err error) *FileError {
	e := &FileError{Path: path, Err: err}
	if place := errorPlace(content, err); place != nil {
		e.Line, e.Column = place.Position()
	}
	return e
}

// errorPlace returns the value in a document that err refers to; nil if err refers to the whole
// document or the value is unknown. For a missing value it returns the object that lacks it, and
// for an incomplete document the last byte.
func errorPlace(content []byte, err error) *document.Node {
	if errors.As(err, new(*FileError)) {
		return nil // err belongs to another file
	}
	if s := (*json.SyntaxError)(nil); errors.As(err, &s) && s.Offset > 0 {
		return document.At(content, int(s.Offset)-1)
	}
	place := document.Parse(content).Resolve(cni.Pointer(err))
	if place.Pointer == "" {
		return nil
	}
	return place
}
