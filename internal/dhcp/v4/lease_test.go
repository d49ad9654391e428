package v4_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/dhcp/v4"
)

// got returns the lease that a client gets with the given options.
func got(t *testing.T, s *server) v4.Lease {
	t.Helper()
	c := newSim(s, v4.Params{}).start(nil)
	if c.m.Held == nil {
		t.Fatalf("no lease: %s\n%s", c.m.Refused, &c.log)
	}
	return *c.m.Held
}

func TestLeaseTimes(t *testing.T) {
	t.Parallel()
	const ever = 1<<32 - 1
	for _, row := range []struct {
		name                       string
		lease, renew, rebind       uint32 // options 51, 58, 59
		wantRenew, wantRe, wantEnd time.Duration
	}{
		{"nothing is said", 0, 0, 0, 30 * time.Minute, 51 * time.Minute, time.Hour},
		{"only the end", 120, 0, 0, 60 * time.Second, 102 * time.Second, 120 * time.Second},
		{"all times", 1000, 100, 900, 100 * time.Second, 900 * time.Second, 1000 * time.Second},
		{"T1 and no T2", 1000, 600, 0, 600 * time.Second, 850 * time.Second, 1000 * time.Second},
		{"T2 before the half", 1000, 0, 400, 400 * time.Second, 400 * time.Second,
			1000 * time.Second},
		{"T1 after T2", 1000, 900, 800, 500 * time.Second, 800 * time.Second, 1000 * time.Second},
		{"T2 after the end", 1000, 100, 2000, 100 * time.Second, 850 * time.Second,
			1000 * time.Second},
		{"T1 and T2 never", 1000, ever, ever, 500 * time.Second, 850 * time.Second,
			1000 * time.Second},
		{"one second", 1, 0, 0, 500 * time.Millisecond, 850 * time.Millisecond, time.Second},
		{"the longest that ends", ever - 1, 0, 0, (ever - 1) * time.Second / 2,
			(ever - 1) * time.Second / 20 * 17, (ever - 1) * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := newServer()
			s.time = row.lease
			for code, n := range map[byte]uint32{v4.OptRenewalTime: row.renew,
				v4.OptRebindingTime: row.rebind} {
				if n > 0 {
					s.options = append(s.options, v4.Option{Code: code, Value: seconds(n)})
				}
			}
			l := got(t, s)
			if !l.Renew.Equal(dawn.Add(row.wantRenew)) || !l.Rebind.Equal(dawn.Add(row.wantRe)) ||
				!l.Expires.Equal(dawn.Add(row.wantEnd)) {
				t.Errorf("renew %v, rebind %v, expires %v", l.Renew.Sub(dawn), l.Rebind.Sub(dawn),
					l.Expires.Sub(dawn))
			}
		})
	}
	t.Run("infinite", func(t *testing.T) {
		t.Parallel()
		s := newServer()
		s.time = ever
		c := newSim(s, v4.Params{Total: time.Minute}).start(nil).run(time.Hour)
		c.expect(t, "0s DHCPDISCOVER\n0s DHCPREQUEST 50:10.0.0.7 54:10.0.0.1\n0s bind 10.0.0.7/24\n")
		if l := c.m.Held; !l.Renew.IsZero() || !l.Expires.IsZero() || !c.wake.IsZero() ||
			l.Expired(dawn.AddDate(500, 0, 0)) {
			t.Errorf("%+v, wakes %v", l, c.wake)
		}
	})
}

func TestLeaseOptions(t *testing.T) {
	t.Parallel()
	opt := func(code byte, value ...byte) v4.Option { return v4.Option{Code: code, Value: value} }
	for _, row := range []struct {
		name    string
		options []v4.Option
		want    string
	}{
		{"none", nil, "[] []"},
		{"routers", []v4.Option{opt(v4.OptRouter, ip("10.0.0.1", "10.0.0.2")...)},
			"[10.0.0.1 10.0.0.2] []"},
		{"invalid routers", []v4.Option{opt(v4.OptRouter,
			ip("0.0.0.0", "10.0.0.7", "10.0.1.1", "224.0.0.1", "10.0.0.2")...)}, "[10.0.0.2] []"},
		{"half an address", []v4.Option{opt(v4.OptRouter, 10, 0, 0, 1, 10, 0)}, "[10.0.0.1] []"},
		{"classful routes", []v4.Option{opt(v4.OptStaticRoutes,
			ip("10.0.0.0", "10.1.2.3", "172.16.9.9", "10.0.0.3", "192.168.1.0", "192.168.2.3")...)},
			"[] [{10.0.0.0/8 10.1.2.3} {172.16.0.0/16 10.0.0.3} {192.168.1.0/24 192.168.2.3}]"},
		{"invalid classful routes", []v4.Option{opt(v4.OptStaticRoutes,
			ip("0.0.0.0", "10.0.0.1", "224.0.0.1", "10.0.0.1", "255.255.255.255", "10.0.0.1",
				"127.0.0.0", "10.0.0.1", "11.0.0.0", "224.0.0.1")...)}, "[] []"},
		{"R-63: classless routes, one on the link", []v4.Option{opt(v4.OptClasslessRoute,
			append([]byte{16, 10, 50}, append(ip("10.0.0.254"), 22, 10, 60, 4, 0, 0, 0, 0)...)...)},
			"[] [{10.50.0.0/16 10.0.0.254} {10.60.4.0/22 0.0.0.0}] classless"},
		{"classless routes take precedence over classful ones", []v4.Option{opt(v4.OptStaticRoutes,
			ip("10.0.0.0", "10.1.2.3")...), opt(v4.OptRouter, ip("10.9.9.9")...),
			opt(v4.OptClasslessRoute, 0, 10, 0, 0, 1)},
			"[10.9.9.9] [{0.0.0.0/0 10.0.0.1}] classless"},
		{"bits beyond the length", []v4.Option{opt(v4.OptClasslessRoute, 9, 10, 0xff, 10, 0, 0, 1)},
			"[] [{10.128.0.0/9 10.0.0.1}] classless"},
		{"prefix lengths below 8", []v4.Option{opt(v4.OptClasslessRoute, 1, 0, 10, 0, 0, 1, 1, 128,
			10, 0, 0, 1, 5, 0, 10, 0, 0, 1)},
			"[] [{0.0.0.0/1 10.0.0.1} {128.0.0.0/1 10.0.0.1} {0.0.0.0/5 10.0.0.1}] classless"},
		{"invalid classless routes", []v4.Option{opt(v4.OptClasslessRoute, 8, 127, 10, 0, 0, 1, 8,
			224, 10, 0, 0, 1, 8, 0, 10, 0, 0, 1, 8, 11, 255, 255, 255, 255)}, "[] []"},
		{"a classless route that is too long",
			[]v4.Option{opt(v4.OptClasslessRoute, 33, 10, 0, 0, 0, 0, 10, 0, 0, 1)}, "[] []"},
		{"a classless route that is cut off",
			[]v4.Option{opt(v4.OptClasslessRoute, 8, 10, 10, 0, 0, 1, 8, 11, 10, 0, 0)}, "[] []"},
		{"MTU", []v4.Option{opt(v4.OptMTU, 1450>>8, 1450&0xff)}, "[] [] mtu 1450"},
		{"an MTU below the minimum", []v4.Option{opt(v4.OptMTU, 0, 67)}, "[] []"},
		{"an MTU of another size", []v4.Option{opt(v4.OptMTU, 1, 2, 3)}, "[] []"},
		{"names", []v4.Option{opt(v4.OptDNS, ip("10.0.0.1", "0.0.0.0")...), opt(v4.OptDomainName,
			[]byte("lab.example\x00")...), opt(v4.OptSearch, []byte("\x01a\x00\x01b\xc0\x00")...)},
			"[] [] [10.0.0.1] lab.example [a b.a]"},
		{"a name that writes to the file of the resolver", []v4.Option{opt(v4.OptDomainName,
			[]byte("a\nnameserver 6.6.6.6\xff")...)}, "[] [] [] a?nameserver 6.6.6.6? []"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := newServer()
			s.options = row.options
			l := got(t, s)
			text := fmt.Sprint(l.Routers, l.Routes)
			if l.Classless {
				text += " classless"
			}
			if l.MTU > 0 {
				text += fmt.Sprintf(" mtu %d", l.MTU)
			}
			if names := fmt.Sprint(l.DNS, l.Domain, l.Search); names != "[][]" &&
				names != "[]  []" && names != "[] []" {
				text += fmt.Sprintf(" %v %s %v", l.DNS, l.Domain, l.Search)
			}
			if text != row.want {
				t.Errorf("got  %s\nwant %s", text, row.want)
			}
			saved(t, l)
		})
	}
}

// saved checks that a lease does not change when it is saved and read, including its times.
func saved(t *testing.T, l v4.Lease) {
	t.Helper()
	b, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	var back v4.Lease
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if again, _ := json.Marshal(back); string(again) != string(b) || !l.Same(back) ||
		l.Server != back.Server ||
		!l.Expires.Equal(back.Expires) || !l.Renew.Equal(back.Renew) ||
		!l.Rebind.Equal(back.Rebind) {
		t.Errorf("saved  %+v\nread   %+v\nas     %s", l, back, b)
	}
}

func TestLeaseJSON(t *testing.T) {
	t.Parallel()
	saved(t, v4.Lease{})
	l := *earlier()
	b, err := json.Marshal(l)
	want := `{"address":"10.0.0.7/24","server":"10.0.0.1","renew":"2026-01-01T00:00:00Z","rebind":"2026-01-01T00:20:00Z","expires":"2026-01-01T00:30:00Z"}`
	if string(b) != want || err != nil {
		t.Errorf("%v, got\n%s\nwant\n%s", err, b, want)
	}
}

// Same must compare each field except the server and the times.
func TestSame(t *testing.T) {
	t.Parallel()
	full := newServer()
	full.options = []v4.Option{{Code: v4.OptRouter, Value: ip("10.0.0.1")},
		{Code: v4.OptMTU, Value: []byte{5, 0}}, {Code: v4.OptDNS, Value: ip("10.0.0.1")},
		{Code: v4.OptDomainName, Value: []byte("a")},
		{Code: v4.OptSearch, Value: []byte("\x01a\x00")},
		{Code: v4.OptClasslessRoute, Value: []byte{0, 10, 0, 0, 1}}}
	l := got(t, full)
	for i := range reflect.TypeOf(l).NumField() {
		changed := l
		v := reflect.ValueOf(&changed).Elem()
		if v.Field(i).IsZero() {
			t.Fatalf("%s has no value", v.Type().Field(i).Name)
		}
		v.Field(i).SetZero()
		name := v.Type().Field(i).Name
		if want := strings.Contains("Server Expires Renew Rebind", name); l.Same(changed) != want {
			t.Errorf("without %s: %v", name, !want)
		}
	}
}
