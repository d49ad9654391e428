package plugin_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
)

// TRC-05, SEC-07: log lines of a plugin name the attachment and the trace, and contain no
// arguments. An invalid trace is ignored.
func TestLog(t *testing.T) {
	t.Parallel()
	about := " attachment=" +
		string(cni.Attachment{Network: "net", Container: "c-1", IfName: "eth0"}.Owner()) +
		" network=net container=c-1 ifname=eth0 plugin=files verb=ADD"
	for name, row := range map[string]struct {
		verb cni.Command
		env  []string
		want string
	}{
		"no trace": {cni.Add, nil, "WARN hello" + about + " state=\"\"\nWARN again" + about +
			" a=1 g.b=2\n"},
		"a trace": {
			cni.Add,
			[]string{"TRACEPARENT=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
				"TRACESTATE=vendor=x"},
			"WARN hello" + about +
				" trace_id=4bf92f3577b34da6a3ce929d0e0e4736 state=\"vendor=x\"\n" +
				"WARN again" + about + " trace_id=4bf92f3577b34da6a3ce929d0e0e4736 a=1 g.b=2\n",
		},
		"a trace that cannot be continued": {
			cni.Add, []string{"TRACEPARENT=garbage", "TRACESTATE=vendor=x"},
			"WARN hello" + about + " state=\"\"\nWARN again" + about + " a=1 g.b=2\n",
		},
		"no attachment": {
			cni.GC, nil, "WARN hello network=net plugin=files verb=GC state=\"\"\nWARN again network=net plugin=files verb=GC a=1 g.b=2\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, row.verb, "log")
			if row.verb == cni.GC {
				p.Stdin = strings.NewReader(`{"cniVersion":"1.1.0","name":"net","mode":"log","cni.dev/valid-attachments":[]}`)
				p.Env = append(p.Env, "CNI_CONTAINERID=", "CNI_IFNAME=", "CNI_NETNS=")
			}
			p.Env = append(append(p.Env, "CNI_ARGS=K=secret"), row.env...)
			if status := p.run(t); status != 0 {
				t.Fatalf("exit status %d: %s", status, &p.stdout)
			}
			var got strings.Builder
			for line := range strings.Lines(p.stderr.String()) {
				_, text, _ := strings.Cut(line, " WARN ") // after date and time
				got.WriteString("WARN " + text)
			}
			if diff := cmp.Diff(row.want, got.String()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
