package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writerEnv makes the test binary write spans to a file, as a plugin process does.
const writerEnv = "TENON_TEST_TRACE_WRITER"

func TestMain(m *testing.M) {
	if file := os.Getenv(writerEnv); file != "" {
		ctx, done, err := Open(context.Background(), file, "", func(err error) { panic(err) })
		if err != nil {
			panic(err)
		}
		for i := range spansOfWriter {
			ctx, span := Start(ctx, Process, fmt.Sprintf("span %d of %d", i, os.Getpid()), nil)
			From(ctx).Child(Change, strings.Repeat("x", i*37%3000)).End(nil)
			span.End(errors.New("text with\nnew lines"))
		}
		done()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const spansOfWriter = 50

// opened returns a context that is traced to a new file.
func opened(t *testing.T, parent string) (ctx context.Context, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "spans")
	ctx, done, err := Open(t.Context(), file, parent, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	return ctx, file
}

// records returns the records in a file; every line must be one.
func records(t *testing.T, file string) (list []Record) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(content) {
		if len(line) > maxLine {
			t.Errorf("line of %d bytes", len(line))
		}
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		var r Record
		if err := d.Decode(&r); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		list = append(list, r)
	}
	return list
}

// ended returns the record of the end of a span.
func ended(t *testing.T, file, name string) Record {
	t.Helper()
	for _, r := range records(t, file) {
		if r.Name == name && r.End != 0 {
			return r
		}
	}
	t.Fatalf("no span %q", name)
	return Record{}
}

func TestTree(t *testing.T) {
	t.Parallel()
	ctx, file := opened(t, "00-0123456789abcdef0123456789abcdef-0123456789abcdef-00")
	ctx, call := Start(ctx, Plugin, "bridge", map[string]any{Verb: "ADD"})
	change := call.Enter(Change, "add link")
	change.Note(NetlinkType, "RTM_NEWLINK")
	call.Note(NetlinkType, "RTM_NEWLINK") // notes belong to the innermost step
	call.Note(NetlinkType, "RTM_NEWADDR")
	_, delegate := Start(ctx, Delegate, "host-local", nil)
	vars := strings.Join(delegate.Environ(), " ")
	delegate.End(nil)
	change.End(errors.New("file exists"))
	call.Past(Wait, "lock", time.Second, nil)
	call.End(nil)

	root, inner, leaf := ended(t, file, "bridge"), ended(t, file, "add link"), ended(t, file, "host-local")
	if root.Trace != "0123456789abcdef0123456789abcdef" || root.Parent != "0123456789abcdef" {
		t.Errorf("the root does not continue the trace: %+v", root)
	}
	if inner.Parent != root.ID || leaf.Parent != inner.ID {
		t.Errorf("parents %s and %s, want %s and %s", inner.Parent, leaf.Parent, root.ID, inner.ID)
	}
	if got := fmt.Sprint(inner.Attributes[NetlinkType]); got != "[RTM_NEWLINK RTM_NEWADDR]" {
		t.Error("messages", got)
	}
	if inner.Error != "file exists" || inner.Start < root.Start || inner.End > root.End {
		t.Errorf("change %+v in %+v", inner, root)
	}
	if want := "TENON_TRACE=" + file + " TRACEPARENT=00-" + root.Trace + "-" + leaf.ID + "-00"; vars != want {
		t.Errorf("environment %s, want %s", vars, want)
	}
	wait := ended(t, file, "lock")
	if wait.End-wait.Start < int64(time.Second) || wait.Parent != root.ID {
		t.Errorf("wait %+v after the change, in %s", wait, root.ID)
	}
}

// A killed process leaves the beginning of its calls.
func TestBeginning(t *testing.T) {
	t.Parallel()
	ctx, file := opened(t, "")
	_, _ = Start(ctx, Process, "bridge", map[string]any{Verb: "ADD"})
	list := records(t, file)
	if len(list) != 1 || list[0].End != 0 || list[0].Attributes[Verb] != "ADD" {
		t.Errorf("records %+v", list)
	}
}

func TestOffAllocatesNothing(t *testing.T) {
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() { off(ctx) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkOff(b *testing.B) {
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		off(ctx)
	}
}

// off does what a call of a plugin with one change does for a trace that is off.
func off(ctx context.Context) {
	ctx, span := Start(ctx, Plugin, "bridge", nil)
	step := From(ctx).Enter(Change, "add link")
	step.Note(NetlinkType, "RTM_NEWLINK")
	step.End(nil)
	span.Waiting("lock", "lock").End(nil)
	span.End(nil)
}

func TestConcurrentProcesses(t *testing.T) {
	t.Parallel()
	const processes = 24
	file := filepath.Join(t.TempDir(), "spans")
	running := make([]*exec.Cmd, processes)
	for i := range running {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env = append(os.Environ(), writerEnv+"="+file)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running[i] = cmd
	}
	for _, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	// each span of a process has a record of its beginning, one of its end, and a change
	if n := len(records(t, file)); n != processes*spansOfWriter*3 {
		t.Errorf("%d records, want %d", n, processes*spansOfWriter*3)
	}
}

func TestLongRecord(t *testing.T) {
	t.Parallel()
	ctx, file := opened(t, "")
	span := From(ctx).Child(Change, strings.Repeat("ü", 3000))
	elements := make([]string, 5000)
	for i := range elements {
		elements[i] = fmt.Sprintf("+ masq4 10.77.%d.%d", i/256, i%256)
	}
	span.Set(NFTElement, elements)
	span.End(errors.New(strings.Repeat("e", 9000)))
	_, call := Start(ctx, Plugin, "ADD "+strings.Repeat("n", 5000), map[string]any{ContainerID: strings.Repeat("c", 5000)})
	call.End(nil)
	list := records(t, file)
	if len(list) != 3 {
		t.Fatalf("%d records", len(list))
	}
	kept := list[0].Attributes[NFTElement].([]any)
	if last := fmt.Sprint(kept[len(kept)-1]); !strings.HasSuffix(last, " more") {
		t.Errorf("the list ends with %q", last)
	}
}

func TestMask(t *testing.T) {
	t.Parallel()
	ctx, file := opened(t, "")
	request := `{"name": "pods", "type": "bridge", "mtu": 1400, "apiToken": "t0psecret", "apiPIN": 271828, "quoted": "a\"b\\c", "sysctl": {"net.core.somaxconn": "1024"},
		"plugins": [{"auth": {"deep": ["hunter2"]}}], "ipam": {"subnet": "10.77.0.0/24", "pin": "12"}}`
	const args = "K8S_POD_NAME=web;TOKEN=abcdef;LONGER=xabcdef;IP=10.77.0.9"
	From(ctx).Hide(Secrets(nil, "TOKEN=abcdef")...)
	From(ctx).Hide(Secrets([]byte(request), args)...)
	span := From(ctx).Child(Change, "use hunter2")
	span.Set("a", "TOKEN=abcdef;IP=10.77.0.9;K8S_POD_NAME=web;LONGER=xabcdef")
	span.Set("b", []string{"1024 bridge", "12"})
	span.Set(ContainerID, "abcdef") // equal to a secret by chance
	span.End(fmt.Errorf("t0psecret is refused by 10.77.0.0/24, %d too, and %q", 271828, `a"b\c`))
	r := ended(t, file, "use …")
	if r.Attributes[ContainerID] != "abcdef" {
		t.Error("the container ID is masked")
	}
	got := fmt.Sprint(r.Attributes["a"], r.Attributes["b"], r.Error)
	if want := "TOKEN=…;IP=10.77.0.9;K8S_POD_NAME=web;LONGER=…[1024 bridge 12]" +
		`… is refused by 10.77.0.0/24, … too, and "…"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestArgNames(t *testing.T) {
	t.Parallel()
	got := strings.Join(ArgNames("IgnoreUnknown=1;TOKEN=a=b;;no value;K8S_POD_NAME="), " ")
	if want := "IgnoreUnknown TOKEN K8S_POD_NAME"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A file that cannot be written gives one warning, and the calls go on.
func TestFailingFile(t *testing.T) {
	t.Parallel()
	warnings := 0
	ctx, done, err := Open(t.Context(), filepath.Join(t.TempDir(), "spans"), "", func(error) { warnings++ })
	if err != nil {
		t.Fatal(err)
	}
	done()
	for range 3 {
		_, span := Start(ctx, Plugin, "bridge", nil)
		span.End(nil)
	}
	if warnings != 1 {
		t.Errorf("%d warnings", warnings)
	}
}

// A process that runs for long stops writing when the file is full.
func TestFullFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "spans")
	if err := os.WriteFile(path, []byte(Beginning), 0o600); err != nil {
		t.Fatal(err)
	}
	const size = maxFile - 10
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	var warnings []string
	ctx, done, err := Open(t.Context(), path, "", func(err error) { warnings = append(warnings, err.Error()) })
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	for range 3 {
		From(ctx).Child(Change, "add link").End(nil)
	}
	if len(warnings) != 1 || !strings.HasSuffix(warnings[0], "it has reached 64 MiB") {
		t.Errorf("warnings %q", warnings)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > size+maxLine {
		t.Errorf("size %v, %v", info.Size(), err)
	}
}
