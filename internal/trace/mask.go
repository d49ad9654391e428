package trace

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// minSecret is the length in bytes of the shortest value that is masked. Shorter ones occur in
// other words.
const minSecret = 4

// Secrets returns the values of unknown keys in a request and in CNI_ARGS, also as Go quotes them.
// They may be secrets, so spans must not contain them.
func Secrets(request []byte, args string) (values []string) {
	for pair := range strings.SplitSeq(args, ";") {
		key, value, _ := strings.Cut(pair, "=")
		if !slices.Contains(openArgs, key) && !strings.HasPrefix(key, "K8S_POD_") {
			values = append(values, value)
		}
	}
	var object map[string]any
	decoder := json.NewDecoder(bytes.NewReader(request))
	decoder.UseNumber()
	if decoder.Decode(&object) == nil {
		values = appendSecrets(values, object)
	}
	values = slices.DeleteFunc(values, func(v string) bool { return len(v) < minSecret })
	for _, v := range slices.Clone(values) {
		if inner := strconv.Quote(v); inner[1:len(inner)-1] != v {
			values = append(values, inner[1:len(inner)-1])
		}
	}
	return values
}

// merged returns the values to mask with more values, longer ones first: a value can contain
// another.
func merged(hidden, more []string) []string {
	hidden = append(hidden, more...)
	slices.SortFunc(hidden, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	return slices.Compact(hidden)
}

// openArgs lists the keys of CNI_ARGS that hold no secrets. Keys of Kubernetes begin with K8S_POD_.
var openArgs = []string{"IgnoreUnknown", "IP", "MAC", "GATEWAY"}

// appendSecrets appends the strings below unknown keys of an object.
func appendSecrets(values []string, object map[string]any) []string {
	for key, value := range object {
		switch inner, isObject := value.(map[string]any); {
		case key == "sysctl": // the keys are the names of settings
		case !known(key):
			values = appendStrings(values, value)
		case isObject:
			values = appendSecrets(values, inner)
		default:
			values = appendInList(values, value)
		}
	}
	return values
}

func appendInList(values []string, value any) []string {
	list, _ := value.([]any)
	for _, entry := range list {
		if object, ok := entry.(map[string]any); ok {
			values = appendSecrets(values, object)
		}
	}
	return values
}

// appendStrings appends all strings and numbers in a value.
func appendStrings(values []string, value any) []string {
	switch value := value.(type) {
	case string:
		values = append(values, value)
	case json.Number:
		values = append(values, value.String())
	case []any:
		for _, entry := range value {
			values = appendStrings(values, entry)
		}
	case map[string]any:
		for _, entry := range value {
			values = appendStrings(values, entry)
		}
	}
	return values
}

// known reports whether a key belongs to the specification, its conventions or a plugin of Tenon.
func known(key string) bool { return strings.Contains(openKeys, " "+strings.ToLower(key)+" ") }
