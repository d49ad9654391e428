package report_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tenon-cni/tenon/conformance/report"
)

// formats are the writers with the suffixes of their golden files.
func formats() map[string]func(io.Writer, *report.Report) error {
	return map[string]func(io.Writer, *report.Report) error{
		"junit.xml": report.JUnit, "sarif": report.SARIF, "md": report.Markdown, "html": report.HTML,
		"svg": report.Badge, "json": report.JSON,
		"text": func(w io.Writer, r *report.Report) error { return report.Text(w, r, report.TextOptions{}) },
	}
}

func written(t *testing.T, format string, r *report.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := formats()[format](&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// findings returns the IDs of the findings of a report in their order. With counted, it leaves out
// findings that the profile does not count or a waiver accepts.
func findings(r *report.Report, counted bool) (ids []string) {
	for _, s := range r.Subjects {
		for _, f := range s.Findings {
			if !counted || f.Counts && f.Waived == nil {
				ids = append(ids, f.ID)
			}
		}
	}
	return ids
}

// reports returns reports with each exit status.
func reports(t *testing.T) map[string]*report.Report {
	t.Helper()
	subject := func(i int, waivers ...report.Waiver) *report.Report {
		r := example()
		r.Subjects = r.Subjects[i : i+1]
		if err := r.Settle(report.Spec11, waivers); err != nil {
			t.Fatal(err)
		}
		return r
	}
	colon := example()
	colon.Subjects = colon.Subjects[:1]
	colon.Subjects[0].Name = "http://a#b?c%41 d"
	for i := range colon.Subjects[0].Findings {
		colon.Subjects[0].Findings[i].Subject = colon.Subjects[0].Name
	}
	if err := colon.Settle(report.Strict, nil); err != nil {
		t.Fatal(err)
	}
	old := example() // lacks a version, and nothing else
	old.Subjects = old.Subjects[2:]
	if err := old.Settle(report.Spec10, nil); err != nil {
		t.Fatal(err)
	}
	empty := &report.Report{}
	if err := empty.Settle(report.Strict, nil); err != nil {
		t.Fatal(err)
	}
	return map[string]*report.Report{
		"strict": settled(t, report.Strict), "spec-1.0": settled(t, report.Spec10),
		"veth": subject(0), "odd": subject(1), "good": subject(2), "empty": empty, "colon": colon, "old": old,
		"waived": subject(0, report.Waiver{Row: "PL-DEL-02", Subject: "veth", Reason: "example#1"}),
		"unused": subject(2, report.Waiver{Row: "PL-ADD-04", Subject: "good", Reason: "none"}),
	}
}

type junitCase struct {
	Class   string    `xml:"classname,attr"`
	Name    string    `xml:"name,attr"`
	Failure *junitEnd `xml:"failure"`
	Error   *junitEnd `xml:"error"`
	Skipped *junitEnd `xml:"skipped"`
}

type junitEnd struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

type junitCounts struct {
	Tests    int `xml:"tests,attr"`
	Failures int `xml:"failures,attr"`
	Errors   int `xml:"errors,attr"`
	Skipped  int `xml:"skipped,attr"`
}

type junitFile struct {
	XMLName xml.Name `xml:"testsuites"`
	junitCounts
	Suites []struct {
		Name string `xml:"name,attr"`
		junitCounts
		Cases []junitCase `xml:"testcase"`
	} `xml:"testsuite"`
}

// TestJUnit parses the report as a consumer of JUnit does, and compares it with the checks and findings.
func TestJUnit(t *testing.T) {
	t.Parallel()
	for name, r := range reports(t) {
		var file junitFile
		if err := xml.Unmarshal([]byte(written(t, "junit.xml", r)), &file); err != nil {
			t.Fatal(err)
		}
		var all junitCounts
		for _, s := range file.Suites {
			var in junitCounts
			for _, c := range s.Cases {
				in.Tests++
				in.Failures += count(c.Failure)
				in.Errors += count(c.Error)
				in.Skipped += count(c.Skipped)
				if count(c.Failure)+count(c.Error)+count(c.Skipped) > 1 {
					t.Errorf("%s: %s has several outcomes", name, c.Name)
				}
			}
			if in != s.junitCounts {
				t.Errorf("%s: %s counts %v, want %v", name, s.Name, s.junitCounts, in)
			}
			all = junitCounts{all.Tests + in.Tests, all.Failures + in.Failures,
				all.Errors + in.Errors, all.Skipped + in.Skipped}
		}
		if all != file.junitCounts || all.Failures != r.Summary.Failed {
			t.Errorf("%s: counts %v, want %v with %d failures", name, file.junitCounts, all, r.Summary.Failed)
		}
		if green := all.Failures+all.Errors == 0; green != (r.Status() == report.StatusPass) {
			t.Errorf("%s: no failures and errors is %v, but the status is %d", name, green, r.Status())
		}
		compareCases(t, name, r, file)
	}
}

func count(e *junitEnd) int {
	if e == nil {
		return 0
	}
	return 1
}

// compareCases compares the cases of each subject with its checks.
func compareCases(t *testing.T, name string, r *report.Report, file junitFile) {
	t.Helper()
	for i, s := range r.Subjects {
		for j, c := range s.Checks {
			got := file.Suites[i].Cases[j]
			if !strings.HasPrefix(got.Name, c.Row+" "+c.Title) || !strings.HasPrefix(c.Row, got.Class+"-") {
				t.Errorf("%s: case %s %q stands for %s", name, got.Class, got.Name, c.Row)
			}
			waived := slices.ContainsFunc(s.Findings, func(f report.Finding) bool { return f.ID == c.Finding && f.Waived != nil })
			fails := c.Outcome == report.Fail && c.Counts && !waived
			if (got.Failure != nil) != fails || (got.Error != nil) != (c.Outcome == report.Error) {
				t.Errorf("%s: %s %s: failure %v, error %v", name, c.Row, c.Outcome, got.Failure, got.Error)
			}
			if fails && !strings.Contains(got.Failure.Text, "tenon conform replay "+c.Finding) {
				t.Errorf("%s: %s does not lead to %s", name, got.Name, c.Finding)
			}
			if passes := c.Outcome == report.Pass || c.Outcome == report.Info; passes == (got.Skipped != nil) && !fails && got.Error == nil {
				t.Errorf("%s: %s %s: skipped is %v", name, c.Row, c.Outcome, got.Skipped)
			}
		}
	}
}

type sarifFile struct {
	Runs []struct {
		Tool struct {
			Driver struct{ Rules []struct{ ID string } }
		}
		Invocations []struct{ ExitCode int }
		Results     []struct {
			RuleID, Level string
			RuleIndex     int
			Locations     []struct {
				PhysicalLocation struct{ ArtifactLocation struct{ URI string } }
			}
			PartialFingerprints map[string]string
			Suppressions        []struct{ Justification string }
			Properties          struct{ ID string }
		}
	}
}

// TestSARIF validates the report against the properties that the schema of SARIF requires, and
// compares it with the findings.
func TestSARIF(t *testing.T) {
	t.Parallel()
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	schema, err := compiler.Compile(filepath.Join("testdata", "sarif.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range reports(t) {
		text := written(t, "sarif", r)
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var file sarifFile
		if err := json.Unmarshal([]byte(text), &file); err != nil {
			t.Fatal(err)
		}
		run := file.Runs[0]
		if run.Invocations[0].ExitCode != r.Status() {
			t.Errorf("%s: exit code %d, want %d", name, run.Invocations[0].ExitCode, r.Status())
		}
		var got, want []string
		for _, k := range run.Results {
			reason := ""
			if k.Suppressions != nil {
				reason = k.Suppressions[0].Justification
			}
			uri, err := url.Parse(k.Locations[0].PhysicalLocation.ArtifactLocation.URI)
			if err != nil || uri.IsAbs() || k.RuleID != run.Tool.Driver.Rules[k.RuleIndex].ID {
				t.Errorf("%s: result %+v, error %v", name, k, err)
				continue
			}
			got = append(got, strings.Join([]string{k.Properties.ID, k.RuleID, strings.TrimPrefix(uri.Path, "./"), k.Level, reason,
				k.PartialFingerprints["conform/v1"]}, " "))
		}
		for _, s := range r.Subjects {
			for _, f := range s.Findings {
				level, reason := "warning", ""
				switch {
				case !f.Counts:
					level = "note"
				case f.Level == "MUST":
					level = "error"
				}
				if f.Waived != nil {
					reason = f.Waived.Reason
				}
				want = append(want, strings.Join([]string{f.ID, f.Row, f.Subject, level, reason,
					f.Row + "/" + f.Subject + "/" + f.Scenario}, " "))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// shape returns the elements and attributes of an XML document or of the page, without their texts
// and values.
func shape(t *testing.T, document string) (list []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(document))
	if strings.HasPrefix(document, "<!doctype html>") {
		d.Strict, d.AutoClose, d.Entity = false, []string{"meta"}, xml.HTMLEntity
	}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		switch e := token.(type) {
		case xml.StartElement:
			text := e.Name.Local
			for _, a := range e.Attr {
				text += " " + a.Name.Local
			}
			list = append(list, text)
		case xml.EndElement:
			list = append(list, "/"+e.Name.Local)
		case xml.CharData:
		default:
			list = append(list, fmt.Sprintf("%T", e))
		}
	}
}

// TestHTML checks that the page is well formed, has all findings with the counted ones unfolded,
// loads nothing and runs nothing.
func TestHTML(t *testing.T) {
	t.Parallel()
	for name, r := range reports(t) {
		page := written(t, "html", r)
		var open, all []string
		for _, m := range regexp.MustCompile(`<details( open)? id="([^"]*)">`).FindAllStringSubmatch(page, -1) {
			all = append(all, m[2])
			if m[1] != "" {
				open = append(open, m[2])
			}
		}
		if diff := cmp.Diff([][]string{findings(r, false), findings(r, true)}, [][]string{all, open}); diff != "" {
			t.Errorf("%s: findings and unfolded ones (-want +got):\n%s", name, diff)
		}
		for _, part := range shape(t, page) {
			element, attributes, _ := strings.Cut(part, " ")
			if slices.Contains([]string{"script", "link", "img", "iframe", "object", "form"}, element) ||
				strings.Contains(attributes, "src") || strings.Contains(attributes, "on") && element != "meta" && attributes != "name content" {
				t.Errorf("%s: the page has %s", name, part)
			}
		}
		for _, m := range regexp.MustCompile(`href="([^"]*)"|url\(|@import`).FindAllStringSubmatch(page, -1) {
			if !strings.HasPrefix(m[1], "#") || !strings.Contains(page, `id="`+m[1][1:]+`"`) {
				t.Errorf("%s: the page refers to %q", name, m[0])
			}
		}
		if !strings.Contains(page, "prefers-color-scheme: dark") || !strings.Contains(page, "width=device-width") {
			t.Errorf("%s: the page has no dark colors or does not fit phones", name)
		}
	}
}

// TestBadge checks the text and the color of each verdict.
func TestBadge(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"strict": "CNI strict: 1 of 3 pass #cf222e", "veth": "CNI spec-1.1: fail #cf222e",
		"odd": "CNI spec-1.1: incomplete #57606a", "good": "CNI spec-1.1: pass #1a7f37",
		"waived": "CNI spec-1.1: pass with 1 waiver #1a7f37", "empty": "CNI strict: incomplete #57606a",
	} {
		r := reports(t)[name]
		var svg struct {
			XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
			Label   string   `xml:"aria-label,attr"`
			Title   string   `xml:"title"`
			Text    string   `xml:"text"`
			Rect    struct {
				Fill string `xml:"fill,attr"`
			} `xml:"rect"`
		}
		if err := xml.Unmarshal([]byte(written(t, "svg", r)), &svg); err != nil {
			t.Fatal(err)
		}
		if got := svg.Text + " " + svg.Rect.Fill; got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		if svg.Title != svg.Text+": "+r.Summary.String() || svg.Label != svg.Title {
			t.Errorf("%s: title %q, label %q", name, svg.Title, svg.Label)
		}
	}
}

// outside returns the lines of a Markdown text that are not part of code, and the number of blocks of
// code (CommonMark, section 4.5).
func outside(t *testing.T, text string) (lines []string, blocks int) {
	t.Helper()
	fence := ""
	for l := range strings.Lines(text) {
		trimmed := strings.TrimSpace(l)
		ticks := trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, "`"))]
		switch {
		case fence != "" && len(ticks) >= len(fence) && ticks == trimmed:
			fence = ""
		case fence != "":
			if trimmed != "" && !strings.HasPrefix(l, "  ") {
				t.Errorf("%q is not part of its item", l)
			}
		case len(ticks) >= 3:
			fence = ticks
			blocks++
		default:
			lines = append(lines, strings.TrimRight(l, "\n"))
		}
	}
	if fence != "" {
		t.Errorf("a block of code does not end in\n%s", text)
	}
	return lines, blocks
}

// unescaped matches characters that Markdown interprets, after \\ and \X were removed.
var unescaped = regexp.MustCompile("[`<>\\[\\]_~&$]")

// markers returns what each line of a Markdown text begins with, and its number of columns.
func markers(t *testing.T, text string) (list []string) {
	t.Helper()
	lines, _ := outside(t, text)
	for _, l := range lines {
		plain := regexp.MustCompile(`\\.`).ReplaceAllString(l, "")
		if found := unescaped.FindString(plain); found != "" {
			t.Errorf("%q has the character %q", l, found)
		}
		mark, _, _ := strings.Cut(plain, " ")
		list = append(list, fmt.Sprintf("%s %d %d", strings.Trim(mark, "abcdefghijklmnopqrstuvwxyz0123456789"),
			strings.Count(plain, "|"), strings.Count(plain, "**")))
	}
	return list
}

// TestMarkdown checks that the report has all findings, and the counted ones with their details.
func TestMarkdown(t *testing.T) {
	t.Parallel()
	for name, r := range reports(t) {
		text := written(t, "md", r)
		markers(t, text)
		all := regexp.MustCompile(`(?m)^- (f-\w+): `).FindAllStringSubmatch(text, -1)
		counted := regexp.MustCompile(`(?m)^### (f-\w+): `).FindAllStringSubmatch(text, -1)
		if diff := cmp.Diff([][]string{findings(r, false), findings(r, true)}, [][]string{second(all), second(counted)}); diff != "" {
			t.Errorf("%s: findings and counted ones (-want +got):\n%s", name, diff)
		}
	}
}

func second(matches [][]string) (list []string) {
	for _, m := range matches {
		list = append(list, m[1])
	}
	return list
}

// attacked adds a text to each text of a value that is not empty.
func attacked(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			attacked(v.Elem(), text)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() && v.Type().Field(i).Type != reflect.TypeFor[json.RawMessage]() {
				attacked(v.Field(i), text)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				attacked(v.Index(i), text)
			}
		}
	case reflect.String:
		if v.String() != "" && v.Type() != reflect.TypeFor[report.Outcome]() {
			v.SetString(v.String() + text)
		}
	}
}

// TestAttack adds hostile text to every text of a report. The structure of each format must stay the
// same, and no control character may get into it.
func TestAttack(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"\x1b]0;title\a\x00\x01\u0085\u202e\ufffe\uffff\xff\xed\xa0\x80", "]]>", "]]><x/>", "<script>alert(1)</script>",
		`" onload="alert(1)`, "' x='", "</pre></details></style></title><h1>", "<!--", "&lt;&#0;&unknown;",
		"| a | b |", "`", "```", "**", "](javascript:alert(1))", "<details>", "\\", "$x$", strings.Repeat("é", 5000),
	} {
		quiet, loud := settled(t, report.Strict), settled(t, report.Strict)
		attacked(reflect.ValueOf(quiet), "a")
		attacked(reflect.ValueOf(loud), text)
		for format := range formats() {
			got, want := written(t, format, loud), written(t, format, quiet)
			if i := strings.IndexFunc(got, func(c rune) bool {
				if format == "json" { // for programs: escapes what JSON does not allow
					return c < ' ' && c != '\n'
				}
				return c != '\n' && unicode.IsControl(c) || unicode.Is(unicode.Cf, c) || c == 0xFFFE
			}); i >= 0 {
				t.Errorf("%s with %q contains %q", format, text, got[i:min(i+20, len(got))])
			}
			switch format {
			case "junit.xml", "html", "svg":
				if diff := cmp.Diff(shape(t, want), shape(t, got)); diff != "" {
					t.Errorf("%s changes with %q (-want +got):\n%s", format, text, diff)
				}
			case "md":
				if diff := cmp.Diff(markers(t, want), markers(t, got)); diff != "" {
					t.Errorf("%s changes with %q (-want +got):\n%s", format, text, diff)
				}
			case "sarif", "json":
				if !json.Valid([]byte(got)) {
					t.Errorf("%s is invalid with %q", format, text)
				}
			}
		}
	}
}

// TestAttackLines checks that a text of several lines stays in its block of Markdown.
func TestAttackLines(t *testing.T) {
	t.Parallel()
	r := settled(t, report.Strict)
	r.Subjects[0].Findings[1].Actual = "a\n```\n# heading\n  ````\n<script>\n- item\n\n| x |"
	quiet := settled(t, report.Strict)
	quiet.Subjects[0].Findings[1].Actual = "a\nb"
	text := written(t, "md", r)
	if diff := cmp.Diff(markers(t, written(t, "md", quiet)), markers(t, text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, blocks := outside(t, text); blocks != 1 {
		t.Errorf("%d blocks of code, want 1", blocks)
	}
}

// golden compares a text with a golden file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
