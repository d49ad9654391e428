package report

import (
	"fmt"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance"
)

// Profile selects the requirements that decide the verdict about a subject. The other checks are part
// of the report too.
type Profile string

// The profiles.
const (
	// Spec10 and Spec11 count the MUST and MUST NOT of a version of the specification.
	Spec10 Profile = "spec-1.0"
	Spec11 Profile = "spec-1.1"
	// DropIn counts MUST, MUST NOT and the behavior that other programs rely on, in all versions,
	// except rows that programs in wide use do not follow.
	DropIn Profile = "drop-in"
	// Strict counts all rows except those with the level MAY.
	Strict Profile = "strict"
)

// Profiles returns all profiles with a description.
func Profiles() []struct {
	Profile Profile
	Counts  string
} {
	return []struct {
		Profile Profile
		Counts  string
	}{
		{Spec10, "MUST and MUST NOT of CNI 1.0.0"},
		{Spec11, "MUST and MUST NOT of CNI 1.1.0"},
		{DropIn, "MUST, MUST NOT and what other programs rely on, in all versions"},
		{Strict, "MUST, SHOULD, what other programs rely on, and advice, in all versions"},
	}
}

// ParseProfile returns the profile of a name.
func ParseProfile(name string) (Profile, error) {
	var names []Profile
	for _, p := range Profiles() {
		names = append(names, p.Profile)
	}
	if p := Profile(name); slices.Contains(names, p) {
		return p, nil
	}
	return "", fmt.Errorf("unknown profile %q; the profiles are %v", name, names)
}

// version returns the version that a profile is about, 0 if it is about all.
func (p Profile) version() cni.Version {
	switch p {
	case Spec10:
		return cni.V100
	case Spec11:
		return cni.V110
	}
	return 0
}

// requires reports whether a row counts.
func (p Profile) requires(r conformance.Row) bool {
	must := r.Level == conformance.LevelMust || r.Level == conformance.LevelMustNot
	switch p {
	case Spec10, Spec11:
		return must && r.Holds(p.version())
	case DropIn:
		return (must || r.Level == conformance.LevelDeFacto) && r.Disputed == ""
	}
	return r.Level != conformance.LevelMay
}

// judged returns which checks of a subject count. Scenarios that do not depend on the version run in
// one only, so a profile for another version counts that run.
func (p Profile) judged(rows map[string]conformance.Row, checks []Check) func(Check) bool {
	type group struct{ row, scenario, role string }
	key := func(c Check) group { return group{c.Row, c.Scenario, c.Role} }
	own := map[group]bool{} // has a check in the version of the profile
	version := p.version().String()
	for _, c := range checks {
		if c.Version == version {
			own[key(c)] = true
		}
	}
	return func(c Check) bool {
		inVersion := p.version() == 0 || c.Version == "" || c.Version == version || !own[key(c)]
		return inVersion && p.requires(rows[c.Row])
	}
}
