// Package plan compares "tenon plan" with the real operations, on generated hosts and networks.
package plan

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/cli"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugins/all"
)

var (
	seeds = flag.Int("seeds", 0, "generated hosts, 0: 2 with -short, otherwise 8")
	seed  = flag.Int64("seed", 0, "the first seed, 0: of the time")

	attachments = flag.Int("many", 0, "attachments of TestMany")
)

// Variables that make the test binary act as the program, or run a function in namespaces of its own.
const (
	asProgram = "TENON_TEST_PROGRAM"
	inWorld   = "TENON_TEST_WORLD"
)

// worlds are the functions that run in namespaces of their own.
var worlds = map[string]func(*world){
	"property": property, "kill": kill, "many": many, "unknown": unknown, "failure": failure,
	"runtimes": runtimes, "device": device,
}

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(cli.Run(os.Args[1:], "test", plugin.Caller(all.Plugins, false)))
	}
	if name, argument, ok := strings.Cut(os.Getenv(inWorld), ":"); ok {
		os.Exit(inside(worlds[name], argument))
	}
	if err := os.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere"); err != nil {
		panic(err)
	}
	testnet.Main(m)
}

// run runs a function of worlds in namespaces of its own.
func run(t *testing.T, name, argument string) {
	t.Helper()
	testnet.Require(t, testnet.Root, testnet.Tool("nft"), testnet.Tool("ip"))
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), inWorld+"="+name+":"+argument)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	} else if testing.Verbose() {
		t.Logf("%s", out)
	}
}

// world is a host of its own: its namespaces, and its directories.
type world struct {
	argument   string
	dir        string
	containers []string
	failed     bool
}

func (w *world) errorf(format string, args ...any) {
	w.failed = true
	fmt.Printf(format+"\n", args...)
}

func (w *world) must(err error) {
	if err != nil {
		panic(err)
	}
}

func inside(test func(*world), argument string) (status int) {
	w := &world{argument: argument, dir: "/var/lib/test"}
	w.must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	for _, dir := range []string{"/run", "/var/lib"} {
		w.must(unix.Mount("test", dir, "tmpfs", 0, "mode=0755"))
	}
	w.must(unix.Mount("proc", "/proc", "proc", 0, ""))
	w.must(unix.Mount("sysfs", "/sys", "sysfs", 0, ""))
	for _, dir := range []string{"bin", "net.d"} {
		w.must(os.MkdirAll(filepath.Join(w.dir, dir), 0o755))
	}
	self, err := os.Readlink("/proc/self/exe")
	w.must(err)
	for _, d := range all.Plugins {
		w.must(os.Symlink(self, filepath.Join(w.dir, "bin", d.Name)))
	}
	w.shell("ip link set lo up")
	test(w)
	if w.failed {
		return 1
	}
	return 0
}

// shell runs commands and stops the test if one fails.
func (w *world) shell(commands string) {
	out, err := exec.Command("sh", "-ec", commands).CombinedOutput()
	if err != nil {
		panic(fmt.Sprintf("%s: %v\n%s", commands, err, out))
	}
}

// container creates a namespace.
func (w *world) container(name string) {
	w.shell("ip netns add " + name + " && ip -n " + name + " link set lo up")
	w.containers = append(w.containers, name)
}

// network writes a network configuration.
func (w *world) network(name string, plugins ...map[string]any) {
	b, err := json.Marshal(map[string]any{"cniVersion": "1.1.0", "name": name, "plugins": plugins})
	w.must(err)
	w.must(os.WriteFile(filepath.Join(w.dir, "net.d", name+".conflist"), b, 0o600))
}

// command returns a command of tenon.
func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", inWorld+"=", "NETCONFPATH="+filepath.Join(w.dir, "net.d"),
		"CNI_PATH="+filepath.Join(w.dir, "bin"))
	return cmd
}

// tenon runs a command and returns its output and exit status.
func (w *world) tenon(args ...string) (stdout, stderr string, status int) {
	cmd := w.command(args...)
	var out, wrong strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &wrong
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		status = exit.ExitCode()
	} else {
		w.must(err)
	}
	return out.String(), wrong.String(), status
}
