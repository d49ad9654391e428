package tuning

import (
	"encoding/json"
	"iter"
)

// WithAllowList returns the plugin with another list of allowed settings.
var WithAllowList = define

// Resolve returns the files, below /proc/sys, and the values of a member sysctl.
func Resolve(object []byte, ifName string) (iter.Seq2[string, string], error) {
	var s Sysctls
	if err := json.Unmarshal(object, &s); err != nil {
		return nil, err
	}
	all, err := s.resolve(ifName)
	return func(yield func(string, string) bool) {
		for _, x := range all {
			if !yield(x.file, x.value) {
				return
			}
		}
	}, err
}
