package network_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/journal"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

const journaledResult = `{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/absent"}],
"ips":[{"address":"10.77.0.2/24","interface":0}]}`

// journaled returns a client and its network. The second plugin refuses the container "bad".
func journaled(t *testing.T) (*network.Client, *config.Network) {
	t.Helper()
	first := map[cni.Command]invoke.Handler{cni.Add: invoke.Print(journaledResult)}
	second := map[cni.Command]invoke.Handler{
		cni.Check: invoke.Fail(cni.Errorf(cni.CodeTryAgainLater, `token "hunter2" is used`)),
	}
	n, err := config.LoadBytes([]byte(`{"cniVersion":"1.1.0","name":"red","plugins":[{"type":"first"},
{"type":"second","token":"hunter2"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return &network.Client{Isolated: true, Caller: invoke.Fake{"first": first, "second": second},
		StateDir: t.TempDir(), Runtime: "test"}, n
}

// TestJournal records operations with their parts, in the order in which they ended, and no
// arguments.
func TestJournal(t *testing.T) {
	t.Parallel()
	c, n := journaled(t)
	c.Journal = filepath.Join(t.TempDir(), "new", "journal")
	q := request("web")
	q.Args = cni.Args{{Key: "TOKEN", Value: "hunter2"}}
	q.Capabilities = map[string]json.RawMessage{
		"portMappings": []byte(`[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]`),
	}
	a := q.Attachment("red")
	ctx := t.Context()
	errs := []error{
		errOf(c.Add(ctx, n, q)), c.Check(ctx, a, nil), errOf(c.Add(ctx, n, q)),
	}
	q.Replace = true
	errs = append(errs, errOf(c.Add(ctx, n, q)), c.Del(ctx, a, network.Fallback{}),
		errOf(c.Add(ctx, n, q)), c.GC(ctx, n, network.Keep{Attachments: []cni.ValidAttachment{}}))
	if got := fmt.Sprint(len(errs), errs[1] != nil, errs[2] != nil, errors.Join(errs[0], errors.Join(errs[3:]...))); got != "7 true true <nil>" {
		t.Fatal(errs)
	}
	content, err := journal.Journal{Dir: c.Journal}.Read()
	if err != nil || content.Damaged != 0 {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range content.Records {
		var plugins []string
		for _, p := range r.Plugins {
			plugins = append(plugins, p.Type)
		}
		lines = append(lines, fmt.Sprintf("%s %s %v %d %s %v %v", r.Kind, r.Verb, plugins, r.Code,
			r.Error, r.Addresses, len(r.Ports)))
		if r.Boot == "" || r.Uptime == 0 || r.Duration == 0 || r.PID != os.Getpid() || r.Runtime != "test" {
			t.Errorf("incomplete: %+v", r)
		}
	}
	want := []string{
		"operation ADD [first second] 0  [10.77.0.2] 1",
		`operation CHECK [first second] 11 second CHECK: token "…" is used [10.77.0.2] 1`,
		"operation ADD [] 4 " + strings.TrimPrefix(cni.AsError(errs[2]).Msg, "red/web/eth0: ") + " [] 0",
		"cleanup DEL [second first] 0  [10.77.0.2] 1",
		"operation ADD [first second] 0  [10.77.0.2] 1",
		"operation DEL [second first] 0  [10.77.0.2] 1",
		"operation ADD [first second] 0  [10.77.0.2] 1",
		"cleanup DEL [second first] 0  [10.77.0.2] 1",
		"operation GC [first second] 0  [] 0",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	b, err := os.ReadFile(filepath.Join(c.Journal, "journal"))
	if err != nil || strings.Contains(string(b), "hunter2") {
		t.Errorf("%v, a secret in\n%s", err, b)
	}
}

func errOf(_ *cni.Result, err error) error { return err }

// TestJournalRollback records the DEL of a failed ADD before it.
func TestJournalRollback(t *testing.T) {
	t.Parallel()
	c, n := journaled(t)
	c.Journal = t.TempDir()
	c.Caller.(invoke.Fake)["second"][cni.Add] = invoke.Fail(cni.Errorf(cni.CodeTryAgainLater, "busy"))
	if _, err := c.Add(t.Context(), n, request("web")); err == nil {
		t.Fatal("success")
	}
	content, err := journal.Journal{Dir: c.Journal}.Read()
	got := ""
	for _, r := range content.Records {
		got += fmt.Sprintf("%s %s %d %v\n", r.Kind, r.Verb, r.Code, len(r.Plugins))
	}
	if want := "rollback DEL 0 2\noperation ADD 11 2\n"; got != want || err != nil {
		t.Errorf("%v, got\n%s, want\n%s", err, got, want)
	}
}

// TestJournalSwitch: a library writes a journal only if its user or an existing directory asks for
// it, and a journal that cannot be written fails no operation.
func TestJournalSwitch(t *testing.T) {
	t.Parallel()
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, journal string
		existing      bool // the directory in StateDir
		want          bool // a journal in StateDir
	}{
		{"default without directory", "", false, false},
		{"default with directory", "", true, true},
		{"none", network.NoJournal, true, false},
		{"not a directory", filepath.Join(blocked, "journal"), false, false},
		{"no directory can be made", "/proc/journal", false, false},
	} {
		c, n := journaled(t)
		c.Journal = row.journal
		dir := filepath.Join(c.StateDir, "journal")
		if row.existing {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		q := request("web")
		if err := errors.Join(errOf(c.Add(t.Context(), n, q)),
			c.Del(t.Context(), q.Attachment("red"), network.Fallback{})); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		_, err := os.Stat(filepath.Join(dir, "journal"))
		if got := err == nil; got != row.want || !got && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: journal %t, want %t", row.name, got, row.want)
		}
	}
}
