package all

import (
	"strings"
	"unicode"
)

// upstream is the release of the upstream plugins that the plugins equal.
const upstream = "v1.10.0"

// Version returns the version that the plugins of a program with a version print without a verb, as
// in v1.10.0+tenon.0.1.0: a semantic version, the release of the upstream plugins with the same
// behaviour, and the program's version as build metadata. Runtimes compare it with the release that
// introduced an option: nerdctl isolates networks only if firewall is 1.7.1 or newer, and Nomad
// lets jobs require a version of each plugin.
func Version(program string) string {
	words := strings.FieldsFunc(strings.TrimPrefix(program, "v"), func(r rune) bool {
		return r > unicode.MaxASCII || r != '-' && !unicode.IsDigit(r) && !unicode.IsLetter(r)
	})
	return upstream + "+" + strings.Join(append([]string{"tenon"}, words...), ".")
}
