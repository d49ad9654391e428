// Package packages writes the deb, rpm and apk packages of a release with nfpm. All three install
// the same files; they differ in the directories of documents and completions, and in the scripts
// (packaging/scripts).
package packages

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/apk"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"

	"github.com/tenon-cni/tenon/packaging/internal/archive"
	"github.com/tenon-cni/tenon/packaging/internal/modules"
	"github.com/tenon-cni/tenon/packaging/internal/release"
)

const (
	name        = "tenon"
	maintainer  = "The Tenon authors <maintainers@tenon-cni.invalid>"
	homepage    = modules.Home
	description = `Network for containers: CNI plugins and the command that runs them
Tenon contains every standard plugin of the Container Network Interface (CNI)
in one static program, the command tenon, which attaches containers and shows
their network, a DHCP daemon, the plugin for Open vSwitch, and the agent for
clusters that share address pools in etcd. The package links the plugins in
/opt/cni/bin and restores earlier plugins when it is removed.`
)

// format is a package format.
type format struct {
	name     string
	packager nfpm.Packager
	arches   map[string]string // names of processors that differ from Go's
	layout   layout
	// fill adds the settings of this format. It may write files into a directory.
	fill func(dir string, info *nfpm.Info, r *release.Release) error
}

// Deb writes tenon_VERSION_linux_ARCH.deb and returns its name.
func Deb(_ context.Context, r *release.Release, t release.Target) (string, error) {
	return format{
		name: "deb", packager: deb.Default, layout: debian(),
		arches: map[string]string{"arm": "armhf", "ppc64le": "ppc64el"},
		fill:   fillDeb,
	}.write(r, t)
}

// RPM writes tenon_VERSION_linux_ARCH.rpm and returns its name.
func RPM(_ context.Context, r *release.Release, t release.Target) (string, error) {
	return format{
		name: "rpm", packager: rpm.DefaultRPM, layout: fedora(),
		arches: map[string]string{"amd64": "x86_64", "arm64": "aarch64", "arm": "armv7hl"},
		fill:   fillRPM,
	}.write(r, t)
}

// APK writes tenon_VERSION_linux_ARCH.apk and returns its name. The package is not signed.
func APK(_ context.Context, r *release.Release, t release.Target) (string, error) {
	return format{
		name: "apk", packager: apk.Default, layout: alpine(),
		arches: map[string]string{"amd64": "x86_64", "arm64": "aarch64", "arm": "armv7"},
		fill:   fillAPK,
	}.write(r, t)
}

func (f format) write(r *release.Release, t release.Target) (string, error) {
	dir, err := os.MkdirTemp("", "tenon-package-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }() // only files of this run
	installed, err := f.layout.files(r, t)
	if err != nil {
		return "", err
	}
	contents, err := f.layout.stage(dir, r, installed)
	if err != nil {
		return "", err
	}
	info := &nfpm.Info{
		Name: name, Arch: t.Arch.Name, Platform: "linux", VersionSchema: "none",
		Maintainer: maintainer, Vendor: "Tenon", Homepage: homepage, License: "Apache-2.0",
		Description: description, Section: "net", Priority: "optional", MTime: r.Time,
		DisableGlobbing: true,
	}
	info.Contents = append(contents, f.layout.directories(r, installed)...)
	if arch, ok := f.arches[t.Arch.Name]; ok {
		info.Arch = arch
	}
	if err := f.fill(dir, info, r); err != nil {
		return "", err
	}
	if err := stageScripts(dir, r.Time, info); err != nil {
		return "", err
	}
	if err := nfpm.PrepareForPackager(nfpm.WithDefaults(info), f.name); err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := f.packager.Package(info, &b); err != nil {
		return "", err
	}
	return r.Write(r.Name("linux_"+t.Arch.Name)+"."+f.name, b.Bytes())
}

// stage writes files without a source into a directory, because nfpm copies files.
func (l layout) stage(dir string, r *release.Release, list []archive.File,
) (contents files.Contents, err error) {
	for i, f := range list {
		c := &files.Content{Destination: "/" + f.Path, Source: f.Source, FileInfo: &files.ContentFileInfo{
			Owner: "root", Group: "root", Mode: f.Perm(), MTime: r.Time}}
		if l.ownDirs {
			c.Type = kind(f.Path)
		}
		switch {
		case f.Link != "":
			c.Source, c.Type, c.FileInfo.Mode = f.Link, files.TypeSymlink, 0
		case f.Source == "":
			c.Source = filepath.Join(dir, fmt.Sprint(i))
			if err := os.WriteFile(c.Source, f.Data, 0o600); err != nil {
				return nil, err
			}
		}
		contents = append(contents, c)
	}
	return contents, nil
}

// directories returns the directories that rpm removes with the package.
func (l layout) directories(r *release.Release, list []archive.File) (contents files.Contents) {
	if !l.ownDirs {
		return nil
	}
	known := map[string]bool{".": true}
	for _, dir := range strings.Fields(`usr usr/bin usr/lib usr/lib/systemd usr/lib/systemd/system
		usr/share usr/share/doc usr/share/man usr/share/man/man8`) {
		known[dir] = true
	}
	for _, f := range list {
		for dir := path.Dir(f.Path); !known[dir]; dir = path.Dir(dir) {
			known[dir] = true
			contents = append(contents, &files.Content{Destination: "/" + dir, Type: files.TypeDir,
				FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: 0o755, MTime: r.Time}})
		}
	}
	return contents
}

// kind marks documents and licences for rpm. nfpm leaves marked files out of other packages.
func kind(file string) string {
	switch {
	case strings.HasPrefix(file, "usr/share/licenses/"):
		return files.TypeRPMLicence
	case strings.HasPrefix(file, docDir), strings.HasPrefix(file, "usr/share/man/"):
		return files.TypeRPMDoc
	}
	return files.TypeFile
}

// stageScripts copies the scripts of a package into a directory and gives the copies one time,
// because apk packages contain the times of the files.
func stageScripts(dir string, at time.Time, info *nfpm.Info) error {
	for i, script := range []*string{&info.Scripts.PostInstall, &info.Scripts.PreRemove,
		&info.Scripts.PostRemove, &info.APK.Scripts.PostUpgrade} {
		if *script == "" {
			continue
		}
		content, err := os.ReadFile(*script)
		if err != nil {
			return err
		}
		*script = filepath.Join(dir, fmt.Sprint("script", i))
		if err := os.WriteFile(*script, content, 0o600); err != nil {
			return err
		}
		if err := os.Chtimes(*script, at, at); err != nil {
			return err
		}
	}
	return nil
}

// script returns the path of a script of a package.
func script(r *release.Release, format, name string) string {
	return filepath.Join(r.Root, "packaging", "scripts", format, name)
}

func fillDeb(_ string, info *nfpm.Info, r *release.Release) error {
	info.Version = r.Version.Debian()
	info.Deb.Arch = info.Arch
	info.Suggests = []string{"iptables", "systemd"}
	info.Scripts.PostInstall = script(r, "deb", "postinst")
	info.Scripts.PreRemove = script(r, "deb", "prerm")
	info.Scripts.PostRemove = script(r, "deb", "postrm")
	// Packages that install plugins later run postinst triggered, which diverts their files.
	info.Deb.Triggers.InterestNoAwait = []string{"/opt/cni/bin", "/usr/lib/cni"}
	return nil
}

func fillRPM(dir string, info *nfpm.Info, r *release.Release) error {
	info.Version, info.Release = r.Version.RPM(), "1"
	info.RPM.Arch, info.RPM.BuildHost = info.Arch, name
	info.RPM.Group = "System Environment/Base"
	info.Suggests = []string{"iptables", "systemd"}
	info.Scripts.PostInstall = script(r, "rpm", "post")
	info.Scripts.PreRemove = script(r, "rpm", "preun")
	info.Scripts.PostRemove = script(r, "rpm", "postun")
	// rpmbuild finds the interpreters of scripts, and nfpm does not.
	info.Depends = []string{"/bin/sh"}
	info.Changelog = filepath.Join(dir, "changelog.yaml")
	entry := fmt.Sprintf("- semver: %s-%s\n  date: %s\n  packager: %s\n  changes:\n  - note: %s\n",
		info.Version, info.Release, r.Time.UTC().Format(time.RFC3339), maintainer,
		"See /"+docDir+"/CHANGELOG.md.gz")
	return os.WriteFile(info.Changelog, []byte(entry), 0o600)
}

func fillAPK(_ string, info *nfpm.Info, r *release.Release) error {
	info.Version, info.Release = r.Version.Alpine(), "0"
	info.APK.Arch = info.Arch
	info.Scripts.PostInstall = script(r, "apk", "post-install")
	info.APK.Scripts.PostUpgrade = script(r, "apk", "post-install")
	info.Scripts.PreRemove = script(r, "apk", "pre-deinstall")
	info.Scripts.PostRemove = script(r, "apk", "post-deinstall")
	info.Depends = []string{"/bin/sh"} // of the scripts, as abuild adds
	return nil
}
