package plugins

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// The keys of GC: the present one, and the one of drafts of version 1.1.0.
const (
	validKey = "cni.dev/valid-attachments"
	draftKey = "cni.dev/attachments"
)

// gcCases judge GC.
var gcCases = []*Case{gcCase, gcDelegateCase, gcHostCase, gcPoolCase, gcErrorsCase}

// attachment is an element of the list of valid attachments.
func attachment(id, ifname string) any { return map[string]string{"containerID": id, "ifname": ifname} }

// valid sets the list of valid attachments to containers by their numbers.
func valid(containers ...int) func(*Draft) {
	list := []any{}
	for _, n := range containers {
		list = append(list, attachment(containerID(n), ifName))
	}
	return With(validKey, list)
}

// gcCase calls GC without any attachment.
var gcCase = &Case{
	Name: "gc", Oldest: cni.V110, Once: true, Rows: []string{"PL-GC-07", "PL-GC-08", "PL-GC-09"},
	Script: func(s *Setup) (*script.Scenario, string) {
		return s.Scenario(0, quiet(s.Call("gc", cni.GC, 0, valid())),
			quiet(s.Call("old", cni.GC, 0, valid(), With("cniVersion", "1.0.0")))), ""
	},
	Judge: func(j *Judgment) {
		j.refusesVersion("old", "PL-GC-07")
		if j.Succeeded("gc", Verdict{Row: "PL-GC-08", Severity: report.Medium, Title: "GC without attachments fails",
			Hint: "a plugin that announces 1.1.0 must succeed even if it has nothing to collect"}) {
			j.silent("gc", "PL-GC-09")
		}
	},
}

// refusesVersion expects that a call of a verb that its version lacks fails with code 1.
func (j *Judgment) refusesVersion(name, row string) {
	r, _ := j.Call(name)
	e, err := cni.DecodeError(r.Stdout)
	verb := script.Recorded{Env: j.request(name).Env}.Getenv("CNI_COMMAND")
	j.Expect(j.failed(name) && err == nil && e.Code == cni.CodeIncompatibleVersion, Verdict{Row: row, Severity: report.Medium,
		Title:    verb + " in version 1.0.0 does not fail with code 1",
		Expected: "exit status other than 0, code 1", Actual: describe(r),
		Hint: verb + " exists since 1.1.0; compare cniVersion of the request before doing anything"})
}

// silent expects that a call printed nothing.
func (j *Judgment) silent(name, row string) {
	r, _ := j.Call(name)
	j.Expect(strings.TrimSpace(string(r.Stdout)) == "", Verdict{Row: row, Severity: report.Low,
		Title:    "GC prints something",
		Expected: "nothing on standard output", Actual: describe(r)})
}

// gcDelegateCase judges how GC runs the IPAM plugin.
var gcDelegateCase = &Case{
	Name: "gc-delegate", Roles: []Role{Interface}, Oldest: cni.V110, Once: true,
	Rows: []string{"PL-GC-05", "DLG-03", "DLG-04", "CFG-34", "DLG-10"},
	Script: func(s *Setup) (*script.Scenario, string) {
		if reason := s.delegates(); reason != "" {
			return nil, reason
		}
		options := []func(*Draft){valid(1), With("conform.dev/exact", exact), Env("CONFORM_VARIABLE", "a b=c")}
		return s.Scenario(1, quiet(s.Call("gc", cni.GC, 0, options...)),
			answer(cni.GC, s.refuses(refusalCode)), quiet(s.Call("refused", cni.GC, 0, options...)),
			answer(cni.GC, s.refuses(cni.CodeIncompatibleVersion)), quiet(s.Call("unknown", cni.GC, 0, options...)),
		), ""
	},
	Judge: func(j *Judgment) {
		d, ok := j.forwarded("gc", cni.GC, "PL-GC-05")
		if !ok {
			return
		}
		calls := map[string]script.Recorded{"gc": d}
		j.sameEnvironment(calls)
		j.sameConfiguration(calls)
		j.reportsRefusal("refused", "PL-GC-05", "GC succeeds although the IPAM plugin fails")
		j.Succeeded("unknown", Verdict{Row: "DLG-10", Severity: report.Medium,
			Title: "GC fails if the IPAM plugin does not support version 1.1.0",
			Hint:  "an IPAM plugin that answers code 1 to GC has nothing to collect"})
	},
}

// gcHostCase judges the objects of the host after GC. Containers 1 and 2, which belongs to another
// network, are valid; 3 and 4 have ended. The IPAM plugin fails the second GC.
var gcHostCase = &Case{
	Name: "gc-host", Roles: []Role{Interface, Chained}, Oldest: cni.V110, Once: true,
	Rows: []string{"PL-GC-01", "PL-GC-02", "PL-GC-04"},
	Script: func(s *Setup) (*script.Scenario, string) {
		const containers = 4
		end := func(n int) script.Step {
			text := "true"
			if s.Role == Interface { // the end of a namespace removes links later
				text = fmt.Sprintf("ip -n c%[1]d link del %[2]s || :\nip netns del c%[1]d", n, ifName)
			}
			return script.Step{Shell: text}
		}
		return s.Scenario(containers,
			quiet(s.Call("add", cni.Add, 1)), call(s.Call("add2", cni.Add, 2, With("name", "conform-other"))),
			quiet(s.Call("add3", cni.Add, 3)), end(3), call(s.Call("gc", cni.GC, 0, valid(1))),
			quiet(s.Call("add4", cni.Add, 4)), end(4), answer(cni.GC, s.refuses(refusalCode)),
			call(s.Call("refused", cni.GC, 0, valid(1))),
		), ""
	},
	Judge: func(j *Judgment) {
		if !j.Requires("add") || !j.Requires("add2") || !j.Requires("add3") || !j.Requires("gc") {
			return
		}
		want := j.After("add2")
		more, ended := leftovers(want, j.Before("gc"))
		remains := len(more) > 0
		more, less := leftovers(want, j.After("gc"))
		if j.Setup.Role == Chained { // whose objects can be attributes of links of earlier plugins
			changed := naming(ended, "host3")
			more = append(more, slices.DeleteFunc(changed, func(what string) bool { return !slices.Contains(less, what) })...)
			remains = remains || len(more) > 0
		}
		less = slices.DeleteFunc(less, func(what string) bool { return slices.Contains(ended, what) })
		j.Expect(len(less) == 0, Verdict{Row: "PL-GC-02", Severity: report.Critical,
			Title:    "GC removes objects of valid attachments",
			Expected: "all objects of the listed attachment, and of the other network", Actual: "missing or changed: " + list(less),
			Hint: "remove only objects of attachments of this network that are not in " + validKey})
		if len(more) > 0 {
			j.Fail(Verdict{Row: "PL-GC-01", Severity: report.Medium,
				Title:    "GC leaves objects of attachments that have ended",
				Expected: "the objects of valid attachments only", Actual: "left: " + list(more),
				Hint: "record for each object its container ID and interface, and remove the objects of attachments that are not in " + validKey})
			return
		}
		if remains {
			j.Pass("PL-GC-01")
		} else {
			j.NotApplicable("PL-GC-01", "nothing of a container remains after the end of its namespace")
		}
		if !j.Setup.Config.ScriptedIPAM || !remains {
			j.NotApplicable("PL-GC-04", "no part of GC can be made to fail")
			return
		}
		if !j.Requires("add4") {
			return
		}
		more, _ = leftovers(want, j.After("refused"))
		j.Expect(len(more) == 0, Verdict{Row: "PL-GC-04", Severity: report.Medium,
			Title:    "GC removes nothing if the IPAM plugin fails",
			Expected: "the objects of valid attachments only", Actual: "left: " + list(more),
			Hint: "go on after an error, and report it at the end"})
	},
}

// leftovers returns the objects of the host that a state has more, and the objects that it lacks or that
// differ. Namespaces of containers and what the kernel derives do not count, nor do sysctls.
func leftovers(want, got *script.Snapshot) (more, less []string) {
	for _, c := range host.Diff(want.Host, got.Host) {
		if c.Derived || c.Kind == host.KindSetting || inContainer(want, c.Namespace) || inContainer(got, c.Namespace) {
			continue
		}
		text := fmt.Sprintf("%s %s", c.Kind, c.Object)
		switch c.Action {
		case host.Added:
			more = append(more, text)
		case host.Deleted:
			less = append(less, text)
		case host.Changed:
			less = append(less, fmt.Sprintf("%s (%s instead of %s)", text, c.After, c.Before))
		}
	}
	return more, less
}

func inContainer(s *script.Snapshot, namespace string) bool {
	for _, id := range s.Containers {
		if id == namespace {
			return true
		}
	}
	return false
}

// capitals is the ID of a container with upper-case letters.
const capitals = "Conform-CASE"

// gcPoolCase judges the reservations after GC with a pool of one address: ADD of a second container
// fails while the address is reserved.
var gcPoolCase = &Case{
	Name: "gc-pool", Roles: []Role{IPAM}, Oldest: cni.V110, Once: true,
	Rows: []string{"PL-GC-01", "PL-GC-02", "PL-GC-06", "PL-GC-09"},
	Script: func(s *Setup) (*script.Scenario, string) {
		if s.Config.Exhausted == nil {
			return nil, noPool
		}
		gc := func(name string, options ...func(*Draft)) script.Step {
			return quiet(s.Call(name, cni.GC, 0, append([]func(*Draft){s.exhausted()}, options...)...))
		}
		add := func(name string, n int, options ...func(*Draft)) script.Step {
			return quiet(s.Call(name, cni.Add, n, append([]func(*Draft){s.exhausted()}, options...)...))
		}
		id := Env("CNI_CONTAINERID", capitals)
		return s.Scenario(6,
			add("add", 1), add("full", 2),
			gc("listed", valid(1)), add("after-listed", 2),
			gc("absent"), add("after-absent", 2),
			gc("draft", With(draftKey, []any{attachment(containerID(1), ifName)})), add("after-draft", 2),
			gc("other", valid(), With("name", "conform-other")), add("after-other", 2),
			gc("interface", With(validKey, []any{attachment(containerID(1), "other0")})), add("after-interface", 2),
			gc("empty", valid()), add("after-empty", 3),
			gc("empty2", valid()), add("capitals", 4, id),
			gc("same", With(validKey, []any{attachment(capitals, ifName)})), add("after-same", 5),
			gc("null", With(validKey, nil)), add("after-null", 6),
		), ""
	},
	Judge: judgePool,
}

func judgePool(j *Judgment) {
	if !j.Requires("add") {
		return
	}
	if !j.failed("full") {
		j.Stopped = "a second container gets an address of the pool of one address"
		return
	}
	if !j.Succeeded("listed", Verdict{Row: "PL-GC-01", Severity: report.High, Title: "GC fails"}) {
		return
	}
	j.silent("listed", "PL-GC-09")
	for _, step := range []struct{ gc, row, title, hint string }{
		{"listed", "PL-GC-02", "GC removes the reservation of a valid attachment",
			"compare both containerID and ifname with the entries of " + validKey},
		{"absent", "PL-GC-06", "GC without a list removes reservations",
			"a request without " + validKey + " says nothing about valid attachments: fail with code 7 or do nothing"},
		{"draft", "PL-GC-06", "GC removes a reservation that the list has under its old name",
			"runtimes from before the release of 1.1.0 send " + draftKey + "; read it, or do nothing if only that key is there"},
		{"other", "PL-GC-02", "GC removes the reservation of another network",
			"collect only objects of the network in the key name"},
	} {
		if !j.reserved(step.gc, step.row, step.title, step.hint) {
			return
		}
	}
	if !j.Succeeded("after-empty", Verdict{Row: "PL-GC-01", Severity: report.Medium,
		Title: "GC keeps reservations of attachments that are not valid",
		Hint:  "release the addresses of attachments of this network that are not in " + validKey}) {
		return
	}
	j.Succeeded("after-interface", Verdict{Row: "PL-GC-01", Severity: report.Medium,
		Title: "GC keeps the reservation of another interface of a valid container",
		Hint:  "an attachment is a pair of container ID and interface: compare both"})
	if !j.Requires("capitals") {
		return
	}
	j.reserved("same", "PL-GC-02", "GC removes the reservation of a valid container with capitals in its ID",
		"container IDs are case-sensitive")
	switch {
	case !j.failed("after-same"):
	case j.failed("after-null"):
		j.Info("PL-GC-06", "a list that is null removes nothing")
	default:
		j.Info("PL-GC-06", "a list that is null counts as empty")
	}
}

// reserved expects that after a GC, the address of the pool is still reserved: ADD of another
// container fails.
func (j *Judgment) reserved(gc, row, title, hint string) bool {
	before, _ := j.Call(gc)
	r, _ := j.Call("after-" + gc)
	return j.Expect(j.failed("after-"+gc), Verdict{Row: row, Severity: report.Critical, Title: title,
		Expected: "the address remains reserved, and ADD of another container fails",
		Actual:   "GC: " + describe(before) + "; ADD of another container: " + describe(r), Hint: hint})
}

// lockable is the number of reservations for gcErrorsCase.
const lockable = 16

// gcErrorsCase makes the files of every second reservation undeletable. A plugin that stops at the
// first error then leaves another one behind, whatever its order; at random, with a probability of
// 12,869 in 12,870.
var gcErrorsCase = &Case{
	Name: "gc-errors", Roles: []Role{IPAM}, Oldest: cni.V110, Once: true, Rows: []string{"PL-GC-04"},
	Script: func(s *Setup) (*script.Scenario, string) {
		var steps []script.Step
		for n := 1; n <= lockable; n++ {
			steps = append(steps, quiet(s.Call(addition(n), cni.Add, n, Env("CNI_NETNS", netns(1)))))
		}
		files := fmt.Sprintf("for n in $(seq %d); do\n%sdone\n", lockable, stateFiles)
		return s.Scenario(1, append(steps,
			script.Step{Shell: files, Quiet: true},
			script.Step{Shell: fmt.Sprintf("for n in $(seq 2 2 %d); do\n{ %s} | while read n f; do mount --bind $f $f; done\ndone",
				lockable, stateFiles), Quiet: true},
			quiet(s.Call("gc", cni.GC, 0, valid())),
			script.Step{Shell: files, Quiet: true},
		)...), ""
	},
	Judge: func(j *Judgment) {
		locked := func(n string) bool { return strings.ContainsAny(n[len(n)-1:], "02468") }
		for n := 1; n <= lockable; n++ {
			if !j.Requires(addition(n)) {
				return
			}
		}
		last := len(j.Events) - 1
		before, after := containersOf(j.Events[last-3].Output), containersOf(j.Events[last].Output)
		holders := map[string]int{} // number of containers that a file names
		for _, files := range before {
			for _, f := range files {
				holders[f]++
			}
		}
		var own []string
		shared := false
		for _, n := range sortedKeys(before) {
			if locked(n) {
				own = append(own, before[n]...)
			}
			shared = shared || slices.ContainsFunc(before[n], func(f string) bool { return holders[f] > 1 })
		}
		if own == nil || shared {
			j.NotApplicable("PL-GC-04", "the plugin keeps no files of its own for a container")
			return
		}
		r, _ := j.Call("gc")
		if r.Status == 0 && len(after) == len(before) {
			j.Stopped = "GC removes no reservation"
			return
		}
		var left []string
		remain := false
		for _, n := range sortedKeys(after) {
			if locked(n) {
				remain = true
			} else {
				left = append(left, after[n]...)
			}
		}
		j.Expect(len(left) == 0, Verdict{Row: "PL-GC-04", Severity: report.Medium,
			Title:    "GC stops at the first error",
			Expected: "only what cannot be removed remains: " + list(own),
			Actual:   "left: " + list(left) + "; " + describe(r),
			Hint:     "go on after an error, remove as much as possible, and report all errors at the end"})
		if remain {
			j.Expect(j.failed("gc"), Verdict{Row: "PL-GC-04", Severity: report.Low,
				Title:    "GC does not report a reservation that it cannot remove",
				Expected: "an exit status other than 0", Actual: describe(r)})
		}
	},
}

// addition returns the name of the call of ADD for container n.
func addition(n int) string {
	if n == 1 {
		return "add"
	}
	return "add" + strconv.Itoa(n)
}

// stateFiles is a text for sh(1) that prints the files which name container $n, in their names or
// contents.
var stateFiles = fmt.Sprintf(`{ find /run /var -type f -name "*%[1]s$n" || :; grep -rlwsF -- %[1]s$n /run /var || :; } |
	grep -v '^%[2]s/' | sort -u | sed "s|^|$n |" || :
`, strings.TrimSuffix(containerID(0), "0"), script.Dir)

// containersOf decodes the output of stateFiles: the files by the number of the container.
func containersOf(output string) map[string][]string {
	all := map[string][]string{}
	for line := range strings.Lines(output) {
		if n, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			all[n] = append(all[n], file)
		}
	}
	return all
}
