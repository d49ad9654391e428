package cell_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tenon-cni/tenon/internal/judge/cell"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

func TestMain(m *testing.M) {
	if os.Args[0] == cell.Name {
		os.Exit(cell.Main())
	}
	if os.Args[0] == unprivileged {
		os.Exit(runUnprivileged())
	}
	if os.Args[0] == fewDescriptors {
		os.Exit(runFewDescriptors())
	}
	if filepath.Base(os.Args[0]) == cell.Greedy {
		os.Exit(cell.RunGreedy())
	}
	os.Exit(m.Run())
}

func TestRun(t *testing.T) {
	t.Parallel()
	r, err := cell.Run(t.Context(), &script.Scenario{
		Name:  "first",
		Files: []script.File{script.RecorderFile("probe"), script.Answers("probe", "ADD", "echo answer; cat $stdin")},
		Steps: []script.Step{
			{Shell: "ip netns add c1", Quiet: true},
			{Calls: []script.Call{{
				Name: "add", Path: script.Plugins + "/probe", Env: []string{"CNI_COMMAND=ADD", "A=b"},
				Stdin: script.Literal("input"),
			}}},
			{Shell: "ip -n c1 link add br0 type bridge; echo x >/etc/x"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Broken != "" {
		t.Fatal(r.Broken)
	}
	add, ok := r.Call("add")
	if !ok || string(add.Stdout) != "answer\ninput" || add.Status != 0 {
		t.Errorf("add: %+v", add)
	}
	if len(add.Recorded) != 1 || add.Recorded[0].Plugin != "probe" || add.Recorded[0].Getenv("A") != "b" {
		t.Errorf("recorded: %+v", add.Recorded)
	}
	last := r.Events[len(r.Events)-1].After
	if last.Container("c1").LinkByName("br0") == nil {
		t.Error("the link is missing")
	}
	if _, ok := last.Files["/etc/x"]; !ok {
		t.Error("the file is missing")
	}
	t.Log(r.Took)
}

// TestDaemon starts a daemon that is ready after some work, and answers calls with new processes.
func TestDaemon(t *testing.T) {
	t.Parallel()
	const daemon = `mkfifo /run/in /run/out
exec 3<>/run/in
: >/run/ready
while read line <&3; do (sleep 1000 & echo $line >/run/out); done`
	s := &script.Scenario{
		Name:  "daemon",
		Files: []script.File{{Path: script.Plugins + "/client", Data: "#!/bin/sh\necho hello >/run/in; cat /run/out", Mode: 0o755}},
		Steps: []script.Step{
			{Daemon: daemon, Shell: "test -e /run/ready", Quiet: true},
			{Calls: []script.Call{{Name: "call", Path: script.Plugins + "/client", Env: []string{"PATH=/usr/bin:/bin"}}}},
		},
	}
	r, err := cell.Run(t.Context(), s)
	if err != nil || r.Broken != "" {
		t.Fatal(err, r)
	}
	call, _ := r.Call("call")
	if string(call.Stdout) != "hello\n" || call.Survivors != nil {
		t.Errorf("%+v", call)
	}
	s.Steps[0].Daemon = "echo no >&2; exit 3"
	r, err = cell.Run(t.Context(), s)
	if err != nil || r.Broken != "step 0: the daemon has ended: exit status 3: no\n" {
		t.Errorf("%v, %+v", err, r)
	}
}

// TestForms runs programs as plugins use them: ip(8) in other namespaces, and sysctls of the network.
func TestForms(t *testing.T) {
	t.Parallel()
	const plugin = `#!/bin/sh -e
exec 2>&1
ip -n c1 link add eth0 type veth peer name host1 netns 1
ip netns exec c1 ls /sys/class/net
ip netns exec c1 sh -c 'echo 1 >/proc/sys/net/ipv4/conf/eth0/forwarding'
echo 1 >/proc/sys/net/ipv4/ip_forward
nsenter --net=/run/netns/c1 ip -o link show eth0 | wc -l
mkdir -p /var/lib/cni /run/made
touch /run/made/ns
mount --bind /run/netns/c1 /run/made/ns
umount /run/made/ns
`
	r, err := cell.Run(t.Context(), &script.Scenario{
		Name:  "forms",
		Files: []script.File{{Path: script.Plugins + "/plugin", Data: plugin, Mode: 0o755}},
		Steps: []script.Step{
			{Shell: "ip netns add c1", Quiet: true},
			{Calls: []script.Call{{Name: "add", Path: script.Plugins + "/plugin", Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}}}},
		},
	})
	if err != nil || r.Broken != "" {
		t.Fatal(err, r)
	}
	if add, _ := r.Call("add"); add.Status != 0 || string(add.Stdout) != "eth0\nlo\n1\n" {
		t.Errorf("status %d, output %q", add.Status, add.Stdout)
	}
	if s := r.After("add"); s.Host.Own().Settings["net.ipv4.ip_forward"] != "1" {
		t.Errorf("net.ipv4.ip_forward is %q of %d", s.Host.Own().Settings["net.ipv4.ip_forward"], len(s.Host.Own().Settings))
	}
}
