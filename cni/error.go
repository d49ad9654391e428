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

// Code is the code of an error object. 0 to 99 are reserved by the specification, 100 and above
// belong to plugins.
type Code uint

// The well-known codes of the specification (section "Error"), and two de facto codes.
const (
	CodeIncompatibleVersion Code = 1   // the CNI version is not supported
	CodeUnsupportedField    Code = 2   // an unsupported key or value, which the message names
	CodeUnknownContainer    Code = 3   // the container no longer exists; no DEL is needed
	CodeInvalidEnvironment  Code = 4   // a missing or invalid variable, which the message names
	CodeIOFailure           Code = 5   // reading or writing failed
	CodeDecodingFailure     Code = 6   // a document is not JSON, or a value has the wrong JSON type
	CodeInvalidConfig       Code = 7   // the configuration was decoded but is not valid
	CodeOwnNamespace        Code = 8   // CNI_NETNS is the plugin's own namespace (de facto)
	CodeTryAgainLater       Code = 11  // a transient condition; the call may be repeated later
	CodeNotAvailable        Code = 50  // STATUS: ADD cannot be served. Since 1.1.0
	CodeLimitedConnectivity Code = 51  // STATUS: also impairs existing containers. Since 1.1.0
	CodeInternal            Code = 999 // an error without a code (de facto)
)

// assigned reports whether a plugin may send c in version v. Codes below 50 may be sent in every
// version, whichever version introduced them.
func (c Code) assigned(v Version) bool {
	switch {
	case c == CodeNotAvailable || c == CodeLimitedConnectivity:
		return v >= V110
	case c < 100:
		return CodeIncompatibleVersion <= c && c <= CodeOwnNamespace || c == CodeTryAgainLater
	}
	return true
}

// Error is the error object of the protocol. Its cause, if it was created in this process, stays
// reachable with [errors.Is] and [errors.As].
type Error struct {
	Code    Code
	Msg     string // short; names the operation and the object
	Details string // expected and actual values, and a hint; may be empty

	cause    error
	verbatim bool
}

// Errorf returns an error with a code. It supports the formats of [fmt.Errorf], including %w.
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

// Verbatim returns a copy of e with a message that [AsError] keeps unchanged: surrounding text goes
// to the details. Use it for messages of delegates, and for messages that callers compare with the
// messages of the upstream plugins.
func (e *Error) Verbatim() *Error {
	c := *e
	c.verbatim = true
	return &c
}

// Error returns the message, followed by a colon and the details.
func (e *Error) Error() string {
	if e.Details == "" {
		return e.Msg
	}
	return e.Msg + ": " + e.Details
}

// Unwrap returns the cause of e.
func (e *Error) Unwrap() error { return e.cause }

// CodeOf returns the code of the first [*Error] in err's tree, [CodeInternal] if there is none, and
// 0 for nil.
func CodeOf(err error) Code {
	if err == nil {
		return 0
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// AsError returns err as the error object that a plugin prints. If err wraps an [*Error], the first
// one in its tree provides the code and the details, and the message is the whole text of err, so
// that joined errors lose nothing. If that error is [Error.Verbatim], its message stays and the
// rest of the text is appended to the details. Without an [*Error] the code is [CodeInternal].
// AsError returns nil for nil.
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
		return &Error{Code: e.Code, Msg: e.Msg, Details: joinDetails(e.Details, rest), cause: err,
			verbatim: true}
	}
	// The wrapping text includes the details; move them to the details member.
	msg := strings.Replace(err.Error(), e.Error(), e.Msg, 1)
	return &Error{Code: e.Code, Msg: msg, Details: e.Details, cause: err}
}

// Rephrase returns an error with the formatted message and the code of err. The text of err becomes
// the details, and err stays reachable. The message is [Error.Verbatim].
func Rephrase(err error, format string, args ...any) *Error {
	e := AsError(err)
	details := e.Details
	if e.Msg != "" && !e.verbatim {
		details = joinDetails(e.Msg, e.Details)
	}
	return &Error{Code: e.Code, Msg: fmt.Sprintf(format, args...), Details: details, cause: err,
		verbatim: true}
}

func joinDetails(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "; ")
}

// DecodeFailure turns an error of encoding/json into an [*Error] that names the document and the
// member. An error that already has a code keeps it with its details; all others get
// [CodeDecodingFailure].
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
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if t.Bits() == 64 {
			return "an integer"
		}
		limit := int64(1) << (t.Bits() - 1)
		return fmt.Sprintf("an integer from %d to %d", -limit, limit-1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if t.Bits() == 64 {
			return "an integer of at least 0"
		}
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

// Encode returns the error object in version v; the zero Version means the newest.
func (e *Error) Encode(v Version) []byte {
	if v == 0 {
		v = Newest
	}
	return encode(wireError{CNIVersion: v.String(), Code: &e.Code, Msg: e.Msg, Details: e.Details})
}

// DecodeError decodes the error object that a failing plugin printed. It returns an error with
// [CodeDecodingFailure] if the input is not an object with an unsigned integer as code. DecodeError
// accepts any code, assigned or not, replaces a missing message so that the code is not lost, and
// ignores cniVersion.
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

// DecodeErrorStrict is [DecodeError] without tolerance, for tests of plugins: the message is
// required, and cniVersion, if present, must be a published version (codes of [ParseVersion]). The
// code must be 100 or above or be assigned; 50 and 51 are assigned only in 1.1.0, the default if
// cniVersion is missing. Other codes are an error with [CodeInvalidConfig].
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
		return nil, Errorf(CodeInvalidConfig,
			errorObject+": code %d is not assigned in CNI version %v", e.Code, v)
	}
	return e, nil
}

const errorObject = "error object"

// decodeErrorObject decodes b into document, which contains w.
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
