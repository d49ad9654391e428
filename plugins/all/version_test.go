package all_test

import (
	"regexp"
	"testing"

	"github.com/tenon-cni/tenon/plugins/all"
)

// semantic is the grammar of semver.org, which nerdctl (Masterminds/semver) and Nomad
// (hashicorp/go-version) implement.
var semantic = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*$`)

// TestVersion: the version is a semantic one for every version that a build can state.
func TestVersion(t *testing.T) {
	t.Parallel()
	for program, want := range map[string]string{
		"v0.1.0":                "v1.10.0+tenon.0.1.0",
		"0.1.0":                 "v1.10.0+tenon.0.1.0",
		"v0.1.0-3-g9483adbe":    "v1.10.0+tenon.0.1.0-3-g9483adbe",
		"v0.2.0-rc.1":           "v1.10.0+tenon.0.2.0-rc.1",
		"9483adbe-dirty":        "v1.10.0+tenon.9483adbe-dirty",
		"unknown":               "v1.10.0+tenon.unknown",
		"":                      "v1.10.0+tenon",
		"1:0.1.0~rc1+ds/2 é..x": "v1.10.0+tenon.1.0.1.0.rc1.ds.2.x",
	} {
		if got := all.Version(program); got != want || !semantic.MatchString(got) {
			t.Errorf("%q: %q, want %q", program, got, want)
		}
	}
}
