package skel_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
)

var (
	buildOnce sync.Once
	buildDir  string
	errBuild  error
)

func TestMain(m *testing.M) {
	status := m.Run()
	if buildDir != "" {
		if err := os.RemoveAll(buildDir); err != nil {
			panic(err)
		}
	}
	os.Exit(status)
}

// plugin builds testdata/plugin once and returns the path of the binary.
func plugin(t *testing.T) string {
	t.Helper()
	buildOnce.Do(func() {
		if buildDir, errBuild = os.MkdirTemp("", "skel"); errBuild != nil {
			return
		}
		cmd := exec.Command("go", "build", "-o", buildDir, "./testdata/plugin")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			errBuild = errors.New(string(out))
		}
	})
	if errBuild != nil {
		t.Fatal(errBuild)
	}
	return filepath.Join(buildDir, "plugin")
}

func command(t *testing.T, verb string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), plugin(t))
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=web", "CNI_NETNS=/run/netns/none", "CNI_IFNAME=eth0",
		"CNI_PATH=/opt/cni/bin",
	}
	return cmd
}

// TestProcess compares status, standard output and standard error of a plugin.
func TestProcess(t *testing.T) {
	t.Parallel()
	const result = `{
    "cniVersion": "0.4.0",
    "ips": [
        {
            "version": "4",
            "address": "10.0.0.5/24"
        }
    ],
    "dns": {}
}`
	for name, row := range map[string]struct {
		verb, stdin    string
		status         int
		stdout, stderr string
	}{
		"result":       {"ADD", `{"cniVersion":"0.4.0","name":"pods"}`, 0, result, ""},
		"no result":    {"DEL", `{"cniVersion":"0.4.0","name":"pods"}`, 0, "", "removed eth0 of web\n"},
		"nil callback": {"CHECK", `{"cniVersion":"0.4.0","name":"pods"}`, 0, "", ""},
		"typed error": {"ADD", `{"cniVersion":"0.4.0","name":"pods","fail":"typed"}`, 1,
			"{\n    \"code\": 11,\n    \"msg\": \"busy\",\n    \"details\": \"lock of web\"\n}", ""},
		"plain error": {"ADD", `{"cniVersion":"0.4.0","name":"pods","fail":"plain"}`, 1,
			"{\n    \"code\": 999,\n    \"msg\": \"no line\"\n}", ""},
		"empty standard input": {"ADD", "", 1,
			"{\n    \"code\": 6,\n    \"msg\": \"error unmarshall network config: unexpected end of JSON input\"\n}", ""},
		"unknown command": {"NOOP", `{"name":"pods"}`, 1,
			"{\n    \"code\": 4,\n    \"msg\": \"unknown CNI_COMMAND: NOOP\"\n}", ""},
		"no command": {"", "", 0, "",
			"CNI plugin of a test\nCNI protocol versions supported: 0.3.1, 0.4.0, 1.0.0, 1.1.0\n"},
		"version": {"VERSION", "", 0,
			`{"cniVersion":"1.1.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}` + "\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := command(t, row.verb)
			cmd.Stdin = strings.NewReader(row.stdin)
			stdout, stderr, status := run(t, cmd)
			if status != row.status || stdout != row.stdout || stderr != row.stderr {
				t.Errorf("status %d, output %q %q; want %d, %q %q", status, stdout, stderr,
					row.status, row.stdout, row.stderr)
			}
		})
	}
}

func run(t *testing.T, cmd *exec.Cmd) (stdout, stderr string, status int) {
	t.Helper()
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), log.String(), cmd.ProcessState.ExitCode()
}

func TestProcessPanics(t *testing.T) {
	t.Parallel()
	cmd := command(t, "ADD")
	cmd.Stdin = strings.NewReader(`{"cniVersion":"0.4.0","name":"pods","fail":"panic"}`)
	stdout, stderr, status := run(t, cmd)
	if status != 2 || stdout != "" || !strings.HasPrefix(stderr, "panic: bug") {
		t.Errorf("status %d, output %q %q", status, stdout, stderr)
	}
}

// TestStandardFiles starts plugins with unusual standard files.
func TestStandardFiles(t *testing.T) {
	t.Parallel()
	directory := open(t, ".", os.O_RDONLY)
	full := open(t, "/dev/full", os.O_WRONLY) // refuses every write
	request, requestWriter := pipe(t)         // stays open
	if _, err := requestWriter.WriteString(`{"name":"pods"}`); err != nil {
		t.Fatal(err)
	}
	const version = `{"cniVersion":"1.1.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}` + "\n"
	for name, row := range map[string]struct {
		verb          string
		stdin, stdout *os.File // nil: closed, and a pipe
		status        int
		want          string // the start of standard output
		wantLog       string // the start of standard error
	}{
		"VERSION, input closed":     {"VERSION", nil, nil, 0, version, ""},
		"VERSION, input stays open": {"VERSION", request, nil, 0, version, ""},
		"VERSION, output full": {"VERSION", nil, full, 1, "",
			"write the error \"write /dev/stdout: no space left on device\" to standard output: "},
		"ADD, input closed":      {"ADD", nil, nil, 1, "{\n    \"code\": 6,\n", ""},
		"ADD, input unreadable":  {"ADD", directory, nil, 1, "{\n    \"code\": 5,\n    \"msg\": \"error reading from stdin: ", ""},
		"no command, input open": {"", request, nil, 0, "", "CNI plugin of a test\n"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, status := start(t, row.verb, row.stdin, row.stdout)
			if status != row.status || !begins(stdout, row.want) || !begins(stderr, row.wantLog) {
				t.Errorf("status %d, output %q %q; want %d, %q %q", status, stdout, stderr, row.status,
					row.want, row.wantLog)
			}
		})
	}
}

// begins reports whether text starts with start; the empty start is the empty text.
func begins(text, start string) bool {
	return start == "" && text == "" || start != "" && strings.HasPrefix(text, start)
}

// start runs the plugin with these files, of which a nil one is closed; without a file for standard
// output it reads a pipe.
func start(t *testing.T, verb string, stdin, stdout *os.File) (out, log string, status int) {
	t.Helper()
	read := func(r *os.File) string {
		text, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	cmd := command(t, verb)
	logReader, logWriter := pipe(t)
	var outReader *os.File
	files := []*os.File{stdin, stdout, logWriter}
	if stdout == nil {
		outReader, files[1] = pipe(t)
	}
	process, err := os.StartProcess(cmd.Path, cmd.Args, &os.ProcAttr{Env: cmd.Env, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(10*time.Second, func() { process.Kill() }).Stop()
	state, err := process.Wait()
	if err != nil {
		t.Fatal(err)
	}
	logWriter.Close()
	if outReader != nil {
		files[1].Close()
		out = read(outReader)
	}
	return out, read(logReader), state.ExitCode()
}

func open(t *testing.T, name string, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// TestTenonCallsPlugin calls the plugin as Tenon's runtime does.
func TestTenonCallsPlugin(t *testing.T) {
	t.Parallel()
	call := invoke.Call{Path: plugin(t), Env: cni.Env{Command: cni.Add, ContainerID: "web",
		Netns: "/run/netns/none", IfName: "eth0", Path: "/opt/cni/bin"}}
	call.Stdin = []byte(`{"cniVersion":"1.0.0","name":"pods"}`)
	reply, err := invoke.Process{}.Call(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	result, err := cni.DecodeResultStrict(reply.Stdout, cni.V100)
	if err != nil || len(result.IPs) != 1 {
		t.Errorf("%+v, %v", result, err)
	}
	call.Stdin = []byte(`{"cniVersion":"1.0.0","name":"pods","fail":"typed"}`)
	if _, err := (invoke.Process{}).Call(t.Context(), call); cni.CodeOf(err) != cni.CodeTryAgainLater {
		t.Errorf("got %v, want code %d", err, cni.CodeTryAgainLater)
	}
	call.Env = cni.Env{Command: cni.VersionCommand}
	reply, err = invoke.Process{}.Call(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	versions, err := cni.DecodeVersionReply(reply.Stdout)
	if err != nil || !versions.Supports(cni.V110) || versions.Supports(cni.V030) {
		t.Errorf("%+v, %v", versions, err)
	}
}
