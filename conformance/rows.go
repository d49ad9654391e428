package conformance

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
)

//go:embed rows.tsv
var rowsTable string

//go:embed rules.tsv
var rulesTable string

// Row is one requirement.
type Row struct {
	ID     string // such as "PL-DEL-02"; see the package documentation for the prefixes
	Level  Level
	Oldest cni.Version // oldest version of the specification to which it applies
	Latest cni.Version // latest version to which it applies
	Party  Party
	Title  string // a summary
	// Section is the section of the specification that has the exact wording. For other levels it
	// begins with "none" and states where the row comes from.
	Section string
	Rule    string // the requirement in full, in our words; Title if the catalog has no more
	// Disputed is the row of the area DIS that explains how libcni or other programs in wide use differ
	// from this row. It is empty if they do not.
	Disputed string
}

// Level states how binding a row is, and its source.
type Level string

// The levels of the specification, and three levels for behavior that it does not specify.
const (
	LevelMust       Level = "MUST"
	LevelMustNot    Level = "MUST NOT"
	LevelShould     Level = "SHOULD"
	LevelShouldNot  Level = "SHOULD NOT"
	LevelMay        Level = "MAY"
	LevelDeFacto    Level = "DEF" // specified nowhere, but implementations rely on libcni's behavior
	LevelAdvice     Level = "ADV" // sources contradict each other, or libcni has a defect
	LevelRegression Level = "REG" // a defect that an implementation once had
)

// Party is the party that a row obliges.
type Party string

// The parties.
const (
	PartyRuntime       Party = "runtime"
	PartyPlugin        Party = "plugin"
	PartyBoth          Party = "both"          // runtimes and plugins
	PartyConfiguration Party = "configuration" // its author; runtimes must accept valid ones
	PartyCommand       Party = "command"       // a runtime that is a command-line tool
)

// Holds reports whether the row applies to version v.
func (r Row) Holds(v cni.Version) bool { return r.Oldest <= v && v <= r.Latest }

// Rows returns the catalog of requirements. An error means that the embedded table is inconsistent.
func Rows() ([]Row, error) {
	index := map[string]int{}
	var rows []Row
	for line := range lines(rowsTable) {
		r, err := parseRequirement(line)
		if err != nil {
			return nil, fmt.Errorf("requirement %q: %w", line, err)
		}
		index[r.ID] = len(rows)
		rows = append(rows, r)
	}
	for line := range lines(rulesTable) {
		columns := strings.Split(line, "\t")
		i, known := index[columns[0]]
		if len(columns) != 4 || !known {
			return nil, fmt.Errorf("rule %q: wrong number of columns, or unknown row", line)
		}
		rows[i].Section, rows[i].Disputed, rows[i].Rule = columns[1], columns[2], columns[3]
	}
	return rows, nil
}

// lines returns the lines of a table without its head.
func lines(table string) iter.Seq[string] {
	_, body, _ := strings.Cut(strings.TrimSuffix(table, "\n"), "\n")
	return strings.SplitSeq(body, "\n")
}

// Digest identifies the edition of the catalog: it changes with each change of a row.
func Digest() string {
	sum := sha256.Sum256([]byte(rowsTable + rulesTable))
	return hex.EncodeToString(sum[:])
}

// parseRequirement parses a line of the table: ID, level, versions, party, title.
func parseRequirement(line string) (Row, error) {
	columns := strings.Split(line, "\t")
	if len(columns) != 5 {
		return Row{}, fmt.Errorf("%d columns", len(columns))
	}
	r := Row{ID: columns[0], Level: Level(columns[1]), Party: Party(columns[3]), Title: columns[4],
		Section: "none: a mistake that an implementation once made", Rule: columns[4]}
	levels := []Level{
		LevelMust, LevelMustNot, LevelShould, LevelShouldNot, LevelMay,
		LevelDeFacto, LevelAdvice, LevelRegression,
	}
	if !slices.Contains(levels, r.Level) {
		return Row{}, fmt.Errorf("unknown level %q", r.Level)
	}
	parties := []Party{
		PartyRuntime, PartyPlugin, PartyBoth, PartyConfiguration, PartyCommand,
	}
	if !slices.Contains(parties, r.Party) {
		return Row{}, fmt.Errorf("unknown party %q", r.Party)
	}
	var err error
	r.Oldest, r.Latest, err = parseVersions(columns[2])
	return r, err
}

// parseVersions parses "all" or a range such as "0.4.0-1.0.0", of which either end may be missing.
func parseVersions(s string) (oldest, latest cni.Version, err error) {
	oldest, latest = cni.V010, cni.Newest
	if s == "all" {
		return oldest, latest, nil
	}
	from, to, ok := strings.Cut(s, "-")
	if !ok {
		return 0, 0, fmt.Errorf("versions %q are not a range", s)
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
