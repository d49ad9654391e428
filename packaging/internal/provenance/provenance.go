// Package provenance writes how a release was built, as an in-toto statement with a SLSA v1
// predicate. It has no times and no names of the builder's host, so that it is reproducible too.
package provenance

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/packaging/internal/modules"
	"github.com/tenon-cni/tenon/packaging/internal/release"
	"github.com/tenon-cni/tenon/packaging/internal/sums"
)

// File is the name of the statement.
const File = "provenance.json"

// LocalBuilder is the identity of a builder that is no build service.
const LocalBuilder = modules.Home + "/tree/main/packaging/dist#local"

// statement is a Statement of in-toto, version 1.
type statement struct {
	Type          string       `json:"_type"`
	Subject       []descriptor `json:"subject"`
	PredicateType string       `json:"predicateType"`
	Predicate     predicate    `json:"predicate"`
}

// descriptor is a ResourceDescriptor of in-toto.
type descriptor struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

// predicate is the predicate https://slsa.dev/provenance/v1.
type predicate struct {
	BuildDefinition definition `json:"buildDefinition"`
	RunDetails      struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

type definition struct {
	BuildType            string       `json:"buildType"`
	ExternalParameters   Parameters   `json:"externalParameters"`
	ResolvedDependencies []descriptor `json:"resolvedDependencies"`
}

// Parameters are the options of the build, enough to repeat it.
type Parameters struct {
	Repository string   `json:"repository"`
	Version    string   `json:"version"`
	Arch       []string `json:"arch"`
	Artefacts  []string `json:"artefacts"`
	Epoch      int64    `json:"sourceDateEpoch"`
}

// Write writes provenance.json about artefacts and returns its name. builder is the URI of the
// builder.
func Write(r *release.Release, targets []release.Target, builder string, p Parameters,
	artefacts []sums.Artefact,
) (string, error) {
	p.Repository, p.Version, p.Epoch = modules.Home, r.Version.String(), r.Time.Unix()
	s := statement{Type: "https://in-toto.io/Statement/v1",
		PredicateType: "https://slsa.dev/provenance/v1"}
	for _, a := range artefacts {
		s.Subject = append(s.Subject, descriptor{Name: a.Name,
			Digest: map[string]string{"sha256": a.SHA256}})
	}
	deps, err := dependencies(r, targets)
	if err != nil {
		return "", err
	}
	s.Predicate.BuildDefinition = definition{
		BuildType:            modules.Home + "/blob/main/docs/releasing.md#build-type",
		ExternalParameters:   p,
		ResolvedDependencies: deps,
	}
	s.Predicate.RunDetails.Builder.ID = builder
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return "", err
	}
	return r.Write(File, b.Bytes())
}

// dependencies returns the commit, the Go release, and the modules in the programs.
func dependencies(r *release.Release, targets []release.Target) ([]descriptor, error) {
	list := []descriptor{
		{Name: "source", URI: "git+" + modules.Home, Digest: map[string]string{"gitCommit": r.Commit}},
		{Name: "go", URI: "https://go.dev/dl/#" + r.Go.Version},
	}
	seen := map[string]bool{"stdlib": true} // belongs to the Go release
	var mods []descriptor
	for _, t := range targets {
		for _, m := range t.Modules.Modules {
			if seen[m.Key()] {
				continue
			}
			seen[m.Key()] = true
			sum, err := dirHash(m.Sum)
			if err != nil {
				return nil, fmt.Errorf("module %s: %w", m.Key(), err)
			}
			mods = append(mods, descriptor{URI: m.PURL(),
				Digest: map[string]string{"dirHash": sum}})
		}
	}
	slices.SortFunc(mods, func(a, b descriptor) int { return cmp.Compare(a.URI, b.URI) })
	return append(list, mods...), nil
}

// dirHash converts a checksum of go.sum to the form in in-toto's digest sets: hexadecimal, without
// the prefix "h1:".
func dirHash(sum string) (string, error) {
	text, ok := strings.CutPrefix(sum, "h1:")
	if !ok {
		return "", fmt.Errorf("unknown kind of checksum %q", sum)
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	return hex.EncodeToString(raw), err
}
