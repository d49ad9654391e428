package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/dhcp"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/ops/inspect"
	"github.com/tenon-cni/tenon/internal/ops/plugindir"
	"github.com/tenon-cni/tenon/internal/repair"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/plugins/all"
)

// Removal holds the settings for removing Tenon from a host.
type Removal struct {
	Client *network.Client
	Lists  []*cni.List     // configured networks, in addition to the networks of attachments
	Host   *plugindir.Host // with links of a package; may be nil

	// Manifest is the list of files that the install script installed; "" or a missing file means
	// none.
	Manifest string

	// Superseded states that a package has taken over from the install script. Only the files of
	// the script are removed; attachments, rules and state now belong to the package.
	Superseded bool

	// Keep hands the remaining attachments over to the upstream plugins. Otherwise they block the
	// removal.
	Keep bool

	// Detach runs DEL for the attachments of the client's runtime first.
	Detach bool
}

// Outcome states how Run treats an attachment.
type Outcome string

// The outcomes of attachments.
const (
	HandOver Outcome = "hand over" // to the upstream plugins
	Detach   Outcome = "detach"
	Blocks   Outcome = "blocks" // neither was requested
	Keep     Outcome = "keep"   // belongs to the upstream plugins already
)

// Attachment is a recorded attachment and its outcome.
type Attachment struct {
	inspect.Attachment
	Outcome Outcome
	Own     bool // of the client's runtime, so that it can be detached
}

// Plan lists the plugins, nftables tables, and files unknown to the upstream plugins that
// [Plan.Run] removes. It converts remaining attachments into the form that the upstream plugins
// create, check and remove.
type Plan struct {
	Attachments []Attachment
	Plugins     []string // executable files
	Restored    []string // plugins that replaced a file, which removal restores
	Links       []string // to the plugins of a package; earlier files are restored
	Tables      []string // of nftables
	Paths       []string // files and directories of state
	Files       []string // of the install script, see [Plan.RemoveFiles]
	Directories []string // of the install script, removed if they are empty

	// Changed lists files of the install script that remain, because they changed afterwards.
	Changed []string

	// Unsupported lists plugins that take over attachments, but fail on them.
	Unsupported []Unsupported

	// Ends lists protections of attachments that end, because the upstream plugins have no
	// counterpart.
	Ends []string

	// Blockers lists reasons why nothing can be removed, in addition to attachments with the
	// outcome [Blocks].
	Blockers []string

	// Units lists units of systemd that block the removal, because they are enabled or active and
	// the install script installed them.
	Units []string

	request   Removal
	dirs      []string          // plugin directories
	inherited map[string]string // plugin directories of a package, and the first created parent
	tags      map[string]bool   // owners of the attachments
}

// PlanRemoval lists the objects to remove. It changes nothing.
func PlanRemoval(ctx context.Context, r Removal) (*Plan, error) {
	p := &Plan{request: r, tags: map[string]bool{}}
	if r.Superseded {
		return p, p.superseded()
	}
	records, err := r.Client.ListHost()
	if err != nil {
		return nil, fmt.Errorf("unreadable record: %w", err)
	}
	attachments, err := inspect.Attachments(records)
	if err != nil {
		return nil, err
	}
	for _, a := range attachments {
		p.attachment(a)
	}
	if err := p.programs(); err != nil {
		return nil, err
	}
	rules, err := kernel.ReadRuleset()
	if err != nil {
		return nil, err
	}
	p.Tables = rules.Tables
	p.judge(rules)
	state, err := p.state(ctx)
	p.Paths = append(p.Paths, state...)
	if err != nil {
		return p, err
	}
	p.keepForeign()
	p.unsupported(ctx)
	return p, nil
}

// programs lists the plugins, and the files of the install script.
func (p *Plan) programs() error {
	m, err := readManifest(p.request.Manifest)
	if err != nil {
		return err
	}
	p.dirs = slices.Clone(p.request.Client.PluginDirs)
	for _, dir := range m.pluginDirs {
		p.dirs = appendNew(p.dirs, dir)
	}
	host := p.request.Host
	if host != nil {
		if p.Links, err = host.Links(); err != nil {
			return cni.Errorf(cni.CodeIOFailure, "plugin directory: %w", err)
		}
	}
	for _, link := range p.Links { // an earlier installation may have left programs there
		p.dirs = appendNew(p.dirs, filepath.Dir(link))
	}
	for _, dir := range p.dirs {
		plugins, restored, outdated := find(dir, names())
		p.Plugins = append(p.Plugins, plugins...)
		p.Restored = append(p.Restored, restored...)
		p.Paths = append(append(p.Paths, outdated...), remains(dir)...)
	}
	if host != nil { // plugins there may take over
		for _, dir := range slices.Concat(host.Dirs, host.Shared) {
			p.dirs = appendNew(p.dirs, dir)
		}
	}
	return p.installed(m)
}

// appendNew appends a value to a list, unless the list contains it.
func appendNew(list []string, value string) []string {
	if slices.Contains(list, value) {
		return list
	}
	return append(list, value)
}

// keepForeign keeps the attachments of other runtimes if Tenon has no plugin, rule or file on this
// host: Tenon has never been used, or an earlier removal has handed the attachments over.
func (p *Plan) keepForeign() {
	if len(p.Plugins)+len(p.Links)+len(p.Tables)+len(p.Paths)+len(p.Blockers) > 0 {
		return
	}
	for i := range p.Attachments {
		if a := &p.Attachments[i]; a.Outcome == Blocks && a.Source != "" {
			a.Outcome = Keep
		}
	}
}

func names() []string {
	list := []string{dhcp.Program}
	for _, d := range all.Described() {
		list = append(list, d.Name)
	}
	return list
}

func (p *Plan) attachment(a inspect.Attachment) {
	own := a.Source == "" && a.Runtime == p.request.Client.Runtime
	x := Attachment{a, Blocks, own}
	switch {
	case own && p.request.Detach:
		x.Outcome = Detach
	case p.request.Keep:
		x.Outcome = HandOver
		for _, why := range handOverObstacles(a) {
			p.Blockers = append(
				p.Blockers,
				fmt.Sprintf("%v cannot be handed over: %s", a.Record.Attachment, why),
			)
		}
	}
	p.Attachments = append(p.Attachments, x)
	p.tags[a.Record.Attachment.Tag()] = true
}

// Blocked returns the attachments that block the removal.
func (p *Plan) Blocked() []Attachment {
	return slices.DeleteFunc(
		slices.Clone(p.Attachments),
		func(a Attachment) bool { return a.Outcome != Blocks },
	)
}

// judge collects elements without an attachment, which block the removal, and protections that end.
func (p *Plan) judge(rules kernel.Ruleset) {
	unknown := map[string]bool{}
	ends := map[string]bool{}
	for ruleSet, list := range rules.Held {
		for _, h := range list {
			if !p.tags[h.Comment] {
				unknown[h.Comment] = true
				continue
			}
			if name, ok := protection(ruleSet); ok && p.kept(h.Comment) {
				ends[fmt.Sprintf("%s of %s", name, owner(h.Comment))] = true
			}
		}
	}
	for tag := range unknown {
		p.Blockers = append(
			p.Blockers,
			fmt.Sprintf("%s has rules in nftables, but no attachment record", owner(tag)),
		)
	}
	slices.Sort(p.Blockers)
	p.Ends = slices.Sorted(maps.Keys(ends))
}

// withoutCounterpart names protections that the upstream plugins lack, by the name of the rule set.
var withoutCounterpart = map[string]string{
	"guard":          "MAC anti-spoofing (macspoofchk)",
	"port isolation": "isolation of bridge ports",
	"drop invalid":   "dropping of packets in state invalid",
}

// protection describes a rule set that the upstream plugins lack: one of Tenon's, or of a plugin of
// another module.
func protection(ruleSet string) (description string, ok bool) {
	if name, foreign := strings.CutPrefix(ruleSet, kernel.AddressRulesPrefix); foreign {
		return "rule set " + name, true
	}
	description, ok = withoutCounterpart[ruleSet]
	return description, ok
}

func (p *Plan) kept(tag string) bool {
	return slices.ContainsFunc(p.Attachments, func(a Attachment) bool {
		return (a.Outcome == HandOver || a.Outcome == Keep) && a.Record.Attachment.Tag() == tag
	})
}

// owner returns the attachment that a tag names, or the tag.
func owner(tag string) string {
	if _, ours := cni.ParseTag(tag); ours {
		if part := strings.SplitN(tag, " ", 4); len(part) == 4 { // see cni.Attachment.Tag
			return part[1] + "/" + part[3] + "/" + part[2]
		}
	}
	return tag
}

// Run removes the objects of the plan without interrupting the traffic of remaining attachments: it
// creates the upstream plugins' rules before it removes Tenon's. A second Run continues an
// interrupted one.
func (p *Plan) Run(ctx context.Context) error {
	if len(p.Blocked())+len(p.Blockers)+len(p.Units) > 0 {
		return errors.New("attachments or units block the removal")
	}
	if p.request.Superseded {
		return p.removeSuperseded()
	}
	c := p.request.Client
	for _, a := range p.Attachments {
		if a.Outcome == Detach {
			if err := c.For(a.Record).Del(ctx, a.Record.Attachment, network.Fallback{}); err != nil {
				return err
			}
		}
	}
	_, err := c.HandOver(ctx, func(ctx context.Context, records []network.Record) error {
		if err := p.onlyPlanned(records); err != nil {
			return err
		}
		if p.handsOver() {
			if err := convert(ctx, records); err != nil {
				return err
			}
		}
		return p.remove(ctx)
	})
	return err
}

func (p *Plan) handsOver() bool {
	return slices.ContainsFunc(p.Attachments, func(a Attachment) bool { return a.Outcome == HandOver })
}

// onlyPlanned returns an error if there is an attachment that is not in the plan.
func (p *Plan) onlyPlanned(records []network.Record) error {
	for _, r := range records {
		if !p.kept(r.Attachment.Tag()) {
			return cni.Errorf(
				cni.CodeTryAgainLater,
				"%v was attached in the meantime",
				r.Attachment,
			)
		}
	}
	return nil
}

// remove removes the objects of the plan, plugins first, so that no attachment is created in the
// meantime.
func (p *Plan) remove(ctx context.Context) error {
	for _, path := range p.Plugins {
		if err := ioFailure(plugindir.Restore(path)); err != nil {
			return err
		}
	}
	if p.request.Host != nil {
		if err := p.request.Host.Restore(ctx); err != nil {
			return cni.Errorf(cni.CodeIOFailure, "restore plugin directories: %w", err)
		}
	}
	refused, err := kernel.EraseRules(ctx, func(tag string) bool { return p.tags[tag] })
	if err != nil {
		return err
	}
	if len(refused) > 0 {
		return cni.Errorf(
			cni.CodeTryAgainLater,
			"%s was attached in the meantime",
			owner(refused[0].Comment),
		)
	}
	var errs []error
	for _, path := range p.Paths {
		errs = append(errs, ioFailure(os.RemoveAll(path)))
	}
	return errors.Join(errs...)
}

// Finish removes the state directory if it contains only locks and cached versions of plugins. It
// returns false if records of other runtimes are left.
func (p *Plan) Finish() (bool, error) {
	if p.request.Superseded {
		return true, nil
	}
	records, err := os.ReadDir(filepath.Join(p.stateDir(), "records"))
	if err := ioFailure(err, fs.ErrNotExist); err != nil || len(records) > 0 {
		return false, err
	}
	if err := ioFailure(os.RemoveAll(p.stateDir())); err != nil {
		return false, err
	}
	return true, removeRegistry(network.RegistryDir)
}

// removeRegistry removes the registry of state directories unless it points to one that exists.
func removeRegistry(dir string) error {
	entries, err := os.ReadDir(dir)
	if err := ioFailure(err, fs.ErrNotExist); err != nil {
		return err
	}
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(dir, e.Name())); !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	if err := ioFailure(errors.Join(os.RemoveAll(dir), os.RemoveAll(dir+".lock"))); err != nil {
		return err
	}
	// In a container, the directory may be a mount point in a read-only file system.
	return ioFailure(os.Remove(filepath.Dir(dir)), fs.ErrNotExist, unix.ENOTEMPTY, unix.EBUSY,
		unix.EROFS)
}

// ioFailure returns err with [cni.CodeIOFailure], or nil if err is nil or wraps one of the errors
// to ignore.
func ioFailure(err error, ignore ...error) error {
	if err == nil ||
		slices.ContainsFunc(ignore, func(target error) bool { return errors.Is(err, target) }) {
		return nil
	}
	return cni.Errorf(cni.CodeIOFailure, "%w", err)
}

func (p *Plan) stateDir() string { return cmp.Or(p.request.Client.StateDir, network.DefaultStateDir) }

// convert recreates the rules of attachments in Tenon's tables as the upstream plugins create them.
func convert(ctx context.Context, records []network.Record) error {
	var errs []error
	for i := range records {
		r := &records[i]
		if r.Result == nil || r.State != network.Attached {
			continue // not attached: only reservations and links are left for DEL
		}
		calls, err := calls(ctx, r)
		if err != nil {
			errs = append(errs, fmt.Errorf("%v: %w", r.Attachment, err))
			continue
		}
		for j, o := range repair.Convert(ctx, all.Plugins, calls) {
			if o.Failed() {
				errs = append(errs, fmt.Errorf("%v: %s: %w", r.Attachment, calls[j].Path, o.Err))
			}
		}
	}
	return errors.Join(errs...)
}
