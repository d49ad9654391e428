package version_test

import (
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/version"
)

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestParseVersion(t *testing.T) {
	t.Parallel()
	const syntax = ": invalid syntax"
	const badMajor = "failed to convert major version part "
	for _, tt := range []struct {
		in   string
		want [3]int
		err  string
	}{
		{in: "0.3.1", want: [3]int{0, 3, 1}},
		{in: "", want: [3]int{0, 1, 0}},
		{in: "1", want: [3]int{1, 0, 0}},
		{in: "1.2", want: [3]int{1, 2, 0}},
		{in: "0.-42.0", want: [3]int{0, -42, 0}},
		{in: "+1.02.003", want: [3]int{1, 2, 3}},
		{in: "1.2.3.4", err: `invalid version "1.2.3.4": too many parts`},
		{in: "1.2.x.4", err: `invalid version "1.2.x.4": too many parts`},
		{in: "v1.0.0", err: badMajor + `"v1": strconv.Atoi: parsing "v1"` + syntax},
		{in: ".", err: badMajor + `"": strconv.Atoi: parsing ""` + syntax},
		{in: "1..0", err: `failed to convert minor version part "": strconv.Atoi: parsing ""` + syntax},
		{in: "1.0.", err: `failed to convert micro version part "": strconv.Atoi: parsing ""` + syntax},
		{in: "1.0.0-rc1", err: `failed to convert micro version part "0-rc1": ` +
			`strconv.Atoi: parsing "0-rc1"` + syntax},
		{in: " 1.0.0", err: badMajor + `" 1": strconv.Atoi: parsing " 1"` + syntax},
	} {
		if tt.err != "" {
			tt.want = [3]int{-1, -1, -1}
		}
		major, minor, micro, err := version.ParseVersion(tt.in)
		if got := [3]int{major, minor, micro}; got != tt.want || message(err) != tt.err {
			t.Errorf("%q: %v, %v, want %v, %s", tt.in, got, err, tt.want, tt.err)
		}
	}
}

func TestComparisons(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b           string
		greater, equal bool
	}{
		{"1.0.0", "1.0.0", false, true},
		{"", "0.1.0", false, true},
		{"1", "1.0.0", false, true},
		{"0.4.0", "0.3.1", true, false},
		{"0.3.1", "0.4.0", false, false},
		{"0.10.0", "0.9.0", true, false},
		{"1.0.0", "0.99.99", true, false},
		{"0.0.99", "0.1.0", false, false},
		{"1.0.1", "1.0.0", true, false},
	} {
		greater, err := version.GreaterThan(tt.a, tt.b)
		if err != nil || greater != tt.greater {
			t.Errorf("%q > %q: %v, %v", tt.a, tt.b, greater, err)
		}
		atLeast, err := version.GreaterThanOrEqualTo(tt.a, tt.b)
		if err != nil || atLeast != (tt.greater || tt.equal) {
			t.Errorf("%q >= %q: %v, %v", tt.a, tt.b, atLeast, err)
		}
	}
	for _, pair := range [][2]string{{"x", "1.0.0"}, {"1.0.0", "x"}, {"x", "y"}} {
		const want = `failed to convert major version part "x"`
		got, err := version.GreaterThan(pair[0], pair[1])
		if got || !strings.HasPrefix(message(err), want) {
			t.Errorf("%q: %v, %v", pair, got, err)
		}
		got, err = version.GreaterThanOrEqualTo(pair[0], pair[1])
		if got || !strings.HasPrefix(message(err), want) {
			t.Errorf("%q: %v, %v", pair, got, err)
		}
	}
}

func TestSets(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		info version.PluginInfo
		want string
	}{
		"All":           {version.All, "0.1.0 0.2.0 0.3.0 0.3.1 0.4.0 1.0.0 1.1.0"},
		"Legacy":        {version.Legacy, "0.1.0 0.2.0"},
		"from 0.3.1":    {version.VersionsStartingFrom("0.3.1"), "0.3.1 0.4.0 1.0.0 1.1.0"},
		"from the last": {version.VersionsStartingFrom("1.1.0"), "1.1.0"},
		"given order":   {version.PluginSupports("1.0.0", "x", "0.1.0"), "1.0.0 x 0.1.0"},
	} {
		if got := strings.Join(tt.info.SupportedVersions(), " "); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	if got := version.Current(); got != "1.1.0" {
		t.Errorf("current: %s", got)
	}
}

func TestEmptySetsPanic(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func() version.PluginInfo{
		"no versions": func() version.PluginInfo { return version.PluginSupports() },
		"unknown":     func() version.PluginInfo { return version.VersionsStartingFrom("0.2.5") },
		"empty":       func() version.PluginInfo { return version.VersionsStartingFrom("") },
	} {
		func() {
			defer func() {
				if got := recover(); got != "programmer error: you must support at least one version" {
					t.Errorf("%s: %v", name, got)
				}
			}()
			t.Errorf("%s: %v", name, f())
		}()
	}
}

// Callers own the lists they pass and get.
func TestSetsDoNotShareTheirLists(t *testing.T) {
	t.Parallel()
	list := []string{"1.0.0"}
	info := version.PluginSupports(list...)
	list[0] = "x"
	info.SupportedVersions()[0] = "y"
	if got := info.SupportedVersions()[0]; got != "1.0.0" {
		t.Error(got)
	}
}
