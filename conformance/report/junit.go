package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
)

// JUnit writes the report as JUnit XML: a suite for each subject with a case for each check.
// Waived and uncounted findings are skipped cases with the reason. An error
// stands for a check that the judge could not finish, and for each reason why the verdict remains
// open. The file has neither failures nor errors if and only if [Report.Status] returns
// [StatusPass].
func JUnit(w io.Writer, r *Report) error {
	r = cleaned(r)
	var suites []junitSuite
	for i := range r.Subjects {
		suites = append(suites, r.Subjects[i].junit(r.Profile))
	}
	suites = append(suites, r.junitProblems()...)
	var p printer
	p.line(`<?xml version="1.0" encoding="UTF-8"?>`)
	var all junitCounts
	for _, s := range suites {
		all.add(s.counts())
	}
	p.line(`<testsuites name="tenon conform" %s time="%.3f">`, all, r.Seconds)
	for _, s := range suites {
		s.write(&p, r)
	}
	p.line("</testsuites>")
	_, err := p.WriteTo(w)
	return err
}

// junitSuite is the element testsuite.
type junitSuite struct {
	name    string
	seconds float64
	cases   []junitCase
}

// junitCase is the element testcase. The element in it, if any, is failure, error or skipped.
type junitCase struct {
	class, name                  string
	seconds                      float64
	element, kind, message, text string
}

// junitCounts are the numbers of cases.
type junitCounts struct{ tests, failures, errors, skipped int }

func (c *junitCounts) add(d junitCounts) {
	c.tests, c.failures = c.tests+d.tests, c.failures+d.failures
	c.errors, c.skipped = c.errors+d.errors, c.skipped+d.skipped
}

// String returns the attributes of an element.
func (c junitCounts) String() string {
	return fmt.Sprintf(`tests="%d" failures="%d" errors="%d" skipped="%d"`,
		c.tests, c.failures, c.errors, c.skipped)
}

func (s junitSuite) counts() junitCounts {
	c := junitCounts{tests: len(s.cases)}
	for _, k := range s.cases {
		switch k.element {
		case "failure":
			c.failures++
		case "error":
			c.errors++
		case "skipped":
			c.skipped++
		}
	}
	return c
}

func (s junitSuite) write(p *printer, r *Report) {
	p.line(` <testsuite name="%s" %s time="%.3f" timestamp="%s">`,
		escape(s.name), s.counts(), s.seconds, r.Started.UTC().Format("2006-01-02T15:04:05"))
	p.line("  <properties>")
	for _, d := range []detail{{"profile", string(r.Profile)}, {"judge", r.Judge},
		{"catalog", r.Catalog}, {"kernel", r.Kernel}, {"user", r.User}} {
		p.line(`   <property name="%s" value="%s"/>`, d.name, escape(d.text))
	}
	p.line("  </properties>")
	for _, c := range s.cases {
		c.write(p)
	}
	p.line(" </testsuite>")
}

func (c junitCase) write(p *printer) {
	head := fmt.Sprintf(`  <testcase classname="%s" name="%s" time="%.3f"`,
		escape(c.class), escape(c.name), c.seconds)
	if c.element == "" {
		p.line("%s/>", head)
		return
	}
	kind := ""
	if c.kind != "" {
		kind = fmt.Sprintf(` type="%s"`, escape(c.kind))
	}
	p.line("%s>", head)
	p.line(`   <%[1]s%[2]s message="%[3]s">%[4]s</%[1]s>`,
		c.element, kind, escape(c.message), escape(c.text))
	p.line("  </testcase>")
}

// junit returns the suite of a subject.
func (s *Subject) junit(profile Profile) junitSuite {
	suite := junitSuite{name: "tenon.conform.plugin." + s.Name, seconds: s.Seconds}
	for _, c := range s.Checks {
		suite.cases = append(suite.cases, s.junitCase(c))
	}
	for _, reason := range s.Missing {
		suite.cases = append(suite.cases, junitCase{
			class: "profile", name: string(profile) + ": " + reason,
			element: "error", kind: string(Incomplete), message: reason,
		})
	}
	return suite
}

// junitCase returns the case of a check.
func (s *Subject) junitCase(c Check) junitCase {
	var in []string
	for _, part := range []string{c.Scenario, c.Role, c.Version} {
		if part != "" {
			in = append(in, part)
		}
	}
	out := junitCase{class: group(c.Row), name: c.Row + " " + c.Title, seconds: c.Seconds}
	out.message = c.Reason
	if len(in) > 0 {
		out.name += " [" + strings.Join(in, ", ") + "]"
	}
	switch c.Outcome {
	case Error:
		out.element, out.kind = "error", string(Error)
	case Skip:
		out.element = "skipped"
	case NotApplicable:
		out.element, out.message = "skipped", "not applicable: "+c.Reason
	case Fail:
		out.fail(c, s.finding(c))
	}
	return out
}

// fail describes a failed check by its finding, which may be nil.
func (c *junitCase) fail(of Check, f *Finding) {
	c.element, c.kind, c.message = "failure", string(of.Level), cmp.Or(of.Reason, of.Title)
	state := "not counted by the profile"
	if f != nil {
		c.message = f.Title
		for _, d := range f.details() {
			c.text += fmt.Sprintf("\n%s: %s", d.name, d.text)
		}
		c.text += "\n"
		if f.Waived != nil {
			state = f.state()
		}
	}
	if !of.Counts || f != nil && f.Waived != nil {
		c.element, c.kind, c.message = "skipped", "", state+": "+c.message
	}
}

// junitProblems returns a suite for what concerns no subject, if there is anything.
func (r *Report) junitProblems() []junitSuite {
	suite := junitSuite{name: "tenon.conform"}
	for _, problem := range r.Problems {
		suite.cases = append(suite.cases, junitCase{class: "waivers", name: problem,
			element: "error", kind: "waiver", message: problem})
	}
	if len(r.Subjects) == 0 {
		suite.cases = append(suite.cases, junitCase{class: "profile", name: string(r.Profile),
			element: "error", kind: string(Incomplete), message: "no subject was judged"})
	}
	if suite.cases == nil {
		return nil
	}
	return []junitSuite{suite}
}
