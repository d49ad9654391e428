package cell_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/tenon-cni/tenon/internal/judge/cell"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// unprivileged is the name under which the test starts itself as another user.
const unprivileged = "cell-test-unprivileged"

func runUnprivileged() int {
	r, err := cell.Run(context.Background(), &script.Scenario{
		Name: "unprivileged", Programs: []string{"/usr/bin/env"},
		Files: []script.File{script.RecorderFile("probe"), script.Answers("probe", "ADD", `
exec 2>/dev/null
id -u
[ -w /proc/sys/kernel/panic ] && echo sysctl
mount -t proc x /mnt && echo mount
mount -o remount,rw,bind /usr && echo remount
echo x >/etc/conform
echo 1 >/proc/sys/net/ipv4/ip_forward
ip -n c1 link add eth0 type veth peer name host1 netns 1
`)},
		Steps: []script.Step{
			{Shell: "ip netns add c1; ip -n c1 link set lo up", Quiet: true},
			{Calls: []script.Call{
				{Name: "add", Path: script.Plugins + "/probe", Env: []string{"CNI_COMMAND=ADD"}},
				{Name: "env", Path: script.Plugins + "/env", Env: []string{"A=b"}},
			}},
		},
	})
	if err == nil {
		err = r.Encode(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestUnprivileged runs a scenario as an unprivileged user, in a user namespace.
func TestUnprivileged(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Root)
	var messages strings.Builder
	cmd := exec.Command("/proc/self/exe")
	cmd.Args, cmd.Env, cmd.Dir, cmd.Stderr = []string{unprivileged}, []string{}, "/", &messages
	const nobody = 65534
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err, messages.String())
	}
	r, err := script.Decode(strings.NewReader(string(out)))
	if err != nil || r.Broken != "" {
		t.Fatal(err, r)
	}
	if add, _ := r.Call("add"); string(add.Stdout) != "0\n" || add.Status != 0 || len(add.Recorded) != 1 {
		t.Errorf("add: %+v", add)
	}
	if env, _ := r.Call("env"); string(env.Stdout) != "A=b\n" {
		t.Errorf("env: %+v", env)
	}
	s := r.After("add")
	if s.Container("c1") == nil || s.Container("c1").LinkByName("eth0") == nil || s.Host.Own().LinkByName("host1") == nil {
		t.Error("a link is missing")
	}
	if s.Host.Own().Settings["net.ipv4.ip_forward"] != "1" {
		t.Error("the sysctl has not changed")
	}
	if _, ok := s.Files["/etc/conform"]; !ok {
		t.Error("the file is missing")
	}
	t.Log(strings.Join(r.Skipped, "\n"))
	if s.Host.Own().Missing != nil || s.Host.Skipped != nil {
		t.Errorf("not read: %v, %v", s.Host.Own().Missing, s.Host.Skipped)
	}
}
