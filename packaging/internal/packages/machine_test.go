//go:build packages

package packages_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// machine is a Debian root with namespaces of its own, in which processes run until the test ends.
// It has no init process.
type machine struct {
	*testing.T
	root string
	pid  string // of a process in the namespaces, on the host

	pivoted bool                 // the root is the root of the mount namespace
	cgroup  *syscall.SysProcAttr // puts the first process into a control group; may be nil
}

// boot mounts a root in new namespaces, prints a line when it is ready, and runs the program in the
// other arguments. It can write the kernel's settings of the network namespace and no others.
const boot = `set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --bind "$1/proc/sys" "$1/proc/sys"
mount --bind "$1/proc/sys/net" "$1/proc/sys/net"
mount -o remount,bind,ro "$1/proc/sys"
mount -t sysfs sysfs "$1/sys"
mount -t tmpfs -o mode=0755 run "$1/run"
mount --bind /dev/null "$1/dev/null"
mount --bind /dev/urandom "$1/dev/urandom"
ip link set lo up
echo ready
root=$1
shift
exec "$@"`

// newMachine unpacks the root that scripts/test-packages made, and starts it.
func newMachine(t *testing.T) *machine {
	t.Helper()
	return start(t, unpack(t, debianRoot), "sleep", "infinity")
}

// debianRoot is the variable with the archive of a Debian root.
const debianRoot = "TENON_DEBIAN_ROOT"

// unpack returns a machine that does not run yet, from the archive that a variable names.
func unpack(t *testing.T, variable string) *machine {
	t.Helper()
	tarball := os.Getenv(variable)
	if tarball == "" {
		t.Fatal(variable + " names no archive: run scripts/test-packages")
	}
	m := &machine{T: t, root: filepath.Join(t.TempDir(), "root")}
	must(t, os.Mkdir(m.root, 0o755))
	m.host("tar", "--extract", "--numeric-owner", "--file", tarball, "--directory", m.root)
	return m
}

// start runs a program as the first process of a machine.
func start(t *testing.T, m *machine, program ...string) *machine {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork",
		"--cgroup", "--kill-child", "sh", "-c", boot, "sh", m.root)
	cmd.Args = append(cmd.Args, program...)
	cmd.SysProcAttr = m.cgroup
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q: %v", line, err)
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", cmd.Process.Pid))
	must(t, err)
	m.pid = strings.TrimSpace(string(children))
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// host runs a program of the host.
func (m *machine) host(name string, args ...string) string {
	m.Helper()
	out, err := exec.CommandContext(m.Context(), name, args...).CombinedOutput()
	if err != nil {
		m.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// command returns a command for the shell of the machine.
func (m *machine) command(ctx context.Context, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", "--target", m.pid, "--mount", "--net", "--pid", "--ipc", "--uts",
		"chroot", m.root, "sh", "-ec", line)
	if m.pivoted {
		cmd = exec.CommandContext(ctx, "nsenter", "--target", m.pid, "--mount", "--net", "--pid", "--ipc", "--uts",
			"--root", "sh", "-ec", "cd /\n"+line)
	}
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "HOME=/root",
		"LC_ALL=C.UTF-8"}
	return cmd
}

// try runs a command and returns its output.
func (m *machine) try(line string) (string, error) {
	out, err := m.command(context.WithoutCancel(m.Context()), line).CombinedOutput()
	m.Logf("# %s\n%s", line, out)
	return string(out), err
}

// run runs a command that must succeed.
func (m *machine) run(line string) string {
	m.Helper()
	out, err := m.try(line)
	if err != nil {
		m.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}

// refuse runs a command that must fail and print certain words.
func (m *machine) refuse(line string, words ...string) {
	m.Helper()
	out, err := m.try(line)
	if err == nil {
		m.Fatalf("%s succeeded", line)
	}
	for _, w := range words {
		if !strings.Contains(out, w) {
			m.Errorf("%s: no %q in\n%s", line, w, out)
		}
	}
}

// give copies a file of the host into /root and returns its path there.
func (m *machine) give(path string) string {
	m.Helper()
	content, err := os.ReadFile(path)
	must(m.T, err)
	must(m.T, os.WriteFile(filepath.Join(m.root, "root", filepath.Base(path)), content, 0o644))
	return "/root/" + filepath.Base(path)
}

// passing lists files that package managers change at any time.
var passing = []string{"/var/log", "/var/cache", "/var/lib/dpkg/status-old", "/var/lib/dpkg/diversions-old",
	"/var/lib/dpkg/triggers", "/var/lib/dpkg/lock", "/var/lib/apt", "/root", "/proc", "/sys", "/run/lock",
	"/run/netns", "/run/xtables.lock", "/var/lib/rpm", "/etc/.pwd.lock"}

// state lists the files of the machine with their content, and its network.
func (m *machine) state() map[string]string {
	m.Helper()
	state := map[string]string{}
	must(m.T, filepath.WalkDir(m.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, m.root)
		for _, p := range passing {
			if name == p {
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		entry := info.Mode().String()
		switch {
		case d.Type() == fs.ModeSymlink:
			to, _ := os.Readlink(path)
			entry += " " + to
		case d.Type().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			entry += fmt.Sprintf(" %x", sha256.Sum256(content))
		}
		state[name] = entry
		return nil
	}))
	for _, command := range []string{"ip -o link", "ip rule", "ip route show table all", "nft list ruleset",
		"iptables-save | grep -v '^#' || :", "find /run -mindepth 1 ! -path '/run/netns*' ! -path '/run/lock*' " +
			"! -name xtables.lock | sort"} {
		state["$ "+command] = m.run(command)
	}
	return state
}

// unchanged compares the machine with an earlier state.
func (m *machine) unchanged(before map[string]string) {
	m.Helper()
	m.same(before, m.state())
}

// same compares two states of the machine.
func (m *machine) same(before, after map[string]string) {
	m.Helper()
	for name, was := range before {
		if is, ok := after[name]; !ok {
			m.Errorf("%s is missing, was %s", name, was)
		} else if is != was {
			m.Errorf("%s is %s, was %s", name, is, was)
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			m.Errorf("left: %s %s", name, after[name])
		}
	}
}

// traffic is a series of pings from a container to its gateway.
type traffic struct {
	m    *machine
	cmd  *exec.Cmd
	out  bytes.Buffer
	stop context.CancelFunc
}

// ping sends ten packets each second from a network namespace until the test calls done.
func (m *machine) ping(netns string, to net.IP) *traffic {
	m.Helper()
	ctx, cancel := context.WithCancel(m.Context())
	p := &traffic{m: m, stop: cancel}
	p.cmd = m.command(ctx, fmt.Sprintf("exec ip netns exec %s ping -i 0.1 -W 5 %s", netns, to))
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(os.Interrupt) }
	p.cmd.WaitDelay = time.Minute
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	must(m.T, p.cmd.Start())
	m.Cleanup(cancel)
	return p
}

// done ends the series. No packet may be lost.
func (p *traffic) done() {
	p.m.Helper()
	p.m.run("pkill -INT -x ping")
	_ = p.cmd.Wait()
	p.stop()
	if !strings.Contains(p.out.String(), " 0% packet loss") {
		p.m.Errorf("packets lost:\n%s", p.out.String())
	}
}

// insideTry runs a command of the host in the namespaces of the machine and returns its output.
func (m *machine) insideTry(line string) (string, error) {
	cmd := exec.CommandContext(context.WithoutCancel(m.Context()), "nsenter", "--target", m.pid, "--mount", "--net", "--pid", "--ipc", "--uts",
		"sh", "-ec", line)
	if m.pivoted { // the programs of the host are not in its mount namespace
		cmd = exec.CommandContext(m.Context(), "nsenter", "--target", m.pid, "--net", "sh", "-ec", line)
	}
	out, err := cmd.CombinedOutput()
	m.Logf("host# %s\n%s", line, out)
	return string(out), err
}
