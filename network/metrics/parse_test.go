package metrics_test

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	header = regexp.MustCompile(`^# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)$`)
	line   = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"(?:,|\}))+) ([^ ]+)$`)
	label  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"`)
)

// parsed is an exposition: values by "name{label="value",…}", with unescaped labels.
type parsed map[string]float64

// parse reads the text format of Prometheus, version 0.0.4. It refuses output that Prometheus
// merely tolerates: families in pieces or without HELP and TYPE, duplicate samples, inconsistent
// histograms.
func parse(text string) (parsed, error) {
	all := parsed{}
	kinds := map[string]string{}
	helped, current := "", ""
	if text != "" && !strings.HasSuffix(text, "\n") {
		return nil, fmt.Errorf("the last line does not end")
	}
	for n, l := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if text == "" {
			break
		}
		fail := func(why string) (parsed, error) {
			return nil, fmt.Errorf("line %d: %s: %s", n+1, why, l)
		}
		if m := header.FindStringSubmatch(l); m != nil {
			switch {
			case m[1] == "HELP":
				helped = m[2]
			case helped != m[2] || kinds[m[2]] != "":
				return fail("TYPE without HELP, or duplicate")
			case !slices.Contains([]string{"counter", "gauge", "histogram"}, m[3]):
				return fail("kind")
			default:
				current, kinds[m[2]] = m[2], m[3]
			}
			continue
		}
		m := line.FindStringSubmatch(l)
		if m == nil {
			return fail("no sample")
		}
		family := m[1]
		if kinds[current] == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				family = strings.TrimSuffix(family, suffix)
			}
		}
		value, err := strconv.ParseFloat(m[3], 64)
		if family != current || err != nil || math.IsNaN(value) || value < 0 {
			return fail("family " + current + " or value")
		}
		if strings.HasSuffix(m[1], "_total") != (kinds[current] == "counter") {
			return fail("name of a counter")
		}
		key := m[1] + "{" + unescape(m[2])
		if _, twice := all[key]; twice {
			return fail("twice")
		}
		all[key] = value
	}
	return all, all.checkHistograms(kinds)
}

func unescape(labels string) string {
	return label.ReplaceAllStringFunc(labels, func(s string) string {
		m := label.FindStringSubmatch(s)
		return m[1] + "=" + strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n").Replace(m[2])
	})
}

// checkHistograms checks that buckets are cumulative and agree with the count.
func (p parsed) checkHistograms(kinds map[string]string) error {
	for key, count := range p {
		name, labels, _ := strings.Cut(key, "_count{")
		if kinds[name] != "histogram" {
			continue
		}
		labels = strings.TrimSuffix(labels, "}")
		before := -1.0
		for _, le := range strings.Fields(".0005 .001 .0025 .005 .01 .025 .05 .1 .25 .5 1 2.5 5 10 30 60 +Inf") {
			bound := strings.Replace(le, ".", "0.", 1)
			if !strings.HasPrefix(le, ".") {
				bound = le
			}
			n, ok := p[name+"_bucket{"+labels+",le="+bound+"}"]
			if !ok || n < before {
				return fmt.Errorf("%s: bucket %s is %v (exists: %t) after %v", key, bound, n, ok,
					before)
			}
			before = n
		}
		if _, ok := p[name+"_sum{"+labels+"}"]; !ok || before != count {
			return fmt.Errorf("%s: %v, but the last bucket is %v", key, count, before)
		}
	}
	return nil
}

// TestParseRefuses checks that parse refuses invalid or ambiguous output.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	const header = "# HELP x_total Some.\n# TYPE x_total counter\n"
	for name, text := range map[string]string{
		"no TYPE":            "x_total{a=\"b\"} 1\n",
		"no HELP":            "# TYPE x_total counter\nx_total{a=\"b\"} 1\n",
		"another family":     header + "y_total{a=\"b\"} 1\n",
		"twice":              header + "x_total{a=\"b\"} 1\nx_total{a=\"b\"} 2\n",
		"not escaped":        header + "x_total{a=\"b\"c\"} 1\n",
		"no number":          header + "x_total{a=\"b\"} one\n",
		"no line end":        header + "x_total{a=\"b\"} 1",
		"a negative counter": header + "x_total{a=\"b\"} -1\n",
		"no buckets":         "# HELP x Some.\n# TYPE x histogram\nx_sum{a=\"b\"} 1\nx_count{a=\"b\"} 1\n",
	} {
		if _, err := parse(text); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if p, err := parse(header + "x_total{a=\"\\\"\\\\\\n\",b=\"\"} 1\n"); err != nil ||
		p["x_total{a=\"\\\n,b=}"] != 1 {
		t.Errorf("%v, %v", p, err)
	}
}
