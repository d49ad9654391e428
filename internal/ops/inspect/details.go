package inspect

import (
	"context"
	"encoding/json"
	"net/netip"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/journal"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/ops/logs"
)

// Details describes one attachment as it is recorded and as the kernel has it.
type Details struct {
	Network   string    `json:"network"`
	Container string    `json:"containerID"`
	IfName    string    `json:"ifname"`
	ID        cni.Owner `json:"attachment"` // in logs, link aliases and rules
	Netns     string    `json:"netns"`
	State     State     `json:"state"`
	Runtime   string    `json:"runtime"`
	Source    string    `json:"source,omitempty"` // file of libcni
	StateDir  string    `json:"stateDir,omitempty"`
	Created   time.Time `json:"created"`
	Done      time.Time `json:"done,omitzero"`
	BootID    string    `json:"bootID,omitempty"`

	Interfaces []Interface `json:"interfaces"` // those in the container first
	Addresses  []Address   `json:"addresses"`
	Routes     []Route     `json:"routes"`
	DNS        cni.DNS     `json:"dns"`
	Ports      []Port      `json:"ports"`

	CNIVersion   string                     `json:"cniVersion"` // with which the network runs
	Args         string                     `json:"args,omitempty"`
	Capabilities map[string]json.RawMessage `json:"capabilityArgs"`
	Plugins      []Plugin                   `json:"plugins"`
	Config       json.RawMessage            `json:"config"` // the list, drop-ins included

	// Differences lists the differences between the record and the kernel.
	Differences []string `json:"differences"`

	Operations []logs.Entry `json:"operations,omitempty"` // the last ones, the oldest first
}

// Interface is an interface of the attachment.
type Interface struct {
	Name     string `json:"name"`
	Place    Place  `json:"place"`
	Kind     string `json:"kind,omitempty"` // as rtnetlink calls it
	MAC      string `json:"mac,omitempty"`
	MTU      int    `json:"mtu,omitempty"`
	Up       bool   `json:"up"`
	Master   string `json:"master,omitempty"` // bridge, bond or VRF
	Recorded bool   `json:"recorded"`         // the result names it
	Live     bool   `json:"live"`             // the kernel has it
}

// Place is the location of an interface.
type Place string

// The places of interfaces.
const (
	InContainer Place = "container"
	OnHost      Place = "host"
)

// Address is an address of the container's interface.
type Address struct {
	Address   netip.Prefix `json:"address"`
	Gateway   netip.Addr   `json:"gateway,omitzero"`
	Interface string       `json:"interface,omitempty"`
	Recorded  bool         `json:"recorded"`
	Live      bool         `json:"live"`
}

// Route is a route of the container's interface, except routes that the kernel adds by itself.
type Route struct {
	Dst      netip.Prefix `json:"dst"`
	Gateway  netip.Addr   `json:"gw,omitzero"`
	Table    int          `json:"table,omitempty"`  // 0 is main
	Metric   int          `json:"metric,omitempty"` // 0 is the kernel's default
	Recorded bool         `json:"recorded"`
	Live     bool         `json:"live"`
}

// Port is a host port that the runtime has requested, or that is published.
type Port struct {
	Mapping  string `json:"mapping"` // for people: tcp *:8080 to 10.1.2.3:80
	Backend  string `json:"backend,omitempty"`
	Recorded bool   `json:"recorded"`
	Live     bool   `json:"live"`

	published kernel.PortMapping // in nftables
}

// Plugin is a plugin of the network.
type Plugin struct {
	Type  string          `json:"type"`
	Stdin json.RawMessage `json:"stdin"` // its configuration at ADD, without prevResult
}

// lastOperations is the number of operations in [Details].
const lastOperations = 5

// Describe compares the record of an attachment with the kernel, and adds its last operations in the
// journal. If it cannot read a part of the kernel's state, it lists that as a difference.
func Describe(
	ctx context.Context, a Attachment, operations []journal.Record,
) (*Details, error) {
	d := &Details{
		Network: a.Attachment.Network, Container: a.Attachment.Container, IfName: a.Attachment.IfName,
		ID: a.Attachment.Owner(), Netns: a.Netns, State: a.State, Runtime: a.Runtime,
		Source: a.Source, StateDir: a.StateDir, Created: a.Created, Done: a.Done, BootID: a.BootID,
		Interfaces: []Interface{}, Addresses: []Address{}, Routes: []Route{}, Ports: []Port{}, Differences: []string{},
		CNIVersion: a.List.Version.String(), Args: a.Args.String(), Capabilities: a.Capabilities,
	}
	if d.Capabilities == nil {
		d.Capabilities = map[string]json.RawMessage{}
	}
	if err := d.configuration(a); err != nil {
		return nil, err
	}
	of := logs.Filter{Name: a.Attachment.String()}
	d.Operations = of.Last(operations, lastOperations)
	d.recorded(a.Result)
	d.live(ctx, a)
	d.compare(a)
	return d, nil
}

// configuration adds the configuration of each plugin.
func (d *Details) configuration(a Attachment) (err error) {
	if d.Config, err = a.List.MarshalJSON(); err != nil {
		return err
	}
	for i, p := range a.List.Plugins {
		stdin, err := a.List.Request(cni.Add, i, cni.RequestData{Capabilities: a.Capabilities})
		if err != nil {
			return err
		}
		d.Plugins = append(d.Plugins, Plugin{Type: p.Type, Stdin: stdin})
	}
	return nil
}

// recorded adds the content of the result.
func (d *Details) recorded(r *cni.Result) {
	if r == nil {
		return
	}
	for _, i := range r.Interfaces {
		place := OnHost
		if i.Sandbox != "" {
			place = InContainer
		}
		d.Interfaces = append(
			d.Interfaces,
			Interface{Name: i.Name, Place: place, MAC: i.MAC, MTU: i.MTU, Recorded: true},
		)
	}
	for _, ip := range r.IPs {
		a := Address{Address: ip.Address, Gateway: ip.Gateway, Recorded: true, Interface: d.IfName}
		if i, ok := ip.Interface.Get(); ok && i >= 0 && i < len(r.Interfaces) {
			a.Interface = r.Interfaces[i].Name
		}
		d.Addresses = append(d.Addresses, a)
	}
	for _, rt := range r.Routes {
		table, _ := rt.Table.Get()
		d.Routes = append(
			d.Routes,
			Route{
				Dst:      rt.Dst.Masked(),
				Gateway:  rt.GW,
				Table:    table,
				Metric:   rt.Priority,
				Recorded: true,
			},
		)
	}
	d.DNS = r.DNS
}
