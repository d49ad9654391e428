package version_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/packaging/internal/version"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0.1.0", "v0.1.0", "10.20.30", "0.1.0-alpha.1", "v1.0.0-rc.12",
		"0.0.0-0.20261123150704.g8ceac42d37a5", "0.1.0-rc.1.0.20261123150704.g8ceac42d37a5.dirty"} {
		v, err := version.Parse(text)
		if err != nil {
			t.Error(err)
		} else if v.String() != strings.TrimPrefix(text, "v") {
			t.Errorf("%s: read as %s", text, v)
		}
	}
	for name, text := range map[string]string{
		"empty":                          "",
		"two numbers":                    "1.0",
		"leading zero":                   "1.01.0",
		"stage without a number":         "1.0.0-rc",
		"stage 0":                        "1.0.0-rc.0",
		"unknown stage":                  "1.0.0-preview.1",
		"build metadata":                 "1.0.0+x",
		"output of git describe":         "v0.1.0-5-gabcdef0",
		"number above the range":         "99999999999999999999.0.0",
		"snapshot after a dot":           "1.0.0.0.20261123150704.g8ceac42d37a5",
		"snapshot of rc after a hyphen":  "1.0.0-rc.1-0.20261123150704.g8ceac42d37a5",
		"option of a linker in the text": "1.0.0 -X main.version=2",
	} {
		if v, err := version.Parse(text); err == nil {
			t.Errorf("%s: %q accepted as %s", name, text, v)
		}
	}
}

// history has versions in ascending order, as a project could release them.
func history(t *testing.T) []version.Version {
	t.Helper()
	commit := func(day int) version.Commit {
		return version.Commit{Hash: strings.Repeat(fmt.Sprint(9-day), 40),
			Time: time.Date(2026, 11, day, 12, 0, 0, 0, time.UTC)}
	}
	tag := func(text string) version.Version {
		v, err := version.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	return []version.Version{
		version.Version{}.Next(commit(1)), version.Version{}.Next(commit(2)),
		tag("v0.1.0-alpha.1"), tag("v0.1.0-beta.1"),
		tag("v0.1.0-rc.1"), tag("v0.1.0-rc.1").Next(commit(3)), tag("v0.1.0-rc.2"),
		tag("v0.1.0-rc.10"), tag("v0.1.0"),
		tag("v0.1.0").Next(commit(4)), tag("v0.1.0").Next(commit(5)),
		tag("v0.1.1-alpha.1"), tag("v0.1.1"), tag("v0.2.0"), tag("v0.10.0"), tag("v1.0.0"),
	}
}

func TestDebianOrder(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("dpkg"))
	ascending(t, version.Version.Debian, func(a, b string) (bool, error) {
		err := exec.CommandContext(t.Context(), "dpkg", "--compare-versions", a, "lt", b).Run()
		return err == nil, nil
	})
}

func TestRPMOrder(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("rpm"))
	ascending(t, version.Version.RPM, func(a, b string) (bool, error) {
		out, err := exec.CommandContext(t.Context(), "rpm", "--eval",
			fmt.Sprintf("%%{lua: print(rpm.vercmp(%q, %q))}", a, b)).Output()
		return strings.TrimSpace(string(out)) == "-1", err
	})
}

func ascending(t *testing.T, format func(version.Version) string,
	less func(a, b string) (bool, error),
) {
	t.Helper()
	list := history(t)
	for i := range list[1:] {
		a, b := format(list[i]), format(list[i+1])
		if ok, err := less(a, b); err != nil || !ok {
			t.Errorf("%s (%s) is not before %s (%s): %v", a, list[i], b, list[i+1], err)
		}
	}
}

func TestForms(t *testing.T) {
	t.Parallel()
	const at = ".20261101120000.g888888888888"
	for _, row := range []struct{ version, deb, apk string }{
		{"0.0.0-0" + at, "0.0.0~~0" + at, "0.0.0_alpha0_p20261101120000"},
		{"0.1.0-alpha.1", "0.1.0~alpha.1", "0.1.0_alpha1"},
		{"0.1.0-beta.2", "0.1.0~beta.2", "0.1.0_beta2"},
		{"0.1.0-rc.10", "0.1.0~rc.10", "0.1.0_rc10"},
		{"0.1.0-rc.1.0" + at, "0.1.0~rc.1.0" + at, "0.1.0_rc1_p20261101120000"},
		{"0.1.0-rc.1.0" + at + ".dirty", "0.1.0~rc.1.0" + at + ".dirty",
			"0.1.0_rc1_p20261101120000"},
		{"0.1.0", "0.1.0", "0.1.0"},
		{"0.1.1-0" + at, "0.1.1~~0" + at, "0.1.1_alpha0_p20261101120000"},
	} {
		v, err := version.Parse(row.version)
		if err != nil {
			t.Error(err)
			continue
		}
		if v.Debian() != row.deb || v.RPM() != row.deb || v.Alpine() != row.apk {
			t.Errorf("%s: deb %s, rpm %s, apk %s; expected %s and %s", v, v.Debian(), v.RPM(),
				v.Alpine(), row.deb, row.apk)
		}
	}
}
