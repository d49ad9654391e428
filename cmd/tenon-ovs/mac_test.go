package main

import (
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// TestMAC: later ways to request a MAC address have precedence over earlier ones, and all of them
// over macFromIP.
func TestMAC(t *testing.T) {
	t.Parallel()
	l := start(t, under, header+`,"macFromIP":true,"ipam":{"type":"static",`+
		`"addresses":[{"address":"10.1.2.3/24"},{"address":"fd00::3/64"}]}}`)
	want := "0a:58:0a:01:02:03"
	check := func(way string, change func(*plugintest.Request)) {
		t.Helper()
		q := l.Request(cni.Add, "c")
		change(&q)
		out := l.Must(q)
		r, err := cni.DecodeResultStrict(out, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Interfaces[1].MAC; got != want {
			t.Errorf("%s: %s, want %s", way, got, want)
		}
		l.Container("c").Command("sh", "-c", "ip link show eth0 | grep "+want)
		q.Command, q.Conf["prevResult"] = cni.Check, out
		l.Must(q)
		l.Del("c")
	}
	check("address", func(*plugintest.Request) {})
	want = "02:00:00:00:00:01"
	check("mac", func(q *plugintest.Request) { q.Conf["mac"] = want })
	want = "02:00:00:00:00:02"
	check("MAC in CNI_ARGS", func(q *plugintest.Request) {
		q.Args = "IgnoreUnknown=1;OTHER=x;MAC=" + want
		q.Conf["mac"] = "02:00:00:00:00:01"
	})
	cniArgs := object{"cni": object{"mac": "02:00:00:00:00:03"}}
	want = "02:00:00:00:00:03"
	check("args.cni.mac", func(q *plugintest.Request) {
		q.Args, q.Conf["args"] = "IgnoreUnknown=1;MAC=02:00:00:00:00:02", cniArgs
	})
	want = "02:00:00:00:00:04"
	check("runtimeConfig.mac", func(q *plugintest.Request) {
		q.Conf["args"], q.Conf["runtimeConfig"] = cniArgs, object{"mac": want}
	})
	q := l.Request(cni.Add, "c")
	q.Args = "OTHER=x"
	plugintest.Says(t, l.Refused(q, cni.CodeInvalidEnvironment, cni.CodeInvalidConfig), "OTHER")
	q.Args, q.Conf["mtu"] = "", 1000
	plugintest.Says(t, l.Refused(q, cni.CodeInvalidConfig), "the minimum for IPv6 address fd00::3/64")
}
