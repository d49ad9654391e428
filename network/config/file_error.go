package config

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/document"
)

// FileError is what is wrong with a file of a configuration directory, and where.
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
	if place := errorPlace(content, err); place != nil {
		e.Line, e.Column = place.Position()
	}
	return e
}

// errorPlace returns what err complains of in a document, nil if that is unknown or all of it. Of a value that is missing
// it is the object that lacks it, of a document that ends too soon the last byte.
func errorPlace(content []byte, err error) *document.Node {
	if errors.As(err, new(*FileError)) {
		return nil // it is about another file
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
