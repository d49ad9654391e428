package cni

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Code is the code of an error object. 0 to 99 are reserved by the specification, 100 and above belong to plugins.
type Code uint

// The codes of the specification (section "Error", list of well-known codes), and two that are only de facto.
const (
	CodeIncompatibleVersion Code = 1   // the CNI version is not supported
	CodeUnsupportedField    Code = 2   // a key or value of the configuration is not supported; the message names both
	CodeUnknownContainer    Code = 3   // the container is gone; no DEL is needed
	CodeInvalidEnvironment  Code = 4   // a CNI_ variable is missing or invalid; the message names it
	CodeIOFailure           Code = 5   // reading or writing failed
	CodeDecodingFailure     Code = 6   // a document is not JSON, or has a value of the wrong JSON type
	CodeInvalidConfig       Code = 7   // the configuration was decoded but is not acceptable
	CodeOwnNamespace        Code = 8   // CNI_NETNS is the plugin's own namespace (de facto)
	CodeTryAgainLater       Code = 11  // a transient condition; the call may be repeated later
	CodeNotAvailable        Code = 50  // STATUS: ADD cannot be served. Since 1.1.0
	CodeLimitedConnectivity Code = 51  // STATUS: as 50, and existing containers may be impaired. Since 1.1.0
	CodeInternal            Code = 999 // an error that nobody gave a code (de facto)
)

// assigned reports whether a plugin may send c in version v. Codes older than 50 are sent with every version, whichever
// introduced them.
func (c Code) assigned(v Version) bool {
	switch {
	case c == CodeNotAvailable || c == CodeLimitedConnectivity:
		return v >= V110
	case c < 100:
		return CodeIncompatibleVersion <= c && c <= CodeOwnNamespace || c == CodeTryAgainLater
	}
	return true
}

// Error is the error object of the protocol. Its cause, if it was made in this process, stays reachable for
// [errors.Is] and [errors.As].
type Error struct {
	Code    Code
	Msg     string // short, names the operation and the object
	Details string // longer: what was expected and found, and what helps; may be empty

	cause    error
	verbatim bool
}

// Errorf makes an error with a code. The format is that of [fmt.Errorf], %w included.
func Errorf(code Code, format string, args ...any) *Error {
	cause := fmt.Errorf(format, args...)
	return &Error{Code: code, Msg: cause.Error(), cause: cause}
}

// WithDetails returns a copy of e with details set.
func (e *Error) WithDetails(details string) *Error {
	c := *e
	c.Details = details
	return &c
}

// Verbatim returns a copy of e with a message that [AsError] leaves as it is: text around it goes to the details. It is for
// messages of delegates, and for messages that callers compare with the upstream plugins' texts.
func (e *Error) Verbatim() *Error {
	c := *e
	c.verbatim = true
	return &c
}

// Error returns the message, and the details behind a colon.
func (e *Error) Error() string {
	if e.Details == "" {
		return e.Msg
	}
	return e.Msg + ": " + e.Details
}

// Unwrap returns the error e was made from.
func (e *Error) Unwrap() error { return e.cause }

// CodeOf returns the code of the first [*Error] in err's tree, [CodeInternal] if there is none, and 0 for nil.
func CodeOf(err error) Code {
	if err == nil {
		return 0
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// AsError returns err as the error object that goes over the wire. Where err wraps an [*Error], the first in its tree
// gives the code and the details, and the message is err's whole text, so that joined errors lose nothing; with
// [Error.Verbatim] the message stays, and the details end with the rest of the text. Otherwise the code is
// [CodeInternal]. It returns nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		return &Error{Code: CodeInternal, Msg: err.Error(), cause: err}
	}
	if error(e) == err {
		return e
	}
	if e.verbatim {
		rest := strings.Trim(strings.Replace(err.Error(), e.Error(), "", 1), ": \n")
		return &Error{Code: e.Code, Msg: e.Msg, Details: joinDetails(e.Details, rest), cause: err, verbatim: true}
	}
	// The wrapping text holds the details as well; they go where readers look for them.
	msg := strings.Replace(err.Error(), e.Error(), e.Msg, 1)
	return &Error{Code: e.Code, Msg: msg, Details: e.Details, cause: err}
}

// Rephrase returns err with the message of the format instead of its own text, which goes to the details. Its code is that
// of err, which stays reachable. The message is [Error.Verbatim].
func Rephrase(err error, format string, args ...any) *Error {
	e := AsError(err)
	details := e.Details
	if e.Msg != "" && !e.verbatim {
		details = joinDetails(e.Msg, e.Details)
	}
	return &Error{Code: e.Code, Msg: fmt.Sprintf(format, args...), Details: details, cause: err, verbatim: true}
}

func joinDetails(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "; ")
}

// DecodeFailure turns an error of encoding/json into an [*Error] that names the document and the member. An error that
// has a code already keeps it and its details, others get [CodeDecodingFailure].
func DecodeFailure(document string, err error) *Error {
	if coded := (*Error)(nil); errors.As(err, &coded) {
		return AsError(fmt.Errorf("%s: %w", document, err))
	}
	if t := (*json.UnmarshalTypeError)(nil); errors.As(err, &t) {
		if t.Field != "" {
			document += ": " + t.Field
		}
		e := Errorf(CodeDecodingFailure, "%s: expected %s, found %s", document, jsonForm(t.Type), found(t.Value))
		for _, key := range slices.Backward(strings.Split(t.Field, ".")) {
			if key != "" {
				e.cause = at(key, e.cause)
			}
		}
		return e
	}
	return Errorf(CodeDecodingFailure, "%s: %w", document, err)
}

// jsonForm names the JSON values that decode into a type.
func jsonForm(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return "a string"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "a boolean"
	case reflect.Int, reflect.Int64:
		return "an integer"
	case reflect.Int8, reflect.Int16, reflect.Int32:
		limit := int64(1) << (t.Bits() - 1)
		return fmt.Sprintf("an integer from %d to %d", -limit, limit-1)
	case reflect.Uint, reflect.Uint64:
		return "an integer of at least 0"
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return fmt.Sprintf("an integer from 0 to %d", uint64(1)<<t.Bits()-1)
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return "another JSON type"
}

// found names the value of a [json.UnmarshalTypeError].
func found(value string) string {
	switch value {
	case "array", "object":
		return "an " + value
	case "bool":
		return "a boolean"
	}
	if number, ok := strings.CutPrefix(value, "number "); ok {
		return number
	}
	return "a " + value
}

type wireError struct {
	CNIVersion string `json:"cniVersion,omitempty"`
	Code       *Code  `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details,omitempty"`
}

// Encode returns the error object in version v; the zero Version stands for the newest.
func (e *Error) Encode(v Version) []byte {
	if v == 0 {
		v = Newest
	}
	return encode(wireError{CNIVersion: v.String(), Code: &e.Code, Msg: e.Msg, Details: e.Details})
}

// DecodeError reads an error object from what a failing plugin printed. Anything but an object with a code that is an
// unsigned integer has [CodeDecodingFailure]. The code may be any, assigned or not; a missing message is replaced, so
// that the code still gets through; cniVersion is not looked at.
func DecodeError(b []byte) (*Error, error) {
	var w struct {
		wireError
		CNIVersion json.RawMessage `json:"cniVersion"`
	}
	e, err := decodeErrorObject(b, &w, &w.wireError)
	if err != nil {
		return nil, err
	}
	if e.Msg == "" {
		e.Msg = "error without a message"
	}
	return e, nil
}

// DecodeErrorStrict is DecodeError without tolerance, for judging plugins: there has to be a message, and a
// cniVersion that is there has to be a published version (codes of [ParseVersion]). The code has to be 100 or above
// or one that is assigned, 50 and 51 only in 1.1.0, which is also what a missing cniVersion stands for
// ([CodeInvalidConfig] otherwise).
func DecodeErrorStrict(b []byte) (*Error, error) {
	var w wireError
	e, err := decodeErrorObject(b, &w, &w)
	if err != nil {
		return nil, err
	}
	if e.Msg == "" {
		return nil, Errorf(CodeDecodingFailure, errorObject+" has no message")
	}
	v := Newest
	if w.CNIVersion != "" {
		if v, err = ParseVersion(w.CNIVersion); err != nil {
			return nil, DecodeFailure(errorObject, err)
		}
	}
	if !e.Code.assigned(v) {
		return nil, Errorf(CodeInvalidConfig, errorObject+": code %d is not assigned in CNI version %v", e.Code, v)
	}
	return e, nil
}

const errorObject = "error object"

// decodeErrorObject decodes b into document, which holds w.
func decodeErrorObject(b []byte, document any, w *wireError) (*Error, error) {
	if _, err := parseObject(b); err != nil {
		return nil, DecodeFailure(errorObject, err)
	}
	if err := json.Unmarshal(b, document); err != nil {
		return nil, DecodeFailure(errorObject, err)
	}
	if w.Code == nil {
		return nil, Errorf(CodeDecodingFailure, errorObject+" has no code")
	}
	return &Error{Code: *w.Code, Msg: w.Msg, Details: w.Details}, nil
}
