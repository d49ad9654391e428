// Package sbom writes the software bill of materials of a release for one processor: the programs,
// the modules in them, and their licences.
package sbom

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/tenon-cni/tenon/packaging/internal/build"
	"github.com/tenon-cni/tenon/packaging/internal/modules"
	"github.com/tenon-cni/tenon/packaging/internal/release"
	"github.com/tenon-cni/tenon/packaging/internal/sums"
)

// Write writes tenon_VERSION_linux_ARCH.spdx.json, an SPDX 2.3 document, and returns its name.
func Write(_ context.Context, r *release.Release, t release.Target) (string, error) {
	name := r.Name("linux_" + t.Arch.Name + ".spdx.json")
	doc, err := document(r, t)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := json.Write(doc, &b, json.Indent("  ")); err != nil {
		return "", err
	}
	return r.Write(name, b.Bytes())
}

func document(r *release.Release, t release.Target) (*spdx.Document, error) {
	name := r.Name("linux_" + t.Arch.Name)
	doc := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: name,
		CreationInfo: &spdx.CreationInfo{
			Created: r.Time.UTC().Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Organization", Creator: "Tenon"},
				{CreatorType: "Tool", Creator: "tenon-dist-" + r.Version.String()}},
		},
	}
	programs, err := sums.Read(t.Bin, build.Programs())
	if err != nil {
		return nil, err
	}
	for _, p := range programs {
		doc.Packages = append(doc.Packages, ofProgram(p, r))
		relate(doc, "DOCUMENT", common.TypeRelationshipDescribe, elementID(p.Name))
		for _, used := range t.Modules.Uses[p.Name] {
			relate(doc, elementID(p.Name), common.TypeRelationshipStaticLink, elementID(used))
		}
	}
	for _, m := range t.Modules.Modules {
		doc.Packages = append(doc.Packages, ofModule(m))
	}
	// A document is unique by the content of the programs that it describes.
	unique := sha256.Sum256(fmt.Append(nil, programs))
	doc.DocumentNamespace = fmt.Sprintf("%s/spdx/%s-%x", modules.Home, name, unique[:8])
	return doc, nil
}

func ofProgram(p sums.Artefact, r *release.Release) *spdx.Package {
	return &spdx.Package{
		PackageName: p.Name, PackageSPDXIdentifier: common.ElementID(elementID(p.Name)),
		PackageVersion: r.Version.String(), PackageFileName: "bin/" + p.Name,
		PackageSupplier:         &common.Supplier{SupplierType: "Organization", Supplier: "Tenon"},
		PackageDownloadLocation: "git+" + modules.Home + "@" + r.Commit + "#cmd/" + p.Name,
		PackageChecksums: []common.Checksum{
			{Algorithm: common.SHA256, Value: p.SHA256}},
		PackageHomePage:         modules.Home,
		PackageLicenseConcluded: "Apache-2.0", PackageLicenseDeclared: "Apache-2.0",
		PackageCopyrightText: "NOASSERTION", PrimaryPackagePurpose: "APPLICATION",
		PackageExternalReferences: purl("pkg:golang/" + modules.Self + "@v" + r.Version.String() +
			"#cmd/" + p.Name),
	}
}

func ofModule(m modules.Module) *spdx.Package {
	p := &spdx.Package{
		PackageName: m.Path, PackageSPDXIdentifier: common.ElementID(elementID(m.Key())),
		PackageVersion:          m.Version,
		PackageDownloadLocation: "NOASSERTION",
		PackageLicenseConcluded: m.Licence, PackageLicenseDeclared: m.Licence,
		PackageCopyrightText: "NOASSERTION", PrimaryPackagePurpose: "LIBRARY",
		PackageExternalReferences: purl(m.PURL()),
	}
	if m.Sum != "" {
		p.PackageSourceInfo = "checksum in go.sum: " + m.Sum
	}
	return p
}

func purl(locator string) []*spdx.PackageExternalReference {
	return []*spdx.PackageExternalReference{{Category: common.CategoryPackageManager,
		RefType: common.TypePackageManagerPURL, Locator: locator}}
}

func relate(doc *spdx.Document, from, kind, to string) {
	doc.Relationships = append(doc.Relationships, &spdx.Relationship{Relationship: kind,
		RefA: common.MakeDocElementID("", from), RefB: common.MakeDocElementID("", to)})
}

// foreign matches characters that identifiers of SPDX cannot have.
var foreign = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func elementID(name string) string {
	if slices.Contains(build.Programs(), name) {
		return "Program-" + name
	}
	return "Module-" + foreign.ReplaceAllString(name, "-")
}
