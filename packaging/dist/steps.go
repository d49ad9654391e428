package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/packaging/internal/build"
	"github.com/tenon-cni/tenon/packaging/internal/git"
	"github.com/tenon-cni/tenon/packaging/internal/image"
	"github.com/tenon-cni/tenon/packaging/internal/manifests"
	"github.com/tenon-cni/tenon/packaging/internal/manuals"
	"github.com/tenon-cni/tenon/packaging/internal/modules"
	"github.com/tenon-cni/tenon/packaging/internal/notes"
	"github.com/tenon-cni/tenon/packaging/internal/packages"
	"github.com/tenon-cni/tenon/packaging/internal/release"
	"github.com/tenon-cni/tenon/packaging/internal/sbom"
	"github.com/tenon-cni/tenon/packaging/internal/tarball"
)

// artefact writes one file of the release and returns its name, or "" if there is nothing to write.
// One of perArch and once is set.
type artefact struct {
	name    string // for -only
	perArch func(context.Context, *release.Release, release.Target) (string, error)
	once    func(context.Context, *release.Release, []release.Target) (string, error)
}

// artefacts returns all artefacts in the order in which they are written.
func artefacts() []artefact {
	return []artefact{
		{name: "tar", perArch: tarball.Write},
		{name: "deb", perArch: packages.Deb},
		{name: "rpm", perArch: packages.RPM},
		{name: "apk", perArch: packages.APK},
		{name: "sbom", perArch: sbom.Write},
		{name: "script", once: tarball.WriteScript},
		{name: "image", once: image.Write},
		{name: "kubernetes", once: manifests.Write},
		{name: "chart", once: manifests.WriteChart},
	}
}

func names() string {
	var list []string
	for _, a := range artefacts() {
		list = append(list, a.name)
	}
	return strings.Join(list, ",")
}

// options are the flags and the environment of dist.
type options struct {
	arches, only, version string
	root, out             string
	builder               string // URI for provenance
	key                   string // file of the key that signs, or ""
	environ               []string
	epoch                 string // SOURCE_DATE_EPOCH
}

// run writes the artefacts and prints a line for each. If it fails before all are complete, the
// output directory is as before.
func (o options) run(ctx context.Context, w io.Writer) error {
	wanted, err := o.artefacts()
	if err != nil {
		return err
	}
	arches, err := o.processors()
	if err != nil {
		return err
	}
	r, err := o.release(ctx)
	if err != nil {
		return err
	}
	out, err := newDestination(o.out)
	if err != nil {
		return err
	}
	defer out.discard()
	r.Out = out.stage
	p := progress{w: w, dir: out.stage}
	p.note("Tenon %s, commit %.12s, %s", r.Version, r.Commit, r.Go.Version)
	err = o.write(ctx, r, arches, wanted, &p)
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: the output directory is unchanged", context.Cause(ctx))
	}
	if err != nil {
		return err
	}
	if err := out.publish(p.files, o.only == "" && o.arches == ""); err != nil {
		return err
	}
	p.note("%d files in %s", len(p.files), out.dir)
	return o.sign(ctx, r.Root, out.dir, &p)
}

// write builds the programs and writes all files but the signature. The notes come first: they fail
// if the changelog lacks the release.
func (o options) write(ctx context.Context, r *release.Release, arches []build.Arch,
	wanted []artefact, p *progress,
) error {
	if err := p.step(ctx, func() (string, error) { return notes.Write(r) }); err != nil {
		return err
	}
	bin, err := os.MkdirTemp("", "tenon-dist-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(bin) }() // only binaries of this run
	targets, err := o.targets(ctx, r, bin, arches, p)
	if err != nil {
		return err
	}
	for _, a := range wanted {
		if err := a.write(ctx, r, targets, p); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
	}
	return o.describe(ctx, r, targets, wanted, p)
}

// targets builds the programs for all processors.
func (o options) targets(ctx context.Context, r *release.Release, bin string,
	arches []build.Arch, p *progress,
) (targets []release.Target, err error) {
	start := time.Now()
	pages, err := manuals.Write(ctx, r, filepath.Join(bin, "manuals"), o.environ)
	if err != nil {
		return nil, err
	}
	p.print("manual pages", start)
	for _, arch := range arches {
		start := time.Now()
		options := build.Options{Root: r.Root, Dir: filepath.Join(bin, arch.Name),
			Version: r.Version.String(), Arch: arch, Inherit: o.environ}
		if err := r.Go.Run(ctx, options); err != nil {
			return nil, err
		}
		used, err := modules.Read(ctx, r.Go, options)
		if err != nil {
			return nil, err
		}
		t, err := r.Install(arch, options.Dir, used)
		if err != nil {
			return nil, err
		}
		t.Files = append(t.Files, pages...)
		targets = append(targets, t)
		p.print("programs for "+arch.Name, start)
	}
	return targets, nil
}

func (a artefact) write(ctx context.Context, r *release.Release, targets []release.Target,
	p *progress,
) error {
	if a.once != nil {
		return p.step(ctx, func() (string, error) { return a.once(ctx, r, targets) })
	}
	for _, t := range targets {
		err := p.step(ctx, func() (string, error) { return a.perArch(ctx, r, t) })
		if err != nil {
			return fmt.Errorf("%s: %w", t.Arch.Name, err)
		}
	}
	return nil
}

// release determines version and time.
func (o options) release(ctx context.Context) (*release.Release, error) {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return nil, err
	}
	source, err := git.Describe(ctx, root, o.version, o.epoch)
	if err != nil {
		return nil, err
	}
	if err := o.checkKey(source); err != nil {
		return nil, err
	}
	env, err := build.ReadEnv(ctx, o.environ)
	return &release.Release{Version: source.Version, Tagged: source.Tagged, Commit: source.Commit,
		Time: source.Time, Root: root, Go: env}, err
}

func (o options) artefacts() ([]artefact, error) {
	all := artefacts()
	if o.only == "" {
		return all, nil
	}
	for name := range strings.SplitSeq(o.only, ",") {
		if !slices.ContainsFunc(all, func(a artefact) bool { return a.name == name }) {
			return nil, fmt.Errorf("unknown artefact %q: choose from %s", name, names())
		}
	}
	return slices.DeleteFunc(all, func(a artefact) bool {
		return !slices.Contains(strings.Split(o.only, ","), a.name)
	}), nil
}

func (o options) processors() ([]build.Arch, error) {
	if o.arches == "" {
		return build.Arches(), nil
	}
	var list []build.Arch
	for name := range strings.SplitSeq(o.arches, ",") {
		arch, err := build.FindArch(name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(list, arch) {
			list = append(list, arch)
		}
	}
	return list, nil
}

// progress prints a line for each step with its time.
type progress struct {
	w     io.Writer
	dir   string
	files []string // written so far
}

func (p *progress) note(format string, args ...any) { fmt.Fprintf(p.w, format+"\n", args...) }

func (p *progress) print(what string, start time.Time) {
	fmt.Fprintf(p.w, "%7.1f s  %s\n", time.Since(start).Seconds(), what)
}

// step runs a function that writes a file and returns its name, unless the run is interrupted.
func (p *progress) step(ctx context.Context, write func() (string, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	start := time.Now()
	name, err := write()
	if err != nil || name == "" {
		return err
	}
	p.files = append(p.files, name)
	info, err := os.Stat(filepath.Join(p.dir, name))
	if err != nil {
		return err
	}
	p.print(fmt.Sprintf("%s (%d kB)", name, (info.Size()+999)/1000), start)
	return nil
}
