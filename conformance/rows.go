package conformance

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
)

//go:embed rows.tsv
var rowsTable string

// Row is one requirement.
type Row struct {
	ID     string // "PL-DEL-02"; the letters say what it is about: see the package's documentation
	Level  Level
	Oldest cni.Version // oldest version of the specification that it holds for
	Latest cni.Version // latest version that it holds for
	Party  Party
	Title  string // in a few words; the specification has the exact ones
}

// Level says how binding a row is, and where it comes from.
type Level string

// The levels: those of the specification, and three for what it does not say.
const (
	LevelMust       Level = "MUST"
	LevelMustNot    Level = "MUST NOT"
	LevelShould     Level = "SHOULD"
	LevelShouldNot  Level = "SHOULD NOT"
	LevelMay        Level = "MAY"
	LevelDeFacto    Level = "DEF" // the text is silent; the reference library behaves so and others rely on it
	LevelAdvice     Level = "ADV" // sources contradict each other, or the reference library has a defect
	LevelRegression Level = "REG" // an implementation got it wrong once
)

// Party is whom a row obliges.
type Party string

// The parties.
const (
	PartyRuntime       Party = "runtime"
	PartyPlugin        Party = "plugin"
	PartyBoth          Party = "both"          // runtimes and plugins
	PartyConfiguration Party = "configuration" // whoever writes one; a runtime has to read it so
	PartyCommand       Party = "command"       // a runtime that is a command line
)

// Holds reports whether the row says something about version v.
func (r Row) Holds(v cni.Version) bool { return r.Oldest <= v && v <= r.Latest }

// Rows returns the catalogue of requirements. An error means that the embedded table is inconsistent.
func Rows() ([]Row, error) {
	_, body, _ := strings.Cut(strings.TrimSuffix(rowsTable, "\n"), "\n")
	var rows []Row
	for line := range strings.SplitSeq(body, "\n") {
		r, err := parseRequirement(line)
		if err != nil {
			return nil, fmt.Errorf("requirement %q: %w", line, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// parseRequirement reads a line of the table: id, level, versions, party, title.
func parseRequirement(line string) (Row, error) {
	columns := strings.Split(line, "\t")
	if len(columns) != 5 {
		return Row{}, fmt.Errorf("%d columns", len(columns))
	}
	r := Row{ID: columns[0], Level: Level(columns[1]), Party: Party(columns[3]), Title: columns[4]}
	if !slices.Contains([]Level{LevelMust, LevelMustNot, LevelShould, LevelShouldNot, LevelMay, LevelDeFacto, LevelAdvice, LevelRegression}, r.Level) {
		return Row{}, fmt.Errorf("level %q is unknown", r.Level)
	}
	if !slices.Contains([]Party{PartyRuntime, PartyPlugin, PartyBoth, PartyConfiguration, PartyCommand}, r.Party) {
		return Row{}, fmt.Errorf("party %q is unknown", r.Party)
	}
	var err error
	r.Oldest, r.Latest, err = parseVersions(columns[2])
	return r, err
}

// parseVersions reads "all" or "0.4.0-1.0.0", where either end may be missing.
func parseVersions(s string) (oldest, latest cni.Version, err error) {
	oldest, latest = cni.V010, cni.Newest
	if s == "all" {
		return oldest, latest, nil
	}
	from, to, ok := strings.Cut(s, "-")
	if !ok {
		return 0, 0, fmt.Errorf("versions %q are no range", s)
	}
	for _, end := range []struct {
		text    string
		version *cni.Version
	}{{from, &oldest}, {to, &latest}} {
		if end.text == "" {
			continue
		}
		if *end.version, err = cni.ParseVersion(end.text); err != nil {
			return 0, 0, err
		}
	}
	return oldest, latest, nil
}
