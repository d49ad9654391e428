package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// writerEnv makes the test binary write records without end, to a directory.
const writerEnv = "TENON_JOURNAL_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerEnv); dir != "" {
		write(dir)
	}
	os.Exit(m.Run())
}

// write appends numbered records until the process is killed. It prints the number of each after
// Append has returned.
func write(dir string) {
	j := Journal{Dir: dir, Limit: 16 << 10}
	for n := 0; ; n++ {
		r := example(fmt.Sprintf("%d-%d", os.Getpid(), n))
		if err := j.Append(r); err != nil && !errors.Is(err, ErrFull) {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if n == 0 {
			fmt.Println("started")
		}
	}
}

func example(container string) Record {
	r := Record{
		Kind: Operation, Verb: cni.Add, Network: "pods", Container: container, IfName: "eth0",
		Duration: 9 * time.Millisecond, Runtime: "tenon", PID: 4711, Netns: "/run/netns/web",
		Addresses:  []netip.Addr{netip.MustParseAddr("10.77.0.2"), netip.MustParseAddr("fd77::2")},
		Interfaces: []Interface{{Name: "cni0"}, {Name: "eth0", MAC: "02:42:00:00:00:02", Container: true}},
		Ports:      []Port{{HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}},
		Plugins:    []Call{{Type: "bridge", Duration: 6 * time.Millisecond}, {Type: "portmap", Code: 7}},
	}
	r.Stamp()
	return r
}

// TestRoundTrip writes records and reads them in their order. Without a directory, Append fails
// unless Create is set.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	j := Journal{Dir: filepath.Join(t.TempDir(), "journal")}
	if err := j.Append(example("a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
	if c, err := j.Read(); err != nil || c.Records != nil || !c.Begins().IsZero() {
		t.Errorf("without a directory: %+v, %v", c, err)
	}
	j.Create = true
	want := []Record{example("a"), example("b\x1e\n\"")}
	for i := range want {
		if err := j.Append(want[i]); err != nil {
			t.Fatal(err)
		}
		want[i].Version = Version
	}
	c, err := j.Read()
	if diff := cmp.Diff(want, c.Records, compareAddr); diff != "" || err != nil || c.Damaged != 0 {
		t.Errorf("%d damaged, %v (-want +got)\n%s", c.Damaged, err, diff)
	}
	if !c.Begins().Equal(want[0].Time) {
		t.Errorf("begins %v", c.Begins())
	}
	for path, mode := range map[string]fs.FileMode{j.Dir: 0o700 | fs.ModeDir, j.path(0): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s: mode %v, %v", path, info.Mode(), err)
		}
	}
}

var compareAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// TestTorn cuts a journal after each byte, and lets a writer continue: all whole records are found.
func TestTorn(t *testing.T) {
	t.Parallel()
	one, err := example("one").encode()
	if err != nil {
		t.Fatal(err)
	}
	two, err := example("two").encode()
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(one) {
		for _, row := range []struct {
			text []byte
			want string
		}{
			{bytes.Join([][]byte{two, one[:cut]}, nil), "two"},
			{bytes.Join([][]byte{two, one[:cut], two}, nil), "two two"},
			{bytes.Join([][]byte{one[cut:], two}, nil), map[bool]string{true: "one two", false: "two"}[cut == 0]},
			{bytes.Join([][]byte{make([]byte, cut), two}, nil), "two"},
			// The rest of a write that the disk has split is behind another record.
			{bytes.Join([][]byte{one[:cut], two, one[max(cut, 1):], two}, nil), "two two"},
		} {
			found, _, _ := decodeAll(row.text)
			if got := containers(found); got != row.want {
				t.Fatalf("cut at %d: got %q, want %q", cut, got, row.want)
			}
		}
	}
	for i := range one { // one wrong byte
		wrong := bytes.Clone(one)
		wrong[i] ^= 1
		if found, _, _ := decodeAll(append(wrong, two...)); containers(found) != "two" {
			t.Fatalf("wrong byte %d: %q", i, containers(found))
		}
	}
}

func containers(found []Record) string {
	var names []string
	for _, r := range found {
		names = append(names, r.Container)
	}
	return strings.Join(names, " ")
}

// TestRotation keeps the newest records within the bound.
func TestRotation(t *testing.T) {
	t.Parallel()
	j := Journal{Dir: t.TempDir(), Limit: 4 << 10}
	const records = 200
	for n := range records {
		if err := j.Append(example(strconv.Itoa(n))); err != nil {
			t.Fatal(err)
		}
	}
	c, err := j.Read()
	if err != nil || c.Damaged != 0 || len(c.Records) < 20 {
		t.Fatalf("%d records, %d damaged, %v", len(c.Records), c.Damaged, err)
	}
	for i, r := range c.Records {
		if want := strconv.Itoa(records - len(c.Records) + i); r.Container != want {
			t.Fatalf("record %d is %s, want %s", i, r.Container, want)
		}
	}
	bounded(t, j)
}

// bounded checks the bound of the size: Segments times the limit and a record.
func bounded(t *testing.T, j Journal) {
	t.Helper()
	entries, err := os.ReadDir(j.Dir)
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if most := 2 * Segments * j.limit(); total > most || len(entries) > Segments {
		t.Errorf("%d bytes in %d files, at most %d in %d", total, len(entries), most, Segments)
	}
}

// TestUnrotatable: a segment that cannot be rotated does not grow without end.
func TestUnrotatable(t *testing.T) {
	t.Parallel()
	j := Journal{Dir: t.TempDir(), Limit: 4 << 10}
	if err := os.Mkdir(filepath.Join(j.Dir, "lock"), 0o700); err != nil { // no lock, no rotation
		t.Fatal(err)
	}
	var err error
	for range 100 {
		err = errors.Join(err, j.Append(example("web")))
	}
	info, statErr := os.Stat(j.path(0))
	if statErr != nil || info.Size() > 3*j.Limit || !errors.Is(err, ErrFull) {
		t.Errorf("%d bytes, %v, %v", info.Size(), err, statErr)
	}
}

// TestConcurrentWriters lets goroutines write and rotate at the same time: no record is torn, and
// without a rotation none is lost.
func TestConcurrentWriters(t *testing.T) {
	t.Parallel()
	large := Journal{Dir: t.TempDir()}
	small := Journal{Dir: t.TempDir(), Limit: 128 << 10}
	const writers, records = 8, 100
	var running sync.WaitGroup
	for w := range writers {
		running.Go(func() {
			for n := range records {
				r := example(fmt.Sprintf("%d-%d", w, n))
				if err := errors.Join(large.Append(r), small.Append(r)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	c, err := large.Read()
	if err != nil || c.Damaged != 0 || len(c.Records) != writers*records {
		t.Errorf("%d records, %d damaged, %v", len(c.Records), c.Damaged, err)
	}
	c, err = small.Read()
	if err != nil || c.Damaged != 0 || len(c.Records) < 50 {
		t.Errorf("%d records, %d damaged, %v", len(c.Records), c.Damaged, err)
	}
	bounded(t, small)
}

// TestKilledWriters kills writing processes at any point, several times. The journal stays bounded,
// loses at most the record that each process was writing, and accepts new records.
func TestKilledWriters(t *testing.T) {
	t.Parallel()
	j := Journal{Dir: t.TempDir(), Limit: 16 << 10}
	const rounds, writers = 5, 3
	for range rounds {
		var all []*exec.Cmd
		for range writers {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), writerEnv+"="+j.Dir)
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := out.Read(make([]byte, 8)); err != nil { // it has written
				t.Fatal(err)
			}
			all = append(all, cmd)
		}
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		for _, cmd := range all {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); cmd.ProcessState.String() != "signal: killed" {
				t.Error(err)
			}
		}
	}
	if err := j.Append(example("last")); err != nil {
		t.Fatal(err)
	}
	c, err := j.Read()
	if err != nil || len(c.Records) == 0 || c.Damaged > rounds*writers ||
		c.Records[len(c.Records)-1].Container != "last" {
		t.Errorf("%d records, %d damaged, %v", len(c.Records), c.Damaged, err)
	}
}

// TestFullDisk limits the size of files for this thread's process as a full disk does: the record is
// torn, and later ones are found when there is space again.
func TestFullDisk(t *testing.T) {
	if os.Getenv("TENON_JOURNAL_FULL") == "" {
		t.Parallel()
		dir := t.TempDir()
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestFullDisk$")
		cmd.Env = append(os.Environ(), "TENON_JOURNAL_FULL="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		j := Journal{Dir: dir}
		if err := j.Append(example("later")); err != nil {
			t.Fatal(err)
		}
		c, err := j.Read()
		if err != nil || containers(c.Records) != "first later" || c.Damaged != 1 {
			t.Errorf("%q, %d damaged, %v", containers(c.Records), c.Damaged, err)
		}
		return
	}
	j := Journal{Dir: os.Getenv("TENON_JOURNAL_FULL")}
	if err := j.Append(example("first")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(j.path(0))
	if err != nil {
		t.Fatal(err)
	}
	limit := uint64(info.Size() + info.Size()/2)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(example("torn")); err == nil {
		t.Error("a torn record without an error")
	}
	if err := j.Append(example("none")); !errors.Is(err, unix.EFBIG) {
		t.Errorf("on a full disk: %v", err)
	}
}

// TestEncode: the encoder writes every field, as encoding/json reads it.
func TestEncode(t *testing.T) {
	t.Parallel()
	full := example("a\x1e\x00\n\"\\é")
	full.Version, full.Code, full.Error, full.Keep = Version, 11, "full", []string{"a/b", "c/d"}
	full.Ports[0].HostIP = "192.0.2.1"
	for i := range reflect.TypeFor[Record]().NumField() {
		if reflect.ValueOf(full).Field(i).IsZero() {
			t.Errorf("example lacks %s", reflect.TypeFor[Record]().Field(i).Name)
		}
	}
	for name, want := range map[string]Record{
		"full": full, "empty": {Version: Version, Keep: []string{}}, "zero": {Version: Version},
	} {
		b, err := want.encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(b[1:])
		if diff := cmp.Diff(want, got, compareAddr); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", name, err, diff)
		}
	}
	broken, err := Record{Container: "\xff"}.encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decode(broken[1:]); err != nil || got.Container != "\ufffd" {
		t.Errorf("%q, %v", got.Container, err)
	}
}

func TestSetError(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		err  error
		want string
	}{
		{"success", nil, ""},
		{"no attachment, no details", fmt.Errorf("pods/web/eth0: %w",
			cni.Errorf(cni.CodeTryAgainLater, "pool is full").WithDetails("secret")), "11 pool is full"},
		{"quoted arguments are masked", cni.Errorf(cni.CodeInvalidEnvironment,
			`CNI_ARGS: "TOKEN=hunter\"2" of "web" and "bridge"`), `4 CNI_ARGS: "…" of "web" and "bridge"`},
		{"an open quote", errors.New(`a "hunter2`), `999 a "…"`},
		{"one line", errors.New("a\nb"), "999 a"},
		{"long", errors.New(strings.Repeat("é", 200)), "999 " + strings.Repeat("é", 120) + "…"},
	} {
		r := Record{Network: "pods", Container: "web", IfName: "eth0"}
		r.SetError(row.err, "bridge")
		got := ""
		if r.Failed() {
			got = fmt.Sprintf("%d %s", r.Code, r.Error)
		}
		if got != row.want {
			t.Errorf("%s: got %q, want %q", row.name, got, row.want)
		}
	}
}

// TestLarge: the list of attachments in use of a GC is left out if it is too large.
func TestLarge(t *testing.T) {
	t.Parallel()
	j := Journal{Dir: t.TempDir()}
	r := Record{Verb: cni.GC, Keep: make([]string, MaxRecord)}
	if err := j.Append(r); err != nil {
		t.Error(err)
	}
	r.Keep, r.Netns = nil, strings.Repeat("x", MaxRecord)
	if err := j.Append(r); !errors.Is(err, errLarge) {
		t.Errorf("a record without end: %v", err)
	}
	if c, err := j.Read(); err != nil || len(c.Records) != 1 || c.Records[0].Keep != nil {
		t.Errorf("%+v, %v", c, err)
	}
}

// FuzzDecode: no bytes make the decoder fail or loop, and a record that it finds can be encoded.
func FuzzDecode(f *testing.F) {
	one, err := example("one").encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(one, []byte{})
	f.Add(one[:20], one)
	f.Add([]byte{separator, '{', '}', '\n'}, one[30:])
	f.Fuzz(func(t *testing.T, before, after []byte) {
		text := append(append(bytes.Clone(before), one...), after...)
		found, _, rest := decodeAll(text)
		whole := len(after) == 0 || after[0] == separator
		if whole && !strings.Contains(" "+containers(found)+" ", " one ") {
			t.Errorf("lost a record between %q and %q", before, after)
		}
		if len(rest) > 0 && rest[0] != separator {
			t.Errorf("rest %q", rest)
		}
		for _, r := range found {
			b, err := r.encode()
			if err != nil {
				t.Fatal(err)
			}
			again, err := decode(b[1:])
			if diff := cmp.Diff(r, again, compareAddr); diff != "" || err != nil {
				t.Errorf("%v (-want +got)\n%s", err, diff)
			}
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	j := Journal{Dir: b.TempDir()}
	for b.Loop() {
		r := example("web")
		if err := j.Append(r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendWithoutDirectory(b *testing.B) {
	j := Journal{Dir: filepath.Join(b.TempDir(), "absent")}
	for b.Loop() {
		if err := j.Append(example("web")); err == nil {
			b.Fatal("success")
		}
	}
}

// TestEarlierFormat reads a record without members that were added later.
func TestEarlierFormat(t *testing.T) {
	t.Parallel()
	const text = `{"v":1,"time":"2026-11-23T14:02:00Z","kind":"operation","verb":"ADD","network":"pods",` +
		`"container":"web","ifname":"eth0","duration":9000000,"runtime":"tenon","pid":4711,` +
		`"sum":"b359ef47a42e9f14"}` + "\n"
	r, err := decode([]byte(text))
	if err != nil || r.Container != "web" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestHostile reads the rest of a journal after other programs have changed its files.
func TestHostile(t *testing.T) {
	t.Parallel()
	j := Journal{Dir: t.TempDir(), Limit: 4 << 10}
	for n := 0; ; n++ { // three segments
		if err := j.Append(example(strconv.Itoa(n))); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(j.path(2)); err == nil {
			break
		}
	}
	whole, err := j.Read()
	if err != nil || whole.Damaged != 0 {
		t.Fatalf("%d damaged, %v", whole.Damaged, err)
	}
	if err := unix.Mkfifo(j.path(3), 0o600); err != nil { // must not block
		t.Fatal(err)
	}
	if err := os.Truncate(j.path(2), 1<<40); err != nil { // must not be read in full
		t.Fatal(err)
	}
	c, err := j.Read()
	if !errors.Is(err, statefile.ErrNotRegular) || c.Damaged == 0 ||
		containers(c.Records) != containers(whole.Records) {
		t.Errorf("%q, %d damaged, %v", containers(c.Records), c.Damaged, err)
	}
	if err := os.Rename(j.path(0), j.path(1)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(j.path(0), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(example("last")); err == nil {
		t.Error("wrote a record into a directory")
	}
}

// TestFollow gets all records in their order while segments are rotated, and ends with its context.
func TestFollow(t *testing.T) {
	t.Parallel()
	j := Journal{Dir: t.TempDir(), Limit: 4 << 10}
	ctx, stop := context.WithCancel(t.Context())
	absent := Journal{Dir: filepath.Join(j.Dir, "absent")}
	if err := absent.Follow(ctx, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
	const records = 60
	number := 0
	write := func() {
		if err := j.Append(example(strconv.Itoa(number))); err != nil {
			t.Error(err)
		}
		number++
	}
	write()
	var got []string
	err := j.Follow(ctx, func(found []Record) error {
		for _, r := range found {
			got = append(got, r.Container)
		}
		if number == records {
			stop()
			return nil
		}
		write()
		return nil
	})
	var want []string
	for n := range number {
		want = append(want, strconv.Itoa(n))
	}
	if diff := cmp.Diff(want[:len(got)], got); diff != "" || err != nil || len(got) < records-1 {
		t.Errorf("%d records, %v (-want +got)\n%s", len(got), err, diff)
	}
	failed := errors.New("enough")
	if err := j.Follow(t.Context(), func([]Record) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("error of the caller: %v", err)
	}
}
