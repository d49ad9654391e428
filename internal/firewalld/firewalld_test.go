package firewalld_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/tenon-cni/tenon/internal/firewalld"
)

// reply is the answer of a bus to one method: a body, or an exception with a name and the body.
type reply struct {
	exception string
	body      []any
	silent    bool
}

// text is an exception that firewalld returns.
func text(s string) reply {
	return reply{exception: "org.fedoraproject.FirewallD1.Exception", body: []any{s}}
}

// serve listens as the system bus and answers calls by the name of their method.
func serve(t *testing.T, answers map[string]reply) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bus")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+path)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				answer(conn, answers)
			}()
		}
	}()
}

func answer(conn net.Conn, answers map[string]reply) {
	in := bufio.NewReader(conn)
	for begun := false; !begun; {
		line, err := in.ReadString('\n')
		switch {
		case err != nil:
			return
		case strings.HasPrefix(line, "\x00AUTH\r"):
			io.WriteString(conn, "REJECTED EXTERNAL\r\n")
		case strings.HasPrefix(line, "AUTH EXTERNAL"):
			io.WriteString(conn, "OK 0123456789abcdef0123456789abcdef\r\n")
		case strings.HasPrefix(line, "NEGOTIATE_UNIX_FD"):
			io.WriteString(conn, "ERROR\r\n")
		default:
			begun = strings.HasPrefix(line, "BEGIN")
		}
	}
	for {
		call, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		member, _ := call.Headers[dbus.FieldMember].Value().(string)
		r, known := answers[member]
		if member == "Hello" && !known {
			r, known = reply{body: []any{":1.1"}}, true
		}
		if member == "Ping" && !known {
			r, known = reply{}, true
		}
		if !known || r.silent {
			continue
		}
		m := &dbus.Message{Type: dbus.TypeMethodReply, Body: r.body,
			Headers: map[dbus.HeaderField]dbus.Variant{
				dbus.FieldReplySerial: dbus.MakeVariant(call.Serial()),
			}}
		if len(r.body) > 0 {
			m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(r.body...))
		}
		if r.exception != "" {
			m.Type = dbus.TypeError
			m.Headers[dbus.FieldErrorName] = dbus.MakeVariant(r.exception)
		}
		if err := m.EncodeTo(conn, binary.LittleEndian); err != nil {
			return
		}
	}
}

func open(t *testing.T) *firewalld.Conn {
	t.Helper()
	c, err := firewalld.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

var address = netip.MustParseAddr("10.9.0.2")

func TestRunning(t *testing.T) {
	for _, row := range []struct {
		name  string
		reply reply
		want  bool
		err   string
	}{
		{"the name has an owner", reply{body: []any{":1.7"}}, true, ""},
		{"the name has no owner", reply{exception: "org.freedesktop.DBus.Error.NameHasNoOwner",
			body: []any{"no"}}, false, ""},
		{"another exception is an error",
			reply{exception: "org.freedesktop.DBus.Error.AccessDenied",
				body: []any{"denied"}}, false,
			"system bus: denied"},
		{"an exception without text is reported by its name",
			reply{exception: "org.freedesktop.DBus.Error.Failed"}, false,
			"system bus: org.freedesktop.DBus.Error.Failed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			serve(t, map[string]reply{"GetNameOwner": row.reply})
			got, err := open(t).Running(t.Context())
			if got != row.want || errorText(err) != row.err {
				t.Errorf("got %v, %v; want %v, %q", got, err, row.want, row.err)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestAddSource(t *testing.T) {
	for _, row := range []struct {
		name  string
		reply reply
		added bool
		err   string
	}{
		{"added", reply{body: []any{"trusted"}}, true, ""},
		{"the zone had it", text("ZONE_ALREADY_SET: 10.9.0.2/32"), false, ""},
		{"only the first line of an exception is reported",
			text("INVALID_ZONE: x\nadd table inet firewalld"), false,
			`firewalld: addSource 10.9.0.2/32 in zone "trusted": INVALID_ZONE: x`},
	} {
		t.Run(row.name, func(t *testing.T) {
			serve(t, map[string]reply{"addSource": row.reply})
			added, err := open(t).AddSource(t.Context(), "trusted", address)
			if added != row.added || errorText(err) != row.err {
				t.Errorf("got %v, %v; want %v, %q", added, err, row.added, row.err)
			}
		})
	}
}

func TestRemoveSource(t *testing.T) {
	failed := text("COMMAND_FAILED: nft")
	for _, row := range []struct {
		name          string
		remove, query reply
		refused       bool
		err           string
	}{
		{"removed", reply{body: []any{"trusted"}}, reply{}, false, ""},
		{"it was not there", text("UNKNOWN_SOURCE: 10.9.0.2/32"), reply{}, false, ""},
		{"refused and still there", failed, reply{body: []any{true}}, true,
			`not removed: firewalld: removeSource 10.9.0.2/32 in zone "trusted": COMMAND_FAILED: nft`},
		{"refused but gone", failed, reply{body: []any{false}}, false, ""},
		{"the zone does not exist", text("INVALID_ZONE: trusted"), text("INVALID_ZONE: trusted"),
			false, ""},
		{"an exception of the bus is not an answer",
			reply{exception: "org.freedesktop.DBus.Error.NoReply", body: []any{"no reply"}},
			reply{}, false, `firewalld: removeSource 10.9.0.2/32 in zone "trusted": no reply`},
	} {
		t.Run(row.name, func(t *testing.T) {
			serve(t, map[string]reply{"removeSource": row.remove, "querySource": row.query})
			err := open(t).RemoveSource(t.Context(), "trusted", address)
			if errors.Is(err, firewalld.ErrRefused) != row.refused || errorText(err) != row.err {
				t.Errorf("got %v; want %q, refused %v", err, row.err, row.refused)
			}
		})
	}
}

// TestHasSourceMalformed: an answer of another type is not a source.
func TestHasSourceMalformed(t *testing.T) {
	for _, body := range [][]any{nil, {"yes"}, {uint32(1)}} {
		serve(t, map[string]reply{"querySource": {body: body}})
		if has, err := open(t).HasSource(t.Context(), "trusted", address); has || err != nil {
			t.Errorf("%v: got %v, %v", body, has, err)
		}
	}
}

// TestSilence: each step that a bus does not answer ends with the context, reports its cause, and
// leaves no goroutine.
func TestSilence(t *testing.T) {
	before := runtime.NumGoroutine()
	cause := errors.New("out of time")
	for name, answers := range map[string]map[string]reply{
		"greeting": {"Hello": {silent: true}},
		"call":     {"GetNameOwner": {silent: true}, "addSource": {silent: true}},
	} {
		t.Run(name, func(t *testing.T) {
			serve(t, answers)
			ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, cause)
			defer cancel()
			c, err := firewalld.Open(ctx)
			if err == nil {
				_, err = c.AddSource(ctx, "trusted", address)
				if _, running := c.Running(ctx); !errors.Is(running, cause) {
					t.Errorf("Running: %v", running)
				}
				c.Close()
			}
			if !errors.Is(err, cause) {
				t.Errorf("got %v", err)
			}
		})
	}
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("goroutines are left:\n%s", stacks[:runtime.Stack(stacks, true)])
		}
	}
}

func TestNoBus(t *testing.T) {
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+filepath.Join(t.TempDir(), "missing"))
	if _, err := firewalld.Open(t.Context()); !strings.HasPrefix(errorText(err),
		"system bus: dial unix ") {
		t.Errorf("got %v", err)
	}
}

func TestZones(t *testing.T) {
	zones := map[string]map[string][]string{
		"public":  {"interfaces": {"eth0"}},
		"trusted": {"sources": {"10.88.0.0/16"}},
	}
	serve(t, map[string]reply{
		"getActiveZones": {body: []any{zones}}, "getDefaultZone": {body: []any{"public"}},
	})
	got, standard, err := open(t).Zones(t.Context())
	want := map[string]firewalld.Zone{
		"public": {Interfaces: []string{"eth0"}}, "trusted": {Sources: []string{"10.88.0.0/16"}},
	}
	if err != nil || standard != "public" || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %s, %v", got, standard, err)
	}
}

func TestZonesOfAnotherProgram(t *testing.T) {
	serve(t, map[string]reply{"getActiveZones": {body: []any{"none"}}})
	if _, _, err := open(t).Zones(t.Context()); err == nil {
		t.Error("a text instead of zones is no error")
	}
}
