package network_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/testnet/exefile"
	"github.com/tenon-cni/tenon/invoke"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// TestMain runs the test binary as a recorder plugin if it was started as one: see rig.
func TestMain(m *testing.M) {
	if b, err := os.ReadFile(os.Args[0] + scriptExt); err == nil {
		os.Exit(record(os.Args[0], b))
	}
	if network.HoldLock(os.Args) || runAsRuntime(os.Args) || runAsCollector(os.Args) {
		return
	}
	// A program built with the race detector waits for a second before it exits; plugins need not
	// wait.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	testnet.AtOnce(8) // hanging plugins need only time
	os.Exit(m.Run())
}

const (
	scriptExt  = ".script"
	startedExt = ".started" // of a plugin that stays
	logName    = "log"
)

// script defines the behaviour of a recorder plugin for each verb.
type script map[cni.Command]act

type act struct {
	Stdout string
	Stderr string
	Exit   int
	Stay   time.Duration // before it answers
	Ruin   string        // directory to replace with a file
}

// fails returns an act that prints an error object.
func fails(code cni.Code, msg string) act {
	return act{Stdout: string(cni.Errorf(code, "%s", msg).Encode(cni.Newest)), Exit: 1}
}

// entry is a line in the log of a recorder.
type entry struct {
	Plugin     string
	Env        cni.Env
	Stdin      json.RawMessage
	Netns      string // namespace of the plugin's process
	Start, End time.Time
}

func (e entry) String() string { return string(e.Env.Command) + " " + e.Plugin }

// prev returns the previous result of the request, "" if there is none.
func (e entry) prev() string {
	var request struct{ PrevResult json.RawMessage }
	_ = json.Unmarshal(e.Stdin, &request)
	return string(request.PrevResult)
}

// record is the recorder plugin. Verbs that the script does not contain succeed: ADD passes on the
// previous result, or creates one, and adds the plugin's name as a DNS search domain.
func record(path string, b []byte) int {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	e := entry{Plugin: filepath.Base(path), Env: cni.EnvFrom(os.Getenv), Start: time.Now()}
	stdin, err := io.ReadAll(os.Stdin)
	must(err)
	e.Stdin = stdin
	e.Netns, err = os.Readlink("/proc/self/ns/net")
	must(err)
	var s script
	must(json.Unmarshal(b, &s))
	a, scripted := s[e.Env.Command]
	if !scripted {
		a.Stdout = succeed(e)
	}
	if a.Stay > 0 {
		must(os.WriteFile(path+startedExt, nil, 0o600))
	}
	time.Sleep(a.Stay)
	if a.Ruin != "" {
		must(os.RemoveAll(a.Ruin))
		must(os.WriteFile(a.Ruin, nil, 0o600))
	}
	e.End = time.Now()
	line, err := json.Marshal(e)
	must(err)
	log, err := os.OpenFile(filepath.Join(filepath.Dir(path), logName),
		os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	must(err)
	_, err = log.Write(append(line, '\n'))
	must(err)
	_, _ = os.Stdout.WriteString(a.Stdout)
	_, _ = os.Stderr.WriteString(a.Stderr)
	return a.Exit
}

func succeed(e entry) string {
	switch e.Env.Command {
	case cni.Add:
		_, version, err := cni.DecodeHeader(e.Stdin)
		if err != nil {
			panic(err)
		}
		v, err := cni.ParseVersion(version)
		if err != nil {
			panic(err)
		}
		base := fmt.Sprintf(`{"cniVersion":"0.4.0","interfaces":[{"name":%q,"sandbox":%q}],"ips":[{"version":"4","address":"10.1.2.3/24","interface":0}]}`,
			e.Env.IfName, e.Env.Netns)
		if prev := e.prev(); prev != "" {
			base = prev
		}
		r, err := cni.DecodeResult([]byte(base), v)
		if err != nil {
			panic(err)
		}
		r.DNS.Search = append(r.DNS.Search, e.Plugin)
		out, err := r.Encode(v)
		if err != nil {
			panic(err)
		}
		return string(out)
	case cni.VersionCommand:
		return `{"cniVersion":"1.1.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}`
	}
	return ""
}

// rig is a Client with its own state directory and recorder plugins, which are processes.
type rig struct {
	*network.Client
	t       *testing.T
	plugins string
	log     *bytes.Buffer // of the Client
	root    string        // prefix of the fixed paths of the host
}

func newRig(t *testing.T, plugins map[string]script) *rig {
	t.Helper()
	r := &rig{t: t, plugins: t.TempDir(), log: new(bytes.Buffer), root: t.TempDir()}
	r.Client = &network.Client{
		Caller:     invoke.Process{Stderr: io.Discard},
		PluginDirs: []string{r.plugins},
		StateDir:   filepath.Join(t.TempDir(), "state"),
		Log:        slog.New(slog.NewTextHandler(r.log, nil)),
	}
	r.SetRoot(r.root)
	for name, s := range plugins {
		r.script(name, s)
	}
	return r
}

// script installs a plugin or changes its behaviour.
func (r *rig) script(name string, s script) {
	r.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	path := filepath.Join(r.plugins, name)
	if err := os.Symlink(exe, path); err != nil && !os.IsExist(err) {
		r.t.Fatal(err)
	}
	b, err := json.Marshal(s)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path+scriptExt, b, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// shell installs a plugin that is a shell script; $dir is the directory of the plugins.
func (r *rig) shell(name, script string) {
	r.t.Helper()
	text := "#!/bin/sh\ndir=" + r.plugins + "\n" + script + "\n"
	_ = os.Remove(filepath.Join(r.plugins, name)) // could be a link to this program
	if err := exefile.Write(filepath.Join(r.plugins, name), []byte(text)); err != nil {
		r.t.Fatal(err)
	}
}

// entries returns the log of the plugins since the last call.
func (r *rig) entries() []entry {
	r.t.Helper()
	path := filepath.Join(r.plugins, logName)
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	var log []entry
	for d := json.NewDecoder(bytes.NewReader(b)); ; {
		var e entry
		if err := d.Decode(&e); err == io.EOF {
			break
		} else if err != nil {
			r.t.Fatal(err)
		}
		log = append(log, e)
	}
	_ = os.Remove(path)
	return log
}

// calls returns the log of the plugins since the last call as text: "ADD first, ADD second".
func (r *rig) calls() string { return callsOf(r.entries()) }

func callsOf(log []entry) string {
	var s []string
	for _, e := range log {
		s = append(s, e.String())
	}
	return strings.Join(s, ", ")
}

// add attaches c1 to n and discards the log of the plugins.
func (r *rig) add(n *config.Network) cni.Attachment {
	r.t.Helper()
	if _, err := r.Add(r.t.Context(), n, request("c1")); err != nil {
		r.t.Fatal(err)
	}
	r.entries()
	return request("c1").Attachment(n.Name)
}

// wantCalls compares the log of the plugins since the last call.
func (r *rig) wantCalls(want string) {
	r.t.Helper()
	if got := r.calls(); got != want {
		r.t.Errorf("calls: %q, want %q", got, want)
	}
}

// wantRecorded compares the recorded attachments.
func (r *rig) wantRecorded(want ...string) {
	r.t.Helper()
	records, err := r.List()
	if err != nil {
		r.t.Error(err)
	}
	var got []string
	for _, x := range records {
		got = append(got, x.Attachment.String()+" "+string(x.State))
	}
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		r.t.Errorf("recorded %q, want %q", got, want)
	}
}

// list returns a network of the given plugin types or plugin objects.
func list(t *testing.T, version, name string, plugins ...string) *config.Network {
	t.Helper()
	return listWith(t, version, name, "", plugins...)
}

// listWith returns a network like list, with additional members ("key":value) in the list.
func listWith(t *testing.T, version, name, members string, plugins ...string) *config.Network {
	t.Helper()
	for i, p := range plugins {
		if !strings.HasPrefix(p, "{") {
			plugins[i] = `{"type":"` + p + `"}`
		}
	}
	if members != "" {
		members += ","
	}
	n, err := config.LoadBytes([]byte(fmt.Sprintf(`{"cniVersion":%q,"name":%q,%s"plugins":[%s]}`,
		version, name, members, strings.Join(plugins, ","))))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// tree writes files, given as path and content, and returns their directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// quiet is the log of Clients in tests that do not compare it.
var quiet = slog.New(slog.DiscardHandler)

func request(container string) network.Request {
	return network.Request{Container: container, IfName: "eth0",
		Parameters: network.Parameters{Netns: "/run/netns/absent"}}
}

// describe returns an error as text with its code.
func describe(err error) string {
	if err == nil {
		return "success"
	}
	return fmt.Sprintf("%d %v", cni.CodeOf(err), err)
}

// expiring is a context with a deadline that passes when done is closed.
type expiring struct {
	context.Context
	done chan struct{}
}

// Done implements [context.Context].
func (e expiring) Done() <-chan struct{} { return e.done }

// Err implements [context.Context].
func (e expiring) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// expireWhen returns a context that expires some time after a file appears, because the start of a
// plugin on a busy node takes an unknown time.
func expireWhen(t *testing.T, path string, later time.Duration) context.Context {
	e := expiring{t.Context(), make(chan struct{})}
	go func() {
		defer close(e.done)
		_ = testnet.Try(func() error {
			if t.Context().Err() != nil {
				return nil
			}
			info, err := os.Stat(path)
			if err == nil && time.Since(info.ModTime()) < later {
				err = errors.New("too early")
			}
			return err
		})
	}()
	return e
}

// recordPath returns the file of a record.
func recordPath(c *network.Client, a cni.Attachment) string {
	return filepath.Join(c.StateDir, "records", string(a.Owner())+".json")
}

// seal encodes a file of the state directory; this format never changes.
func seal(kind string, body []byte) []byte {
	return fmt.Appendf(nil, `{"kind":"%s","sha256":"%x","record":%s}`+"\n", kind,
		sha256.Sum256(body), body)
}

// unseal returns the body that seal encoded.
func unseal(t *testing.T, b []byte) []byte {
	t.Helper()
	_, rest, _ := bytes.Cut(b, []byte(`"record":`))
	body, ok := bytes.CutSuffix(rest, []byte("}\n"))
	if !ok {
		t.Fatalf("not sealed: %s", b)
	}
	return body
}

// editRecord replaces text in a record, with a valid checksum.
func editRecord(t *testing.T, c *network.Client, a cni.Attachment, old, new string) {
	t.Helper()
	path := recordPath(c, a)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	body := unseal(t, b)
	edited := strings.Replace(string(body), old, new, 1)
	if edited == string(body) {
		t.Fatalf("%q is not in %s", old, body)
	}
	if err := os.WriteFile(path, seal("tenonRecordV1", []byte(edited)), 0o600); err != nil {
		t.Fatal(err)
	}
}
