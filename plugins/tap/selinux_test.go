package tap_test

import (
	"errors"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// TestNoSELinux: without SELinux no device has a context. ADD reports that and leaves nothing
// behind; STATUS reports it too.
func TestNoSELinux(t *testing.T) {
	t.Parallel()
	testnet.Require(t, func() error {
		if testnet.SELinux() == nil {
			return errors.New("SELinux is enabled")
		}
		return nil
	})
	const context = "system_u:system_r:container_t:s0"
	r := runtime(t, `,"selinuxContext":"`+context+`"`)
	r.Container("c")
	before := r.State()
	plugintest.Says(t, r.Refused(r.Request(cni.Add, "c"), cni.CodeUnsupportedField),
		"selinuxContext: "+context)
	plugintest.Says(t, r.Refused(r.Request(cni.Status, "c"), cni.CodeNotAvailable), "SELinux")
	r.Must(r.Request(cni.Del, "c"))
	r.Unchanged(before)
}

// TestSELinux: another process creates a device with another context; otherwise the device is the
// same. Without a policy the only contexts are the kernel's initial ones.
func TestSELinux(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.SELinux)
	r := runtime(t,
		`,"selinuxContext":"unlabeled","owner":5001,"group":5002,"multiQueue":true,"mtu":1400`)
	r.Container("c")
	before := r.State()
	r.Must(r.Request(cni.Status, "c"))
	r.Add("c")
	l := show(t, r, "c")
	l.check(t, map[string]any{"type": "tap", "user": 5001, "group": 5002, "multi_queue": true,
		"persist": true, "pi": false})
	if l.MTU != 1400 {
		t.Errorf("MTU %d", l.MTU)
	}
	r.Check("c")
	_, err := r.Do(t.Context(), r.Request(cni.Add, "c"))
	plugintest.Says(t, err, `link "eth0" exists`)
	r.Del("c")
	r.Unchanged(before)
}

// TestHelper: the helper process creates the device and exits with the error number.
func TestHelper(t *testing.T) {
	t.Parallel()
	r := runtime(t, "")
	for _, row := range []struct {
		argument string
		want     unix.Errno
	}{
		{`{"Name":"eth0","Owner":5001,"MultiQueue":true}`, 0},
		{`{"Name":"eth0"}`, unix.EBUSY},
		{`{"Name":"longer than 15 bytes"}`, unix.EINVAL},
		{`--help`, unix.EINVAL},
	} {
		var err error
		r.Container("c").Do(func() {
			cmd := exec.Cmd{Path: "/proc/self/exe", Args: []string{"tap", "helper", row.argument},
				Env: []string{}}
			err = cmd.Run()
		})
		status := 0
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			status = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if status != int(row.want) {
			t.Errorf("%s: exit status %d, want %d (%v)", row.argument, status, row.want, row.want)
		}
	}
	show(t, r, "c").check(t, map[string]any{"user": 5001, "group": nil, "multi_queue": true})
}

// TestLinkedIntoAnother: a program that has tap linked in does not start itself as the helper, with
// or without SELinux. DEL and CHECK of a device that the plugin's binary created work.
func TestLinkedIntoAnother(t *testing.T) {
	t.Parallel()
	r := runtime(t, `,"selinuxContext":"unlabeled"`)
	r.Linked = true
	r.Container("c")
	before := r.State()
	for _, verb := range []cni.Command{cni.Add, cni.Status} {
		plugintest.Says(t, r.Refused(r.Request(verb, "c"), cni.CodeUnsupportedField),
			"tap linked in")
	}
	check := r.Request(cni.Check, "c")
	check.Conf["prevResult"] = map[string]any{"cniVersion": "1.1.0",
		"interfaces": []any{map[string]any{"name": "eth0", "sandbox": check.Netns}}}
	if _, err := r.Do(t.Context(), check); cni.CodeOf(err) == cni.CodeUnsupportedField {
		t.Errorf("CHECK: %v", err)
	}
	r.Must(r.Request(cni.Del, "c"))
	r.Unchanged(before)
}
