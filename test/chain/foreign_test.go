package chain

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/internal/testnet"
)

// machine is a host with a network of bridge, host-local, masquerading and portmap, and a tenon
// that runs its plugins as processes. It has its own lock file of iptables.
type machine struct {
	*testnet.Net
	t     testing.TB
	dir   string
	tenon string
	lock  string
}

func newMachine(t testing.TB) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{Net: testnet.New(t, "c"), t: t, dir: dir, tenon: filepath.Join(dir, "tenon"), lock: filepath.Join(dir, "xtables.lock")}
	build := exec.Command("go", "build", "-o", m.tenon, "../../cmd/tenon")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	for _, cmd := range []*exec.Cmd{build, exec.Command(m.tenon, "install", filepath.Join(dir, "plugins"))} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	m.write("net.conflist", fmt.Sprintf(`{"cniVersion":"1.1.0","name":"net","plugins":[
		{"type":"bridge","bridge":"br0","isGateway":true,"ipMasq":true,"ipam":{"type":"host-local","dataDir":%q,"subnet":"10.88.0.0/24"}},
		{"type":"portmap","snat":true,"capabilities":{"portMappings":true}}]}`, filepath.Join(dir, "ipam")))
	return m
}

func (m *machine) write(name, text string) (path string) {
	m.t.Helper()
	path = filepath.Join(m.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return path
}

// run runs a verb for the container through a wrapper command.
func (m *machine) run(verb string, wrapper ...string) {
	m.t.Helper()
	args := append(wrapper, m.tenon, verb, filepath.Join(m.dir, "net.conflist"), m.Container("c").Path(), "--id", "c", "--timeout", "20s",
		"--cache-dir", "", "--state-dir", filepath.Join(m.dir, "state"), "--plugin-dir", filepath.Join(m.dir, "plugins"))
	if verb == "add" {
		args = append(args, "--cap", `portMappings=[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]`)
	}
	m.Host.Do(func() {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "TENON_EXEC=always", "XTABLES_LOCKFILE=" + m.lock}
		if out, err := cmd.CombinedOutput(); err != nil {
			m.t.Errorf("%s: %v\n%s", verb, err, out)
		}
	})
}

// traced runs a verb and returns the system calls that start processes, open files or receive from
// sockets.
func (m *machine) traced(verb string) string {
	m.t.Helper()
	out := filepath.Join(m.dir, "trace")
	m.run(verb, "strace", "-f", "-qq", "-e", "trace=execve,openat,recvmsg,recvfrom", "-e", "status=successful", "-o", out)
	trace, err := os.ReadFile(out)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(trace)
}

// foreign lists ways to fill the tables nat and filter with 20,000 foreign rules each.
var foreign = map[string]func(m *machine){
	"nftables": func(m *machine) {
		m.Host.Command("nft", "-f", m.write("rules", rulesOf(
			"table ip %[1]s {\n chain KUBE-SERVICES {\n", "ip daddr 10.%[1]d.%[2]d.1 tcp dport %[3]d counter accept\n",
			"}\n chain FOREIGN { type %[2]s; jump KUBE-SERVICES; }\n}\n")))
	},
	"iptables": func(m *machine) {
		m.Host.Command("iptables-nft-restore", m.write("rules", rulesOf(
			"*%[1]s\n:KUBE-SERVICES -\n-A %[3]s -j KUBE-SERVICES\n", "-A KUBE-SERVICES -d 10.%[1]d.%[2]d.1 -p tcp --dport %[3]d -j ACCEPT\n", "COMMIT\n")))
	},
}

// rulesOf writes rules for both tables; the parts are the text before the rules, one rule, and the
// text after them.
func rulesOf(before, rule, behind string) string {
	var text strings.Builder
	for _, table := range [][]any{
		{"nat", "nat hook prerouting priority -100", "PREROUTING"},
		{"filter", "filter hook forward priority 0", "FORWARD"},
	} {
		unused := "%.0[1]s%.0[2]s%.0[3]s"
		fmt.Fprintf(&text, before+unused, table...)
		for i := range 20000 {
			fmt.Fprintf(&text, rule, i/250, i%250, 1+i)
		}
		fmt.Fprintf(&text, behind+unused, table...)
	}
	return text.String()
}

// hold holds the lock of iptables for the rest of the test.
func (m *machine) hold() {
	m.t.Helper()
	f, err := os.Create(m.lock)
	if err == nil {
		m.t.Cleanup(func() { f.Close() })
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

var (
	started  = regexp.MustCompile(`execve\("([^"]*)"`)
	received = regexp.MustCompile(`(?m)recv(?:msg|from).* = (\d+)$`)
)

func bytesIn(trace string) (sum int) {
	for _, match := range received.FindAllStringSubmatch(trace, -1) {
		var n int
		fmt.Sscan(match[1], &n) // digits
		sum += n
	}
	return sum
}

// TestForeignRulesAndLock: ADD, CHECK and DEL of a chain start only its plugins. They do not wait
// for the lock of iptables, and 40,000 foreign rules do not make them read more from the kernel.
func TestForeignRulesAndLock(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("strace"), testnet.Tool("nft"), testnet.Tool("iptables-nft-restore"))
	verbs := []string{"add", "check", "del"}
	for name, fill := range foreign {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.run("add")
			m.run("del")
			before := map[string]int{}
			for _, verb := range verbs {
				before[verb] = bytesIn(m.traced(verb))
			}
			fill(m)
			m.hold()
			for _, table := range []string{"nat", "filter"} {
				if n := strings.Count(m.Host.Command("nft", "list", "table", "ip", table), "10."); n < 20000 {
					t.Fatalf("%d foreign rules in table %s", n, table)
				}
			}
			for _, verb := range verbs {
				trace := m.traced(verb)
				processes := started.FindAllStringSubmatch(trace, -1)
				for _, p := range processes {
					if p[1] != m.tenon && filepath.Dir(p[1]) != filepath.Join(m.dir, "plugins") {
						t.Errorf("%s starts %s", verb, p[1])
					}
				}
				if len(processes) < 3 {
					t.Errorf("%s: %d processes in the trace", verb, len(processes))
				}
				if strings.Contains(trace, "xtables.lock") {
					t.Errorf("%s opens the lock of iptables", verb)
				}
				const more = 2048 // answers list foreign tables and chains, but not their rules
				if n := bytesIn(trace); before[verb] == 0 || n > before[verb]+more {
					t.Errorf("%s reads %d bytes from the kernel, without the rules %d", verb, n, before[verb])
				}
				t.Logf("%s: %d bytes, without the rules %d; %d processes", verb, bytesIn(trace), before[verb], len(processes))
			}
		})
	}
}

// BenchmarkForeignRules measures ADD and DEL of a chain as processes, alone and with 40,000 foreign
// rules and a held lock of iptables.
func BenchmarkForeignRules(b *testing.B) {
	rows := map[string]func(*machine){"alone": func(*machine) {}}
	for name, fill := range foreign {
		rows[name] = func(m *machine) { fill(m); m.hold() }
	}
	for name, prepare := range rows {
		b.Run(name, func(b *testing.B) {
			m := newMachine(b)
			prepare(m)
			for b.Loop() {
				m.run("add")
				m.run("del")
			}
		})
	}
}
