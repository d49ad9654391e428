package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin/plugintest"
)

// sweep disturbs each request to the database of a verb, one at a time.
type sweep struct {
	*lab
	proxy    *proxy
	verb     cni.Command
	fault    fault
	clean    string // the state without an attachment
	recovery cni.Command
}

// TestDatabaseFaults breaks the connection at each request to the database, before and after the
// server gets it. If the database stays, the plugin connects again and the call succeeds. If not,
// the call fails, and DEL cleans up as soon as the database is back. After a kill, DEL or GC alone
// cleans up.
func TestDatabaseFaults(t *testing.T) {
	t.Parallel()
	for _, verb := range []cni.Command{cni.Add, cni.Check, cni.Del, cni.GC} {
		for _, f := range []fault{cutBefore, cutAfter, goneBefore, goneAfter, killBefore, killAfter} {
			t.Run(fmt.Sprintf("%s/%s", verb, strings.ReplaceAll(f.String(), " ", "-")), func(t *testing.T) {
				t.Parallel()
				l := start(t, impatient(), segment)
				s := &sweep{lab: l, verb: verb, fault: f, recovery: cni.Del}
				s.Exec = f == killBefore || f == killAfter
				s.run()
			})
		}
	}
}

func (s *sweep) run() {
	path, _ := strings.CutPrefix(s.sw.Socket(), "unix:")
	s.proxy = startProxy(s.t, path)
	s.Conf["socket_file"] = s.proxy.socket()
	s.Add("other") // keeps the segment, in every second round
	s.Container("c")
	for n := 0; ; n++ {
		if n%2 == 1 {
			s.Del("other")
		}
		s.clean = s.state()
		hit := s.attempt(n)
		s.unchanged(s.clean, fmt.Sprintf("after %s with request %d %s", s.verb, n, s.fault))
		if n%2 == 1 {
			s.Add("other")
		}
		if !hit {
			s.t.Logf("%d requests", n)
			return
		}
	}
}

// attempt disturbs one request, and cleans up. It reports whether there was such a request.
func (s *sweep) attempt(n int) (hit bool) {
	if s.verb != cni.Add {
		s.Add("c")
	}
	q := s.Request(s.verb, "c")
	if s.verb == cni.GC {
		q = s.collect(n)
	}
	s.proxy.disturb(s.fault, n)
	_, err := s.Do(s.t.Context(), q)
	hit = s.proxy.calm()
	switch survives := s.fault == cutBefore || s.fault == cutAfter || !hit; {
	case survives && err != nil:
		s.t.Fatalf("%s with request %d %s: %v", s.verb, n, s.fault, err)
	case !survives && err == nil && s.verb == cni.Add && s.fault != goneAfter:
		s.t.Fatalf("%s with request %d %s succeeds", s.verb, n, s.fault)
	}
	if s.Exec && n%4 > 1 { // the container's namespace stays, so its interface must end by DEL
		s.Must(s.collect(n))
	}
	s.Del("c")
	return hit
}

// collect returns the GC request that spares the other container, if it is attached in this round.
func (s *sweep) collect(n int) plugintest.Request {
	if n%2 == 0 {
		return s.Collect("other")
	}
	return s.Collect()
}
