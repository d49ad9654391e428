package tuning

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
)

// Sysctls holds the members of a JSON object of strings in their order, including duplicates.
type Sysctls []Sysctl

// Sysctl is a kernel setting as written in the configuration.
type Sysctl struct{ Key, Value string }

// JSONForm implements [plugin.Former].
func (Sysctls) JSONForm() any { return map[string]string{} }

// UnmarshalJSON appends the members of an object.
func (s *Sysctls) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if brace, err := d.Token(); err != nil || brace != json.Delim('{') {
		return json.Unmarshal(b, new(map[string]string)) // returns the error, or nil for null
	}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string)
		var value string
		if err := d.Decode(&value); err != nil {
			return err
		}
		*s = append(*s, Sysctl{key, value})
	}
	return nil
}

// setting is a sysctl with its file below /proc/sys.
type setting struct{ key, value, file string }

type settings []setting

// maxValue is the number of bytes that the kernel accepts in one write, without the final NUL.
const maxValue = 4095

// resolve returns the settings with their files.
func (s Sysctls) resolve(ifName string) (settings, error) {
	var all settings
	for _, x := range s {
		file := fileOf(x.Key, ifName)
		if file == "" {
			return nil, cni.Errorf(cni.CodeInvalidConfig, "invalid net sysctl key: %q",
				path.Clean(strings.ReplaceAll(x.Key, ".", "/"))).
				WithDetails("use a name below net, such as " +
					"net.ipv4.conf.IFNAME.arp_notify or net/ipv4/conf/IFNAME/arp_notify")
		}
		if (kernel.Setting{Key: file}).Global() {
			return nil, cni.Errorf(cni.CodeInvalidConfig, "invalid net sysctl key: %q",
				path.Clean(strings.ReplaceAll(x.Key, ".", "/"))).
				WithDetails("it acts on the whole host, not on the container")
		}
		if len(x.Value) > maxValue || strings.ContainsFunc(x.Value, func(c rune) bool {
			return !valid(c)
		}) {
			return nil, cni.Errorf(cni.CodeInvalidConfig, "invalid value of sysctl %s: %.80q",
				x.Key, x.Value).
				WithDetails(`use up to 4095 letters, digits, blanks, tabs and ",.:_-"`)
		}
		if all.find(file) >= 0 {
			return nil, cni.Errorf(cni.CodeInvalidConfig, "duplicated sysctl keys are not allowed").
				WithDetails(fmt.Sprintf("%q: ", x.Key) +
					"another key of this object is the same or names the same setting")
		}
		all = append(all, setting{x.Key, x.Value, file})
	}
	return all, nil
}

// fileOf returns the file of a key below /proc/sys, or "" if the key is not below net. Each dot is
// a separator, as in the upstream plugin: a name with a dot needs IFNAME. So no key leads to a
// parent directory. STATUS has no interface; then IFNAME stays.
func fileOf(key, ifName string) string {
	file := strings.TrimPrefix(strings.ReplaceAll(key, ".", "/"), "/")
	if ifName != "" {
		file = strings.Replace(file, "IFNAME", ifName, 1)
	}
	if !(kernel.Setting{Key: file}).Valid() || !strings.HasPrefix(file, "net/") {
		return ""
	}
	return file
}

// valid reports whether values can contain a character. The allowed characters suffice for settings
// below net and separate settings in no tool (CVE-2022-0811).
func valid(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.ContainsRune(" \t,.:_-", c)
}

func (s settings) find(file string) int {
	return slices.IndexFunc(s, func(x setting) bool { return x.file == file })
}

// merge returns s with the values of others, which replace those in s or follow them.
func (s settings) merge(others settings) settings {
	for _, o := range others {
		if i := s.find(o.file); i >= 0 {
			s[i] = o
		} else {
			s = append(s, o)
		}
	}
	return s
}

// files returns the settings in the form in which they are written.
func (s settings) files() []kernel.Setting {
	all := make([]kernel.Setting, len(s))
	for i, x := range s {
		all[i] = kernel.Setting{Key: x.file, Value: x.value}
	}
	return all
}
