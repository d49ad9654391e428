package attach_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
)

const (
	firstNetwork = `"ips":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"},{"address":"fd00::2/64","gateway":"fd00::1"}],
		"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]`
	secondAddresses = `"ips":[{"address":"10.5.0.2/24","gateway":"10.5.0.1"},{"address":"fd05::2/64","gateway":"fd05::1"}],"routes":`
)

// attach adds another interface to the container; members is the result of IPAM for it.
func (b *bench) attach(ifName, members string) (*cni.Result, error) {
	b.t.Helper()
	b.ipam.Caller = invoke.Fake{"pool": give(members)}
	b.conf["name"] = "network-of-" + ifName
	env := b.env(cni.Add)
	env.IfName = ifName
	out, err := b.serve(b.t.Context(), env)
	if err != nil {
		return nil, err
	}
	return cni.DecodeResultStrict(out, 0)
}

// check calls CHECK for an interface with its result.
func (b *bench) check(ifName string, r *cni.Result) error {
	b.t.Helper()
	out, err := r.Encode(cni.V110)
	if err != nil {
		b.t.Fatal(err)
	}
	b.conf["name"], b.conf["prevResult"] = "network-of-"+ifName, json.RawMessage(out)
	env := b.env(cni.Check)
	env.IfName = ifName
	_, err = b.serve(b.t.Context(), env)
	return err
}

// defaults lists the default routes of the container.
func (b *bench) defaults() string {
	var all []string
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(b.inside("ip", "-o", family, "route", "show", "table", "all")) {
			if line = strings.NewReplacer("\\\t", " ", " pref medium", "").Replace(line); strings.HasPrefix(line, "default") {
				all = append(all, strings.Join(strings.Fields(line), " "))
			}
		}
	}
	return strings.Join(all, "; ")
}

// TestSecondDefaultRoute is R-77 and PL-ADD-13: the routes of the second network neither join nor
// replace the routes of the first, and the result contains their metrics.
func TestSecondDefaultRoute(t *testing.T) {
	t.Parallel()
	const first = "default via 10.0.0.1 dev eth0; "
	const first6 = "default via fd00::1 dev eth0 metric 1024"
	for _, row := range []struct{ name, routes, priorities, want string }{
		{"the next metric", `[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]`, "1 1025",
			first + "default via 10.5.0.1 dev eth1 metric 1; " + first6 + "; default via fd05::1 dev eth1 metric 1025"},
		{"with a metric of its own", `[{"dst":"0.0.0.0/0","priority":50},{"dst":"::/0","priority":50}]`, "50 50",
			first + "default via 10.5.0.1 dev eth1 metric 50; default via fd05::1 dev eth1 metric 50; " + first6},
		{"the kernel's metric, stated explicitly", `[{"dst":"::/0","priority":1024}]`, "1025", first + first6 + "; default via fd05::1 dev eth1 metric 1025"},
		{"in another table", `[{"dst":"0.0.0.0/0","table":77}]`, "0", "default via 10.5.0.1 dev eth1 table 77; " + first + first6},
		{"in the main table, stated explicitly", `[{"dst":"0.0.0.0/0","table":254}]`, "1", first + "default via 10.5.0.1 dev eth1 metric 1; " + first6},
		{"two of one network stay together", `[{"dst":"::/0"},{"dst":"::/0","gw":"fd05::9"}]`, "1025 1025",
			first + first6 + "; default metric 1025 nexthop via fd05::1 dev eth1 weight 1 nexthop via fd05::9 dev eth1 weight 1"},
		{"none", `[{"dst":"192.168.0.0/16"}]`, "0", first + first6},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, pair{}, verbs{})
			before := b.state()
			eth0, err := b.attach("eth0", firstNetwork)
			if err != nil {
				t.Fatal(err)
			}
			eth1, err := b.attach("eth1", secondAddresses+row.routes)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, b.defaults()); diff != "" {
				t.Error(diff)
			}
			var priorities []string
			for _, rt := range eth1.Routes {
				priorities = append(priorities, strconv.Itoa(rt.Priority))
			}
			if got := strings.Join(priorities, " "); got != row.priorities {
				t.Errorf("priorities %s, want %s", got, row.priorities)
			}
			for ifName, r := range map[string]*cni.Result{"eth0": eth0, "eth1": eth1} {
				if err := b.check(ifName, r); err != nil {
					t.Errorf("CHECK of %s: %v", ifName, err)
				}
			}
			for _, ifName := range []string{"eth0", "eth1"} {
				b.conf["name"] = "network-of-" + ifName
				env := b.env(cni.Del)
				env.IfName = ifName
				if _, err := b.serve(t.Context(), env); err != nil {
					t.Errorf("DEL of %s: %v", ifName, err)
				}
			}
			b.unchanged(before)
		})
	}
}

func TestThirdDefaultRoute(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, verbs{})
	for ifName, members := range map[string]string{
		"eth0": `"ips":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"}],"routes":[{"dst":"0.0.0.0/0"}]`,
		"eth1": `"ips":[{"address":"10.5.0.2/24","gateway":"10.5.0.1"}],"routes":[{"dst":"0.0.0.0/0"}]`,
		"eth2": `"ips":[{"address":"10.6.0.2/24","gateway":"10.6.0.1"}],"routes":[{"dst":"0.0.0.0/0"}]`,
	} {
		if _, err := b.attach(ifName, members); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.defaults(); strings.Count(got, "default") != 3 || !strings.Contains(got, "metric 1;") || !strings.HasSuffix(got, "metric 2") {
		t.Error(got)
	}
}

// TestSecondDefaultRouteRefused: R-77 with the policy "refuse".
func TestSecondDefaultRouteRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, verbs{})
	b.conf["secondDefaultRoute"] = "refuse"
	if _, err := b.attach("eth0", firstNetwork); err != nil {
		t.Fatal(err)
	}
	before := b.state()
	_, err := b.attach("eth1", secondAddresses+`[{"dst":"::/0"}]`)
	wantError(t, err, cni.CodeInvalidConfig, "eth1", "eth0", "fd00::1", "metric 1024")
	b.unchanged(before)
	if b.asked() != "ADD ADD DEL" {
		t.Errorf("IPAM was asked to %s", b.asked())
	}
	if _, err := b.attach("eth1", secondAddresses+`[{"dst":"::/0","priority":5}]`); err != nil {
		t.Error(err)
	}
}

// TestCheckOfSecondDefaultRoute: the default route of another network does not count for CHECK.
func TestCheckOfSecondDefaultRoute(t *testing.T) {
	t.Parallel()
	b := newBench(t, pair{}, verbs{})
	eth0, err := b.attach("eth0", firstNetwork)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.attach("eth1", secondAddresses+`[{"dst":"0.0.0.0/0"}]`); err != nil {
		t.Fatal(err)
	}
	b.inside("ip", "route", "delete", "default", "dev", "eth0")
	wantError(t, b.check("eth0", eth0), cni.CodeInternal, "eth0", "0.0.0.0/0", "found []")
}
