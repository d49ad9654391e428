package cni

import (
	"errors"
	"strings"
)

// located is an error about the value of one member or element of a document.
type located struct {
	token string // its key or index
	error
}

func (l *located) Unwrap() error { return l.error }

// at says that err is about the value at a key of the object that is being read. Keys of enclosing objects are added
// further out.
func at(key string, err error) error {
	if err == nil {
		return nil
	}
	return &located{key, err}
}

// Pointer returns which value of a configuration an error of [ParseList], [ParseSingle] or [ParsePlugin] complains of,
// as a JSON pointer (RFC 6901): "/plugins/0/ipam/type". A value that is missing is named like one that is there. It is
// empty where the document as a whole is wrong; where that is not JSON, the error wraps a [*json.SyntaxError], whose
// offset counts from the begin of the document.
func Pointer(err error) string {
	var pointer strings.Builder
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for l := (*located)(nil); errors.As(err, &l); err = l.error {
		pointer.WriteString("/" + escape.Replace(l.token))
	}
	return pointer.String()
}
