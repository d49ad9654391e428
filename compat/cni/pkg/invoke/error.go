package invoke

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/tenon-cni/tenon/invoke"
)

// failure is a call that failed.
type failure struct {
	*invoke.Error
	said  string // standard error
	ended error  // of the context of the call; nil while it has not ended
}

// object returns the error object that the plugin printed, or a description of the failure; quoted
// reports whether it contains standard error. An object without a message gets the description as
// its message.
func (f failure) object() (object *types.Error, quoted bool) {
	object = &types.Error{}
	if len(f.Stdout) > 0 {
		if err := json.Unmarshal(f.Stdout, object); err != nil {
			return &types.Error{Msg: fmt.Sprintf(
				"netplugin failed but error parsing its diagnostic message %q: %v", f.Stdout, err),
			}, false
		}
		if object.Msg != "" {
			return object, false
		}
	}
	if f.said == "" {
		object.Msg = "netplugin failed with no error message: " + f.reason()
		return object, false
	}
	object.Msg = fmt.Sprintf("netplugin failed: %q: %s", f.said, f.reason())
	return object, true
}

// reason returns how the plugin ended, or why it was not started.
func (f failure) reason() string {
	switch {
	case f.ended != nil && (f.Status == "" || f.Status == "exit status 0"):
		return f.ended.Error()
	case f.Status == "":
		return f.startError()
	case f.ended == nil && len(f.Stdout) == 0 && !strings.HasPrefix(f.Err.Msg, f.Status):
		return f.Err.Msg // not the plugin but its output caused the failure
	}
	return f.Status
}

// startError returns the text of the operating system's error, which package invoke wraps in a
// text of its own.
func (f failure) startError() string {
	if cause := errors.Unwrap(errors.Unwrap(f.Err)); cause != nil {
		return cause.Error()
	}
	return f.Err.Msg
}
