package netconf

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
	"github.com/tenon-cni/tenon/plugins/hostlocal"
)

// Removal names the network to remove, and the options.
type Removal struct {
	Client  *network.Client
	Catalog *config.Catalog
	Name    string // of the network
	DropIns bool   // remove the directory of drop-in files with its files
	Detach  bool   // detach containers; otherwise their existence is an [AttachedError]
	DryRun  bool   // report the steps without taking them
}

// Step is an object that was removed or kept.
type Step struct {
	Kind   string `json:"kind"` // "attachment", "file", "drop-ins", "bridge" or "reservations"
	Object string `json:"object"`
	Kept   string `json:"kept,omitempty"` // reason, if it was kept
}

// AttachedError is the error that containers are attached to the network.
type AttachedError struct{ Attachments []cni.Attachment }

func (e *AttachedError) Error() string {
	keys := make([]string, len(e.Attachments))
	for i, a := range e.Attachments {
		keys[i] = a.String()
	}
	return "containers are attached: " + strings.Join(keys, ", ")
}

// Remove removes the configuration file of a network, and its bridge and reservations if they have
// no other use. It calls report after each step. The error wraps [config.ErrNotFound] if no file
// defines the network.
func Remove(ctx context.Context, r Removal, report func(Step)) error {
	i := slices.IndexFunc(
		r.Catalog.Candidates(),
		func(f config.File) bool { return f.Name == r.Name },
	)
	if i < 0 {
		return fmt.Errorf("network %q in %s: %w", r.Name, r.Catalog.Dir, config.ErrNotFound)
	}
	file := r.Catalog.Candidates()[i]
	attached, err := r.attached()
	if err != nil {
		return err
	}
	if len(attached) > 0 && !r.Detach {
		return &AttachedError{keys(attached)}
	}
	for _, rec := range attached {
		a := rec.Attachment
		if !r.DryRun {
			err := r.Client.For(rec).Del(ctx, a, network.Fallback{Network: file.Network})
			if err != nil {
				return fmt.Errorf("%v: %w", a, err)
			}
		}
		report(Step{Kind: "attachment", Object: a.String()})
	}
	if err := r.step(Step{Kind: "file", Object: file.Path}, os.Remove, report); err != nil {
		return err
	}
	if err := r.dropIns(report); err != nil {
		return err
	}
	if file.Network == nil {
		return nil // the file is broken, so its bridge and reservations are unknown
	}
	return errors.Join(r.bridges(ctx, file, report), r.reservations(ctx, file, report))
}

// step removes the object of a step unless there is a reason to keep it, and reports the step.
func (r Removal) step(s Step, remove func(object string) error, report func(Step)) error {
	if s.Kept == "" && !r.DryRun {
		if err := remove(s.Object); err != nil {
			return cni.Errorf(cni.CodeIOFailure, "%w", err)
		}
	}
	report(s)
	return nil
}

// attached returns the recorded attachments of the network, of all runtimes of the host.
func (r Removal) attached() (list []network.Record, err error) {
	records, err := r.Client.ListHost()
	if err != nil {
		return nil, fmt.Errorf("look for attachments: %w", err)
	}
	for _, rec := range records {
		if rec.Attachment.Network == r.Name {
			list = append(list, rec)
		}
	}
	return list, nil
}

func keys(records []network.Record) (list []cni.Attachment) {
	for _, rec := range records {
		list = append(list, rec.Attachment)
	}
	return list
}

// dropIns removes the directory of drop-in files if it is empty, or if DropIns is set.
func (r Removal) dropIns(report func(Step)) error {
	dir := filepath.Join(r.Catalog.Dir, r.Name)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil //nolint:nilerr // the directory does not exist
	}
	step := Step{Kind: "drop-ins", Object: dir}
	if len(entries) > 0 && !r.DropIns {
		step.Kept = "not empty"
	}
	return r.step(step, os.RemoveAll, report)
}

// bridges removes the bridges of the network that have no other use.
func (r Removal) bridges(ctx context.Context, file config.File, report func(Step)) error {
	for _, p := range file.Network.Plugins {
		name := bridgeOf(p)
		if name == "" {
			continue
		}
		host, closeHost, err := kernel.OpenHost(ctx)
		if err != nil {
			return err
		}
		defer closeHost()
		link, err := host.Links.ByName(name)
		if errors.Is(err, kernel.ErrNoLink) {
			continue
		}
		if err != nil {
			return err
		}
		step := Step{Kind: "bridge", Object: name}
		if step.Kept, err = r.useOf(ctx, host, link, file); err != nil {
			return err
		}
		if err := r.step(step, func(string) error { return host.Links.Delete(link) }, report); err != nil {
			return err
		}
	}
	return nil
}

// useOf returns the other use of a bridge, or "".
func (r Removal) useOf(
	ctx context.Context, host *kernel.Space, bridge kernel.Link, file config.File,
) (string, error) {
	if bridge.Kind != "bridge" {
		return "not a bridge", nil
	}
	for _, f := range r.Catalog.Candidates() {
		if f.Network == nil || f.Path == file.Path {
			continue
		}
		if slices.ContainsFunc(
			f.Network.Plugins,
			func(p *cni.PluginConfig) bool { return bridgeOf(p) == bridge.Name },
		) {
			return "in use by network " + f.Name, nil
		}
	}
	links, err := host.Links.All()
	if err != nil {
		return "", err
	}
	for _, l := range links {
		port := l.Master == bridge.Index && !(r.DryRun && r.Detach) // detaching removes it
		if port || l.Parent == bridge.Index && l.ParentNSID < 0 && l.Kind == "vlan" {
			return "in use by interface " + l.Name, nil
		}
	}
	addrs, err := host.Addrs.Kept(bridge)
	if err != nil {
		return "", err
	}
	subnets := subnetsOf(ctx, file)
	for _, a := range addrs {
		if !slices.Contains(subnets, a.Masked()) {
			return fmt.Sprintf("has address %s, which is not in this network", a), nil
		}
	}
	return "", nil
}

// reservations removes directories of host-local that contain no reservations.
func (r Removal) reservations(ctx context.Context, file config.File, report func(Step)) error {
	pools, err := hostlocal.Pools(ctx, []*cni.List{file.Network.List})
	for _, p := range pools {
		dir := filepath.Join(p.Dir, p.Network)
		if _, err := os.Stat(dir); p.Network != r.Name || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		step := Step{Kind: "reservations", Object: dir}
		if n := len(p.Leases); n > 0 && !(r.DryRun && r.Detach) {
			step.Kept = fmt.Sprintf("%d addresses are reserved", n)
		}
		if err := r.step(step, os.RemoveAll, report); err != nil {
			return err
		}
	}
	return err
}

// bridgeOf returns the bridge that a plugin creates, or "".
func bridgeOf(p *cni.PluginConfig) string {
	if p.Type != "bridge" {
		return ""
	}
	var conf struct {
		Bridge string `json:"bridge"`
	}
	b, err := p.MarshalJSON()
	if err != nil || json.Unmarshal(b, &conf) != nil {
		return ""
	}
	return cmp.Or(conf.Bridge, "cni0")
}
