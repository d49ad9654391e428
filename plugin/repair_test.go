package plugin_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
)

type repairConf struct {
	plugin.Common
	Color string `json:"color"`
}

type mender struct {
	repair func(*plugin.Call[repairConf]) error
}

func (mender) Add(_ context.Context, c *plugin.Call[repairConf]) (*cni.Result, error) {
	return &cni.Result{}, nil
}
func (mender) Del(context.Context, *plugin.Call[repairConf]) error   { return nil }
func (mender) Check(context.Context, *plugin.Call[repairConf]) error { return nil }

func (mender) Validate(c *plugin.Call[repairConf]) error {
	if c.Conf.Color == "none" {
		return cni.Errorf(cni.CodeInvalidConfig, "no color")
	}
	return nil
}

func (m mender) Repair(_ context.Context, c *plugin.Call[repairConf]) error { return m.repair(c) }

// simple is a mender without Repair.
type simple struct{ plugin.Plugin[repairConf] }

func TestRepair(t *testing.T) {
	t.Parallel()
	env := cni.Env{Command: cni.Check, ContainerID: "c", Netns: "/proc/self/ns/net", IfName: "eth0", Path: "/nowhere"}
	for _, row := range []struct {
		name, request string
		env           func(*cni.Env)
		repair        func(*plugin.Call[repairConf]) error
		code          cni.Code
		msg           string // "" for success
	}{
		{name: "gets the configuration and the result", request: `{"cniVersion":"1.0.0","name":"n","type":"m","color":"red","prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}]}}`},
		{name: "in a version without CHECK", request: `{"cniVersion":"0.3.1","name":"n","type":"m","color":"red","prevResult":{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.1.2.3/24"}]}}`},
		{name: "its error", request: `{"cniVersion":"1.0.0","name":"n","type":"m"}`,
			repair: func(*plugin.Call[repairConf]) error { return cni.Errorf(101, "too late") }, code: 101, msg: "too late"},
		{name: "its panic", request: `{"cniVersion":"1.0.0","name":"n","type":"m"}`,
			repair: func(*plugin.Call[repairConf]) error { panic("oh") }, code: cni.CodeInternal, msg: "panic: oh"},
		{name: "a configuration that has become wrong", request: `{"cniVersion":"1.0.0","name":"n","type":"m","color":"none"}`, code: 7, msg: "no color"},
		{name: "no JSON", request: `{`, code: 6, msg: "network configuration"},
		{name: "no name", request: `{"cniVersion":"1.0.0","type":"m"}`, code: 7, msg: "name"},
		{name: "an unknown version", request: `{"cniVersion":"7.0.0","name":"n","type":"m"}`, code: 1, msg: "7.0.0"},
		{name: "a broken result", request: `{"cniVersion":"1.0.0","name":"n","type":"m","prevResult":7}`, code: 6, msg: "prevResult"},
		{name: "no container", request: `{"cniVersion":"1.0.0","name":"n","type":"m"}`, env: func(e *cni.Env) { e.ContainerID = "" }, code: 4, msg: "CNI_CONTAINERID"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			called := false
			d := plugin.Define[repairConf](plugin.Info{Name: "m"}, mender{func(c *plugin.Call[repairConf]) error {
				called = true
				if row.repair != nil {
					return row.repair(c)
				}
				if c.Conf.Color != "red" || c.Prev == nil || c.Prev.IPs[0].Address.String() != "10.1.2.3/24" {
					return errors.New("not what was asked")
				}
				return nil
			}})
			e := env
			if row.env != nil {
				row.env(&e)
			}
			err := d.Repair(t.Context(), e, []byte(row.request))
			if row.msg == "" && (err != nil || !called) {
				t.Errorf("called: %t, error: %v", called, err)
			}
			if row.msg != "" && (cni.CodeOf(err) != row.code || !strings.Contains(err.Error(), row.msg)) {
				t.Errorf("code %d: %v; want code %d with %q", cni.CodeOf(err), err, row.code, row.msg)
			}
		})
	}
}

// TestRepairIsNoVerb: a runtime cannot have an executable repair.
func TestRepairIsNoVerb(t *testing.T) {
	t.Parallel()
	d := plugin.Define[repairConf](plugin.Info{Name: "m"}, mender{func(*plugin.Call[repairConf]) error {
		t.Error("called")
		return nil
	}})
	env := cni.Env{Command: "REPAIR", ContainerID: "c", Netns: "/proc/self/ns/net", IfName: "eth0", Path: "/nowhere"}
	_, err := d.Serve(t.Context(), env, []byte(`{"cniVersion":"1.1.0","name":"n","type":"m"}`), nil)
	if cni.CodeOf(err) != cni.CodeInvalidEnvironment {
		t.Error(err)
	}
}

// TestNothingToRepair: most plugins keep nothing where others may take it away.
func TestNothingToRepair(t *testing.T) {
	t.Parallel()
	d := plugin.Define[repairConf](plugin.Info{Name: "m"}, simple{mender{}})
	env := cni.Env{ContainerID: "c", Netns: "/proc/self/ns/net", IfName: "eth0", Path: "/nowhere"}
	if err := d.Repair(t.Context(), env, []byte(`{"cniVersion":"1.1.0","name":"n","type":"m"}`)); err != nil {
		t.Error(err)
	}
}
