package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/ops/install"
	"github.com/tenon-cni/tenon/internal/ops/netconf"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/network"
	"github.com/tenon-cni/tenon/network/config"
)

// Removal removes what Install installed, and the state of the plugins.
type Removal struct {
	Client *network.Client // with the plugin directory of the node
	NetDir string          // configuration directory of the node
	DryRun bool            // report the steps without taking them
	Report func(netconf.Step)
}

// Plan returns the plugins, rules and files to remove in addition to the configurations, and the
// attachments that block the removal.
func (r Removal) Plan(ctx context.Context) (*install.Plan, error) {
	rec, err := readReceipt(r.NetDir)
	if err != nil {
		return nil, err
	}
	removal := install.Removal{Client: r.Client}
	for _, path := range slices.Sorted(rec.paths()) {
		if n, err := config.LoadFile(path); err == nil {
			removal.Lists = append(removal.Lists, n.List)
		}
	}
	return install.PlanRemoval(ctx, removal)
}

// Run removes the configurations with the bridges and reservations of their networks, and then
// carries out the plan. A configuration that changed after its installation stays. If a container
// is attached meanwhile, Run restores the configurations and returns an error with
// [cni.CodeTryAgainLater]. A second Run continues an interrupted one.
func (r Removal) Run(ctx context.Context, p *install.Plan) error {
	rec, err := readReceipt(r.NetDir)
	if err != nil {
		return err
	}
	if !r.DryRun {
		if err := rec.resume(); err != nil {
			return err
		}
	}
	removed := map[string][]byte{}
	for _, path := range slices.Sorted(rec.paths()) {
		content, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return cni.Errorf(cni.CodeIOFailure, "%w", err)
		case !rec.has(path, content):
			r.Report(netconf.Step{Kind: "file", Object: path, Kept: "changed after its installation"})
			continue
		}
		removed[path] = content
		if err := r.configuration(ctx, path, content); err != nil {
			return errors.Join(err, restore(removed))
		}
	}
	if r.DryRun {
		return nil
	}
	if err := p.Run(ctx); err != nil {
		return errors.Join(err, restore(removed))
	}
	if _, err := p.Finish(); err != nil {
		return err
	}
	if err := rec.removeDrafts(r.NetDir); err != nil {
		return err
	}
	return receipt{}.write(r.NetDir)
}

// removingSuffix ends the names of copies of configurations that a removal is about to remove.
// Runtimes ignore files with this extension.
const removingSuffix = ".removing"

func removing(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+removingSuffix)
}

// resume restores the configurations that a killed removal removed, because it may not have removed
// their bridges and reservations.
func (r receipt) resume() error {
	for _, path := range slices.Sorted(r.paths()) {
		content, err := os.ReadFile(removing(path))
		if err != nil || !r.has(path, content) {
			continue // no removal was killed here
		}
		if err := restore(map[string][]byte{path: content}); err != nil {
			return cni.Errorf(cni.CodeIOFailure, "%w", err)
		}
	}
	return nil
}

// configuration removes one file, and the network that it defines. Until the end of Run, there is a
// copy of the file.
func (r Removal) configuration(ctx context.Context, path string, content []byte) error {
	if !r.DryRun {
		if err := statefile.Replace(removing(path), content, 0o644, nil); err != nil {
			return cni.Errorf(cni.CodeIOFailure, "%w", err)
		}
	}
	c, err := config.Discover(r.NetDir)
	if err != nil {
		return err
	}
	files := c.Candidates()
	i := slices.IndexFunc(files, func(f config.File) bool { return f.Path == path })
	if i >= 0 && files[i].Use == config.Chosen && !slices.ContainsFunc(files[:i],
		func(f config.File) bool { return f.Name == files[i].Name }) {
		return netconf.Remove(ctx, netconf.Removal{Client: r.Client, Catalog: c,
			Name: files[i].Name, DryRun: r.DryRun}, r.Report)
	}
	if !r.DryRun { // the policy, or another file defines the network too
		if err := os.Remove(path); err != nil {
			return cni.Errorf(cni.CodeIOFailure, "%w", err)
		}
	}
	r.Report(netconf.Step{Kind: "file", Object: path})
	return nil
}

// restore writes configurations again after a failed removal.
func restore(removed map[string][]byte) (err error) {
	for path, content := range removed {
		if _, missing := os.Lstat(path); errors.Is(missing, fs.ErrNotExist) {
			err = errors.Join(err, statefile.Replace(path, content, 0o644, nil))
		}
	}
	return err
}
