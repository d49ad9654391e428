package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/tenon-cni/tenon/packaging/internal/git"
	"github.com/tenon-cni/tenon/packaging/internal/provenance"
	"github.com/tenon-cni/tenon/packaging/internal/release"
	"github.com/tenon-cni/tenon/packaging/internal/sums"
)

// describe writes the files that describe all others: provenance and checksums.
func (o options) describe(ctx context.Context, r *release.Release, targets []release.Target,
	written []artefact, p *progress,
) error {
	err := p.step(ctx, func() (string, error) { return o.provenance(r, targets, written, p.files) })
	if err != nil {
		return err
	}
	slices.Sort(p.files)
	return p.step(ctx, func() (string, error) {
		list, err := sums.Read(r.Out, p.files)
		if err != nil {
			return "", err
		}
		return sums.File, sums.Write(r.Out, list)
	})
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

// checkKey fails if there is a key, but nothing that it could sign or could sign with.
func (o options) checkKey(source git.Source) error {
	if o.key == "" {
		return nil
	}
	if source.Dirty {
		return errors.New("the working tree has changes without a commit: " +
			"commit them before you sign a release")
	}
	f, err := os.Open(o.key)
	if err != nil {
		return fmt.Errorf("TENON_RELEASE_KEY: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("TENON_RELEASE_KEY: %w", err)
	}
	_, err = exec.LookPath("ssh-keygen")
	return err
}

// sign signs the checksums in a directory if there is a key, and warns if users could not verify
// the signature.
func (o options) sign(ctx context.Context, root, dir string, p *progress) error {
	if o.key == "" {
		p.note("not signed: TENON_RELEASE_KEY names no key")
		return nil
	}
	if err := sums.Sign(ctx, dir, o.key); err != nil {
		return fmt.Errorf("%w\nall other files are complete; to sign them, run: "+
			"ssh-keygen -Y sign -f %s -n %s %s", err, o.key, sums.Namespace,
			filepath.Join(dir, sums.File))
	}
	p.note("signed: %s", sums.Signature)
	signers := filepath.Join("packaging", "keys", "allowed_signers")
	if err := sums.Verify(ctx, dir, filepath.Join(root, signers)); err != nil {
		p.note("warning: %s does not list this key: %v", signers, err)
	}
	return nil
}
