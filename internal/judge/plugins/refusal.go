package plugins

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// codeOf returns the code of the error object that a failed call printed, -1 if it succeeded or
// printed none.
func codeOf(r script.Result) int {
	o, _ := firstObject(r.Stdout)
	var code int
	if r.Status == 0 || o["code"] == nil || json.Unmarshal(o["code"], &code) != nil {
		return -1
	}
	return code
}

// refusals describes the calls that did not fail with one of the codes. No codes accept any failure
// with an error object.
func (j *Judgment) refusals(calls []string, codes ...cni.Code) (wrong []string) {
	for _, name := range calls {
		r, called := j.Call(name)
		code := codeOf(r)
		if called && (code < 0 || len(codes) > 0 && !slices.Contains(codes, cni.Code(code))) {
			wrong = append(wrong, fmt.Sprintf("call %s: %s", name, describe(r)))
		}
	}
	return wrong
}

// refusesMore reports whether a call fails and another one, with an ordinary value, does not fail in
// the same way.
func refusesMore(r, ordinary script.Result) bool {
	return r.Status != 0 && (ordinary.Status == 0 || codeOf(r) != codeOf(ordinary))
}

// accepted returns the calls that succeeded although they must be refused.
func (j *Judgment) accepted(calls []string) (names []string) {
	for _, name := range calls {
		if r, called := j.Call(name); called && r.Failed == "" && r.Status == 0 {
			names = append(names, name)
		}
	}
	return names
}

// changes describes the difference of the states before one call and after another: kernel objects,
// and files with content.
func (j *Judgment) changes(from, to string) (list []string) {
	before, after := j.Before(from), j.After(to)
	if before == nil || after == nil {
		return nil
	}
	for _, c := range host.Diff(before.Host, after.Host) {
		if !c.Derived {
			list = append(list, fmt.Sprintf("%s %s %s", c.Action, c.Kind, c.Object))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(after.Files)) {
		f, known := before.Files[path]
		if now := after.Files[path]; now.Size > 0 && (!known || f.Digest != now.Digest) {
			list = append(list, "write "+path)
		}
	}
	return list
}

// lacksNames returns the names that the error object of a call does not contain.
func lacksNames(r script.Result, names ...string) (missing []string) {
	e, err := cni.DecodeError(r.Stdout)
	if err != nil {
		return names
	}
	for _, n := range names {
		if !strings.Contains(e.Msg+e.Details, n) {
			missing = append(missing, n)
		}
	}
	return missing
}
