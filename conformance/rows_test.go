package conformance

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
)

func TestRows(t *testing.T) {
	t.Parallel()
	all, err := Rows()
	if err != nil {
		t.Fatal(err)
	}
	id := regexp.MustCompile(`^[A-Z]+(-[A-Z]+)?-[0-9]{2,3}$`)
	seen := map[string]bool{}
	areas := map[string]int{}
	for _, r := range all {
		if !id.MatchString(r.ID) || seen[r.ID] {
			t.Errorf("%q is not a valid identifier, or not unique", r.ID)
		}
		seen[r.ID] = true
		areas[r.ID[:strings.LastIndex(r.ID, "-")]]++
		if words := len(strings.Fields(r.Title)); words < 2 || words > 10 {
			t.Errorf("%s: title of %d words", r.ID, words)
		}
		if r.Rule == "" || r.Section == "" {
			t.Errorf("%s lacks a rule or a section", r.ID)
		}
		if r.Disputed != "" && !slices.ContainsFunc(all, func(d Row) bool { return d.ID == r.Disputed && d.Level == LevelAdvice }) {
			t.Errorf("%s: disputed in unknown row %s", r.ID, r.Disputed)
		}
		fromText := slices.Contains([]Level{LevelMust, LevelMustNot, LevelShould, LevelShouldNot, LevelMay}, r.Level)
		if fromText && !strings.HasPrefix(r.Section, "CNI ") && !strings.HasPrefix(r.Section, "none: advice") {
			t.Errorf("%s: section %q", r.ID, r.Section)
		}
		if r.Oldest > r.Latest {
			t.Errorf("%s: from %v to %v", r.ID, r.Oldest, r.Latest)
		}
	}
	want := map[string]int{
		"CFG": 34, "DSC": 9, "DRP": 9, "VER": 16, "ENV": 18, "EXE": 18, "LIF": 14, "REQ": 17,
		"RT-ADD": 11, "PL-ADD": 13, "RT-DEL": 9, "PL-DEL": 10, "RT-CHK": 9, "PL-CHK": 10,
		"PL-VRS": 5, "RT-VRS": 4, "PL-STA": 8, "RT-STA": 5, "RT-GC": 14, "PL-GC": 9,
		"CACHE": 12, "DLG": 10, "IPAM": 11, "RES": 19, "CNV": 16,
		"ERR": 13, "CONV": 24, "DNS": 4, "TRC": 6, "SEC": 7, "TOOL": 6, "DIS": 39, "R": 116,
	}
	if diff := cmp.Diff(want, areas); diff != "" {
		t.Errorf("rows by area (-want +got):\n%s", diff)
	}
	forbids := func(r Row) bool { return r.Level == LevelMustNot && r.Latest == cni.V031 }
	if i := slices.IndexFunc(all, forbids); i < 0 {
		t.Error("no row forbids anything only up to 0.3.1")
	} else if r := all[i]; r.Party != PartyRuntime || r.Oldest != cni.V010 || !r.Holds(cni.V020) ||
		r.Holds(cni.V040) {
		t.Errorf("%+v", r)
	}
}

func TestParseRequirementRefuses(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"too few columns": "X-1\tMUST\tall\tplugin",
		"unknown level":   "X-1\tSHALL\tall\tplugin\ta title",
		"unknown party":   "X-1\tMUST\tall\tdaemon\ta title",
		"not a range":     "X-1\tMUST\t1.0.0\tplugin\ta title",
		"unknown version": "X-1\tMUST\t1.0.0-1.2.0\tplugin\ta title",
	} {
		if r, err := parseRequirement(line); err == nil {
			t.Errorf("%s: parsed as %+v", name, r)
		}
	}
}
