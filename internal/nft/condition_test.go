package nft_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/nft"
)

// TestConditions compares the rules that nft(8) lists with the conditions.
func TestConditions(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		family    nft.Family
		condition string
		want      []string // without the rest of the rule
	}{
		{nft.IPv4, "ip saddr 10.1.2.3", []string{"ip saddr 10.1.2.3"}},
		{nft.IPv4, "ip saddr != 10.1.2.3 ip daddr == 192.0.2.1",
			[]string{"ip saddr != 10.1.2.3 ip daddr 192.0.2.1"}},
		{nft.IPv4, "ip daddr 10.0.0.0/8", []string{"ip daddr 10.0.0.0-10.255.255.255"}},
		{nft.IPv4, "ip daddr 10.0.0.5-10.0.0.9", []string{"ip daddr 10.0.0.5-10.0.0.9"}},
		{nft.IPv4, "ip saddr { 10.0.0.1, 10.0.0.2 } tcp dport { 80,443 }", []string{
			"ip saddr 10.0.0.1 tcp dport 80", "ip saddr 10.0.0.1 tcp dport 443",
			"ip saddr 10.0.0.2 tcp dport 80", "ip saddr 10.0.0.2 tcp dport 443",
		}},
		{nft.IPv4, "ip saddr!={10.0.0.1,10.0.0.2}",
			[]string{"ip saddr != 10.0.0.1 ip saddr != 10.0.0.2"}},
		{nft.IPv6, "ip6 saddr 2001:db8::/32 ip6 daddr != 2001:db8::1",
			[]string{"ip6 saddr 2001:db8::-2001:db8:ffff:ffff:ffff:ffff:ffff:ffff ip6 daddr != 2001:db8::1"}},
		{nft.IPv4, `iifname "eth0"`, []string{`iifname "eth0"`}},
		{nft.IPv4, `meta iifname != docker*`, []string{`iifname != "docker*"`}},
		{nft.IPv4, `oifname lo`, []string{`oifname "lo"`}},
		{nft.IPv4, "udp sport 1000-2000", []string{"udp sport 1000-2000"}},
		{nft.IPv4, "sctp dport != 5", []string{"sctp dport != 5"}},
		{nft.IPv4, "meta l4proto tcp th dport 80", []string{"tcp dport 80"}},
		{nft.IPv4, "mark 0x10", []string{"meta mark 0x00000010"}},
		{nft.IPv4, "meta mark != 1-3", []string{"meta mark != 0x00000001-0x00000003"}},
	} {
		t.Run(row.condition, func(t *testing.T) {
			t.Parallel()
			ns, c := setup(t)
			for _, words := range [][]string{{row.condition}, strings.Fields(row.condition)} {
				when, err := nft.ParseCondition(row.family, words)
				must(t, err)
				p := nft.Publication{When4: when,
					Mappings: []nft.Mapping{mapping(tcp, "", 80, 80, "10.0.0.1:80")}}
				if row.family == nft.IPv6 {
					p = nft.Publication{When6: when,
						Mappings: []nft.Mapping{mapping(tcp, "", 80, 80, "[fd00::1]:80")}}
				}
				entries, err := nft.Publish("a", p)
				must(t, err)
				_, err = c.Apply(t.Context(), nft.Request{Owner: "a", Elements: entries})
				must(t, err)
				var got []string
				out := ns.Command("nft", "list", "table", "inet", "tenon")
				for line := range strings.Lines(out) {
					line = strings.TrimSpace(line)
					if rule, ok := strings.CutSuffix(line, " goto hostports_dnat"); ok {
						rule = strings.TrimPrefix(rule, "meta nfproto ipv4 ")
						got = append(got, rule)
					}
				}
				if diff := cmp.Diff(row.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestConditionsRefused checks that the error names the part that cannot be parsed.
func TestConditionsRefused(t *testing.T) {
	t.Parallel()
	for condition, named := range map[string]string{
		"ip6 saddr fd00::1":               "ip6",
		"ip protocol tcp":                 "ip protocol",
		"ip saddr":                        "end",
		"ip saddr fd00::1":                "fd00::1",
		"ip saddr 10.0.0.0/33":            "10.0.0.0/33",
		"ip saddr 10.0.0.9-10.0.0.1":      "10.0.0.9-10.0.0.1",
		"ip saddr { 10.0.0.1":             "{",
		"ip saddr { }":                    "}",
		"ip saddr { 10.0.0.1 10.0.0.2 }":  "10.0.0.2",
		"tcp dport 65536":                 "65536",
		"tcp dport http":                  "http",
		"tcp flags syn":                   "tcp flags",
		"ct state new":                    "ct",
		"meta skuid 0":                    "meta skuid",
		"iifname a-name-that-is-too-long": "a-name-that-is-too-long",
		"mark x":                          "x",
		"accept":                          "accept",
		"ip saddr 10.0.0.1 drop":          "drop",
		"ip saddr != != 1.1.1.1":          "!=",
		"meta l4proto icmp":               "icmp",
	} {
		_, err := nft.ParseCondition(nft.IPv4, strings.Fields(condition))
		if err == nil || named != "end" && !strings.Contains(err.Error(), `"`+named+`"`) {
			t.Errorf("%s: %v, want an error that names %q", condition, err, named)
		}
	}
	many := "tcp dport { 1" + strings.Repeat(", 2", 40) + " }"
	if _, err := nft.ParseCondition(nft.IPv4, []string{many, many}); err == nil {
		t.Error("1681 rules accepted")
	}
}

func FuzzCondition(f *testing.F) {
	f.Add("ip saddr != { 10.0.0.0/8, 192.0.2.1-192.0.2.9 } tcp dport 80 iifname eth*")
	f.Add("meta mark 0x1-7 th sport != 5")
	f.Add("ip6 daddr ::1")
	f.Fuzz(func(t *testing.T, condition string) {
		for _, family := range []nft.Family{nft.IPv4, nft.IPv6} {
			_, err := nft.ParseCondition(family, []string{condition})
			if _, again := nft.ParseCondition(family,
				strings.Fields(condition)); (err == nil) != (again == nil) {
				t.Errorf("%q: %v, in words %v", condition, err, again)
			}
		}
	})
}
