package script

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/testnet"
)

var update = flag.Bool("update", false, "rewrite the golden files in the scripts")

// insideEnv names the script to run in the process that was started in namespaces for it.
const insideEnv = "TENON_SCRIPT"

// binEnv names the directory of the binary under test.
const binEnv = "TENON_SCRIPT_BIN"

func TestMain(m *testing.M) {
	flag.Parse()
	if script := os.Getenv(insideEnv); script != "" {
		os.Exit(inside(script))
	}
	os.Exit(outside(m))
}

// outside builds the binaries once, with permissions that let every user run them, and runs the
// tests.
func outside(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tenon-script-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		err = compile(dir, "../../cmd", "./tenon", "./tenon-dhcp")
	}
	if err == nil {
		err = compile(dir, "../../cmd/tenon-cluster", ".")
	}
	if err == nil {
		err = compile(dir, "../../cmd/tenon-ovs", ".")
	}
	if err == nil {
		err = os.Setenv(binEnv, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build tenon:", err)
		return 1
	}
	return m.Run()
}

// compile builds programs of the module in a directory.
func compile(to, module string, programs ...string) error {
	args := []string{"-C", module, "build", "-ldflags=-s -w -X main.version=test", "-o", to + "/"}
	cmd := exec.Command("go", append(args, programs...)...)
	cmd.Env, cmd.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	return cmd.Run()
}

func TestScripts(t *testing.T) {
	t.Parallel()
	require(t)
	scripts, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatal("no scripts:", err)
	}
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txtar"), func(t *testing.T) {
			t.Parallel()
			if filepath.Base(script) == "cluster-migrate.txtar" {
				testnet.Require(t, testnet.Tool("etcd"))
			}
			run(t, script)
		})
	}
}

// require declares the requirements of scripts.
func require(t *testing.T) {
	t.Helper()
	testnet.Require(t, testnet.Root, testnet.Namespaces,
		testnet.Tool("ip"), testnet.Tool("nft"), testnet.Tool("setpriv"), testnet.Tool("unshare"))
}

// run runs a script in its own namespaces, with additional environment variables.
func run(t *testing.T, script string, env ...string) {
	t.Helper()
	tmp := t.TempDir()
	if err := os.Chmod(filepath.Dir(tmp), 0o755); err != nil { // as in environment
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", fmt.Sprintf("-update=%t", *update))
	cmd.Env = append(append(os.Environ(), insideEnv+"="+script, "TMPDIR="+tmp), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		Pdeathsig:  unix.SIGKILL,
	}
	cmd.WaitDelay = time.Minute // longer than the background processes of any script run
	runtime.LockOSThread()      // Pdeathsig kills the child if the thread that started it ends
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
