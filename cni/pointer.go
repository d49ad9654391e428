package cni

import (
	"errors"
	"strings"
)

// located is an error about one member or element of a document.
type located struct {
	token string // its key or index
	error
}

func (l *located) Unwrap() error { return l.error }

// at adds the key of a member of the current object to err. Callers add the keys of enclosing
// objects.
func at(key string, err error) error {
	if err == nil {
		return nil
	}
	return &located{key, err}
}

// Pointer returns the JSON pointer (RFC 6901) of the value in a configuration that an error of
// [ParseList], [ParseSingle] or [ParsePlugin] refers to, such as "/plugins/0/ipam/type". A missing
// value has the pointer that it would have. Pointer returns an empty string if the error refers to
// the whole document; if that is not valid JSON, the error wraps a [*json.SyntaxError] with an
// offset from the beginning of the document.
func Pointer(err error) string {
	var pointer strings.Builder
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for l := (*located)(nil); errors.As(err, &l); err = l.error {
		pointer.WriteString("/" + escape.Replace(l.token))
	}
	return pointer.String()
}
