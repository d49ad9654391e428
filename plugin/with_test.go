package plugin_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
)

type mender struct {
	plugin.Common
	Color string `json:"color"`
}

func (*mender) Add(context.Context, *plugin.Call) (*cni.Result, error) { return &cni.Result{}, nil }
func (*mender) Del(context.Context, *plugin.Call) error                { return nil }
func (*mender) Check(context.Context, *plugin.Call) error              { return nil }

func (m *mender) Validate(*plugin.Call) error {
	if m.Color == "none" {
		return cni.Errorf(cni.CodeInvalidConfig, "no color")
	}
	return nil
}

// TestWith checks that the function gets the call that CHECK would get.
func TestWith(t *testing.T) {
	t.Parallel()
	env := cni.Env{Command: cni.Check, ContainerID: "c", Netns: "/proc/self/ns/net", IfName: "eth0",
		Path: "/nowhere"}
	for _, row := range []struct {
		name, request string
		env           func(*cni.Env)
		use           func() error
		code          cni.Code
		msg           string // "" for success
	}{
		{name: "gets the configuration and the result",
			request: `{"cniVersion":"1.0.0","name":"n","type":"m","color":"red","prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}]}}`},
		{name: "in a version without CHECK",
			request: `{"cniVersion":"0.3.1","name":"n","type":"m","color":"red","prevResult":{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.1.2.3/24"}]}}`},
		{name: "its error", request: `{"cniVersion":"1.0.0","name":"n","type":"m"}`,
			use: func() error { return cni.Errorf(101, "too late") }, code: 101, msg: "too late"},
		{name: "its panic", request: `{"cniVersion":"1.0.0","name":"n","type":"m"}`,
			use: func() error { panic("oh") }, code: cni.CodeInternal, msg: "panic: oh"},
		{name: "a configuration that has become wrong",
			request: `{"cniVersion":"1.0.0","name":"n","type":"m","color":"none"}`, code: 7,
			msg: "no color"},
		{name: "no JSON", request: `{`, code: 6, msg: "network configuration"},
		{name: "no name", request: `{"cniVersion":"1.0.0","type":"m"}`, code: 7, msg: "name"},
		{name: "an unknown version", request: `{"cniVersion":"7.0.0","name":"n","type":"m"}`,
			code: 1, msg: "7.0.0"},
		{name: "a broken result",
			request: `{"cniVersion":"1.0.0","name":"n","type":"m","prevResult":7}`, code: 6,
			msg: "prevResult"},
		{name: "no container", request: `{"cniVersion":"1.0.0","name":"n","type":"m"}`,
			env: func(e *cni.Env) { e.ContainerID = "" }, code: 4, msg: "CNI_CONTAINERID"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			called := false
			d := plugin.Define(plugin.Info{Name: "m"}, func() plugin.Plugin { return new(mender) })
			e := env
			if row.env != nil {
				row.env(&e)
			}
			err := d.With(t.Context(), e, []byte(row.request),
				func(c *plugin.Call, p plugin.Plugin) error {
					called = true
					if row.use != nil {
						return row.use()
					}
					if p.(*mender).Color != "red" || c.Prev == nil ||
						c.Prev.IPs[0].Address.String() != "10.1.2.3/24" {
						return errors.New("wrong configuration or result")
					}
					return nil
				})
			if row.msg == "" && (err != nil || !called) {
				t.Errorf("called: %t, error: %v", called, err)
			}
			if row.msg != "" && (cni.CodeOf(err) != row.code ||
				!strings.Contains(err.Error(), row.msg)) {
				t.Errorf("code %d: %v; want code %d with %q", cni.CodeOf(err), err, row.code,
					row.msg)
			}
		})
	}
}

// TestRepairIsNoVerb checks that a runtime cannot make a plugin binary repair.
func TestRepairIsNoVerb(t *testing.T) {
	t.Parallel()
	d := plugin.Define(plugin.Info{Name: "m"}, func() plugin.Plugin { return new(mender) })
	env := cni.Env{Command: "REPAIR", ContainerID: "c", Netns: "/proc/self/ns/net", IfName: "eth0",
		Path: "/nowhere"}
	_, err := d.Serve(t.Context(), env, []byte(`{"cniVersion":"1.1.0","name":"n","type":"m"}`), nil)
	if cni.CodeOf(err) != cni.CodeInvalidEnvironment {
		t.Error(err)
	}
}

// TestWatched checks that only calls of the watched definition have the function.
func TestWatched(t *testing.T) {
	t.Parallel()
	var ops []string
	d := plugin.Define(plugin.Info{Name: "m"}, func() plugin.Plugin { return new(mender) })
	watched := d.Watched(func(op string) error {
		ops = append(ops, op)
		return errors.New("fault")
	})
	env := cni.Env{Command: cni.Check, ContainerID: "c", Netns: "/proc/self/ns/net", IfName: "eth0",
		Path: "/nowhere"}
	request := []byte(`{"cniVersion":"1.0.0","name":"n","type":"m"}`)
	err := watched.With(t.Context(), env, request,
		func(c *plugin.Call, _ plugin.Plugin) error { return c.Watch("up") })
	if err == nil || err.Error() != "fault" || len(ops) != 1 || ops[0] != "up" {
		t.Errorf("watched: error %v, operations %q", err, ops)
	}
	err = d.With(t.Context(), env, request, func(c *plugin.Call, _ plugin.Plugin) error {
		if c.Watch != nil {
			return errors.New("is watched")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
