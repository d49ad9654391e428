package report_test

import (
	"bytes"
	"flag"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/conformance/report"
)

var update = flag.Bool("update", false, "write the golden files")

func settled(t *testing.T, p report.Profile) *report.Report {
	t.Helper()
	r := example()
	if err := r.Settle(p, waivers()); err != nil {
		t.Fatal(err)
	}
	return r
}

func text(t *testing.T, r *report.Report, o report.TextOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.Text(&b, r, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func encoded(t *testing.T, r *report.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.JSON(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestFormats compares a report in each format with a golden file.
func TestFormats(t *testing.T) {
	t.Parallel()
	r := settled(t, report.Strict)
	for format := range formats() {
		golden(t, filepath.Join("testdata", "report."+format), written(t, format, r))
	}
}

// TestHostile checks that a report contains no control characters of a subject. JSON escapes them.
func TestHostile(t *testing.T) {
	t.Parallel()
	r := settled(t, report.Strict)
	for _, c := range text(t, r, report.TextOptions{}) {
		if c != '\n' && unicode.IsControl(c) || c == '\u202e' {
			t.Errorf("the text contains %q", c)
		}
	}
	for _, c := range encoded(t, r) {
		if c != '\n' && unicode.IsControl(c) {
			t.Errorf("JSON contains %q", c)
		}
	}
}

// TestLongText checks the limit of texts of a subject.
func TestLongText(t *testing.T) {
	t.Parallel()
	r := settled(t, report.Strict)
	r.Subjects[0].Findings[1].Actual = strings.Repeat("é", 5000)
	got := text(t, r, report.TextOptions{})
	if n := strings.Count(got, "é"); n != 2048 { // once, though the finding concerns two versions
		t.Errorf("%d characters of the text, want 2048", n)
	}
	if !strings.Contains(got, "5904 more bytes") {
		t.Error("the text does not state how much is left out")
	}
}

// TestColor checks that colors are the only difference of a text for terminals.
func TestColor(t *testing.T) {
	t.Parallel()
	r := settled(t, report.Strict)
	colored := text(t, r, report.TextOptions{Color: true})
	plain := colored
	for _, code := range []string{"0", "1", "2", "31", "32", "33"} {
		plain = strings.ReplaceAll(plain, "\x1b["+code+"m", "")
	}
	if want := text(t, r, report.TextOptions{}); plain != want || colored == want {
		t.Error(cmp.Diff(want, plain))
	}
}

// TestJSON checks that a report can be read again, and a report of another format cannot.
func TestJSON(t *testing.T) {
	t.Parallel()
	r := settled(t, report.Strict)
	again, err := report.Read(strings.NewReader(encoded(t, r)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text(t, r, report.TextOptions{}), text(t, again, report.TextOptions{})); diff != "" {
		t.Errorf("the report changes when it is read (-want +got):\n%s", diff)
	}
	if _, err := report.Read(strings.NewReader(`{"format": 99}`)); err == nil {
		t.Error("a report of another format is read")
	}
}
