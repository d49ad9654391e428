package judge

import (
	"cmp"
	"fmt"
	"os/user"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/conformance"
	"github.com/tenon-cni/tenon/conformance/report"
)

// run is a report that is being made.
type run struct {
	*report.Report
	options Options
}

func newReport(o Options) *run {
	r := &report.Report{Format: report.Format, Judge: o.Version, Catalog: conformance.Digest(),
		Profile: cmp.Or(o.Profile, report.Strict), Started: time.Now().UTC()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		r.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if who, err := user.Current(); err == nil {
		r.User = who.Username
	}
	return &run{r, o}
}

// distinct returns a name that no subject of the report has: the name of the program, with as many
// directories of its path as needed.
func (r *run) distinct(name, path string) string {
	taken := func(name string) bool {
		return slices.ContainsFunc(r.Subjects, func(s report.Subject) bool { return s.Name == name })
	}
	dir := filepath.Dir(path)
	for longer := name; dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		if !taken(longer) {
			return longer
		}
		longer = filepath.Base(dir) + "/" + longer
	}
	unique := name
	for n := 2; taken(unique); n++ {
		unique = fmt.Sprintf("%s (%d)", name, n)
	}
	return unique
}

// add adds a subject that was judged to the report.
func (r *run) add(out *report.Subject) error {
	r.Subjects = append(r.Subjects, *out)
	if err := r.Settle(r.Profile, r.options.Waivers); err != nil {
		return err
	}
	if r.options.Judged != nil {
		r.options.Judged(&r.Subjects[len(r.Subjects)-1])
	}
	return nil
}

// finish returns the report.
func (r *run) finish() (*report.Report, error) {
	r.Seconds = time.Since(r.Started).Seconds()
	return r.Report, r.Settle(r.Profile, r.options.Waivers)
}
