package v6_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/tenon-cni/tenon/internal/dhcp/v6"
)

// saved checks that a lease does not change when it is saved and read, including its times.
func saved(t *testing.T, l v6.Lease) {
	t.Helper()
	b, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	var back v6.Lease
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if again, _ := json.Marshal(back); string(again) != string(b) || !l.Same(back) ||
		l.Server.String() != back.Server.String() ||
		!l.Renew.Equal(back.Renew) || !l.Rebind.Equal(back.Rebind) {
		t.Errorf("saved  %+v\nread   %+v\nas     %s", l, back, b)
	}
}

func TestLeaseJSON(t *testing.T) {
	t.Parallel()
	saved(t, v6.Lease{})
	saved(t, *earlier())
	b, err := json.Marshal(earlier())
	want := `{"addresses":[{"addr":"2001:db8::7","preferred":"2026-01-01T00:16:40Z","valid":"2026-01-01T00:33:20Z"}],"server":"736572766572",` +
		`"renew":"2026-01-01T00:08:20Z","rebind":"2026-01-01T00:13:20Z"}`
	if string(b) != want || err != nil {
		t.Errorf("%v, got\n%s\nwant\n%s", err, b, want)
	}
	var l v6.Lease
	if err := json.Unmarshal([]byte(`{"server":"xy"}`), &l); err == nil ||
		!strings.Contains(err.Error(), `DUID "xy"`) {
		t.Errorf("got %v", err)
	}
}

// Same must compare each field except the server and the times.
func TestSame(t *testing.T) {
	t.Parallel()
	l := *earlier()
	l.DNS, l.Search = []netip.Addr{netip.MustParseAddr("2001:db8::53")}, []string{"a"}
	for i := range reflect.TypeOf(l).NumField() {
		changed := l
		v := reflect.ValueOf(&changed).Elem()
		v.Field(i).SetZero()
		name := v.Type().Field(i).Name
		if want := strings.Contains("Server Renew Rebind", name); l.Same(changed) != want {
			t.Errorf("without %s: %v", name, !want)
		}
	}
}

func TestLeaseOptions(t *testing.T) {
	t.Parallel()
	s := newSim(newServer(), v6.Params{})
	s.alter = func(r *v6.Message) {
		var dns []byte
		for _, a := range []string{"2001:db8::53", "::", "ff02::1", "fe80::53"} {
			dns = append(dns, netip.MustParseAddr(a).AsSlice()...)
		}
		set(r, dhcpv6.OptionDNSRecursiveNameServer, append(dns, 1, 2))
		set(r, dhcpv6.OptionDomainSearchList, []byte("\x01a\x00\x01b\x01c\x00"))
	}
	s.start(nil).run(2 * time.Second)
	l := s.m.Held
	if l == nil || len(l.DNS) != 2 || l.DNS[1].String() != "fe80::53" ||
		strings.Join(l.Search, " ") != "a b.c" {
		t.Fatalf("got %+v", l)
	}
	if a := l.Addresses[0]; !a.Preferred.Equal(l.Renew.Add(500*time.Second)) ||
		!a.Valid.Equal(l.Renew.Add(1500*time.Second)) || l.Server.String() != "736572766572" {
		t.Errorf("got %+v", l)
	}
}

func TestDUID(t *testing.T) {
	t.Parallel()
	if got, want := v6.UUID([16]byte{15: 7}).String(),
		"0004"+"00000000000000000000000000000007"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
