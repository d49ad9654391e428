package main

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/packaging/internal/notes"
	"github.com/tenon-cni/tenon/packaging/internal/provenance"
	"github.com/tenon-cni/tenon/packaging/internal/release"
	"github.com/tenon-cni/tenon/packaging/internal/sums"
)

// finish writes the files that describe all artefacts: notes, provenance, checksums and signature.
func (o options) finish(ctx context.Context, r *release.Release, targets []release.Target,
	written []artefact, p *progress,
) error {
	start := time.Now()
	name, err := notes.Write(r)
	if err != nil {
		return err
	}
	p.file(name, start)
	if name, err = o.provenance(r, targets, written, p.files); err != nil {
		return err
	}
	p.file(name, start)
	slices.Sort(p.files)
	list, err := sums.Read(r.Out, p.files)
	if err != nil {
		return err
	}
	if err := sums.Write(r.Out, list); err != nil {
		return err
	}
	p.file(sums.File, start)
	return o.sign(ctx, r, p)
}

func (o options) provenance(r *release.Release, targets []release.Target, written []artefact,
	files []string,
) (string, error) {
	files = slices.Sorted(slices.Values(files))
	subjects, err := sums.Read(r.Out, files)
	if err != nil {
		return "", err
	}
	var parameters provenance.Parameters
	for _, t := range targets {
		parameters.Arch = append(parameters.Arch, t.Arch.Name)
	}
	for _, a := range written {
		parameters.Artefacts = append(parameters.Artefacts, a.name)
	}
	return provenance.Write(r, targets, o.builder, parameters, subjects)
}

// sign signs the checksums if there is a key, and warns if users could not verify the signature.
func (o options) sign(ctx context.Context, r *release.Release, p *progress) error {
	if o.key == "" {
		p.note("not signed: TENON_RELEASE_KEY names no key")
		return nil
	}
	start := time.Now()
	name, err := sums.Sign(ctx, r.Out, o.key)
	if err != nil {
		return err
	}
	p.file(name, start)
	signers := filepath.Join("packaging", "keys", "allowed_signers")
	if err := sums.Verify(ctx, r.Out, filepath.Join(r.Root, signers)); err != nil {
		p.note("warning: %s does not list this key: %v", signers, err)
	}
	return nil
}
