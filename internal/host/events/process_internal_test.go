package events

import (
	"os"
	"testing"
)

func TestUnit(t *testing.T) {
	t.Parallel()
	for cgroup, want := range map[string]string{
		"0::/system.slice/nftables.service\n":                                      "nftables.service",
		"0::/user.slice/user-0.slice/session-3.scope\n":                            "session-3.scope",
		"0::/user.slice/user-1000.slice/user@1000.service/app.slice/web.service\n": "web.service",
		"0::/init.scope\n": "init.scope",
		"0::/\n":           "",
		"12:cpu:/system.slice/a.service\n1:name=systemd:/system.slice/b.service\n": "b.service",
		"":                         "",
		"nonsense\n0\n:::\n0::x\n": "",
	} {
		if got := unitOf(cgroup); got != want {
			t.Errorf("%q: got %q, want %q", cgroup, got, want)
		}
	}
}

func TestProcess(t *testing.T) {
	t.Parallel()
	if !own(os.Getpid()) || own(1) {
		t.Error("own threads are not recognized")
	}
	p := Process{PID: 4711, Name: "nft", Unit: "nftables.service"}
	if got := p.String(); got != "nft (PID 4711, from nftables.service)" {
		t.Error(got)
	}
	if got := process(os.Getpid(), "test"); got.PID != os.Getpid() || got.Name != "test" {
		t.Errorf("%+v", got)
	}
}
