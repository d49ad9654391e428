// Package version names releases: the semantic version of a commit, and its forms in deb, rpm and
// apk packages. It knows nothing of files and artefacts.
package version

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Version is a semantic version without the leading "v": 0.1.0, 0.1.0-rc.1, or for a commit between
// releases 0.1.1-0.20261123150704.g8ceac42d37a5. Versions of later commits are greater.
type Version struct {
	Major, Minor, Patch int
	Stage               string // "alpha", "beta", "rc" or ""
	Number              int    // of the stage, from 1
	Snapshot            string // TIME.COMMIT of a commit without a tag, or ""
}

var form = regexp.MustCompile(`^v?(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(?:-(alpha|beta|rc)\.([1-9]\d*))?(?:[-.]0\.(\d{14}\.g[0-9a-f]{7,40}(?:\.dirty)?))?$`)

// Parse reads a version, with or without the leading "v". It accepts the pre-releases alpha.N,
// beta.N and rc.N, because they sort in the same order in all package formats.
func Parse(text string) (Version, error) {
	m := form.FindStringSubmatch(text)
	if m == nil {
		return Version{}, fmt.Errorf("version %q: expected MAJOR.MINOR.PATCH, "+
			"optionally with -alpha.N, -beta.N or -rc.N", text)
	}
	v := Version{Stage: m[4], Snapshot: m[6]}
	for i, part := range []*int{&v.Major, &v.Minor, &v.Patch, nil, &v.Number} {
		if part == nil || m[i+1] == "" {
			continue
		}
		n, err := strconv.Atoi(m[i+1])
		if err != nil {
			return Version{}, fmt.Errorf("version %q: %w", text, err)
		}
		*part = n
	}
	if v.String() != strings.TrimPrefix(text, "v") {
		return Version{}, fmt.Errorf("version %q: a snapshot follows the release as -0.TIME and "+
			"a pre-release as .0.TIME", text)
	}
	return v, nil
}

// Commit is a commit that has no tag of its own.
type Commit struct {
	Hash  string // at least 12 hexadecimal digits
	Time  time.Time
	Dirty bool // the working tree differs from the commit
}

// Next returns the version of a commit after v: greater than v and smaller than the next release.
func (v Version) Next(c Commit) Version {
	if v.Stage == "" && v != (Version{}) {
		v.Patch++
	}
	v.Snapshot = c.Time.UTC().Format("20060102150405") + ".g" + c.Hash[:12]
	if c.Dirty {
		v.Snapshot += ".dirty"
	}
	return v
}

// Release reports whether v is a release or pre-release and not a snapshot.
func (v Version) Release() bool { return v.Snapshot == "" }

// String returns the semantic version.
func (v Version) String() string { return v.join("-", "-") }

// Debian returns the version of deb packages, without a revision.
func (v Version) Debian() string { return v.tilde() }

// RPM returns the version of rpm packages, without a release.
func (v Version) RPM() string { return v.tilde() }

// tilde separates the pre-release with "~", which sorts before the empty string. Snapshots before
// the first pre-release have "~~", because rpm sorts digits after letters.
func (v Version) tilde() string { return v.join("~", "~~") }

// join returns the version with separators before the stage, and before a snapshot without a stage.
func (v Version) join(stage, snapshot string) string {
	s := v.core()
	if v.Stage != "" {
		s += fmt.Sprintf("%s%s.%d", stage, v.Stage, v.Number)
		snapshot = "."
	}
	if v.Snapshot != "" {
		s += snapshot + "0." + v.Snapshot
	}
	return s
}

// Alpine returns the version of apk packages, without a release. It has no commit, for which apk
// has no place.
func (v Version) Alpine() string {
	s := v.core()
	at, _, _ := strings.Cut(v.Snapshot, ".")
	switch {
	case v.Stage == "" && at == "":
		return s
	case v.Stage == "":
		return s + "_alpha0_p" + at // after no release and before _alpha1
	case at == "":
		return fmt.Sprintf("%s_%s%d", s, v.Stage, v.Number)
	}
	return fmt.Sprintf("%s_%s%d_p%s", s, v.Stage, v.Number, at)
}

func (v Version) core() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }
