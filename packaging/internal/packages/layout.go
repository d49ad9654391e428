package packages

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/packaging/internal/archive"
	"github.com/tenon-cni/tenon/packaging/internal/release"
	"github.com/tenon-cni/tenon/plugins/all"
)

const (
	docDir = "usr/share/doc/tenon"
	// pluginDir has a link for each plugin; see "tenon install --system".
	pluginDir = "usr/lib/tenon/cni"
)

// layout lists the directories in which a distribution expects files.
type layout struct {
	zsh      string // completions of zsh
	licences string // directory of the licence texts
	units    bool   // the distribution has systemd
	ownDirs  bool   // the package lists directories and marks documents, as rpm expects
	// extra returns files of this format only.
	extra func(r *release.Release) []archive.File
}

func debian() layout {
	return layout{zsh: "usr/share/zsh/vendor-completions", licences: docDir, units: true,
		extra: debianDocs}
}

func fedora() layout {
	return layout{zsh: "usr/share/zsh/site-functions", licences: "usr/share/licenses/tenon", units: true,
		ownDirs: true}
}

func alpine() layout {
	return layout{zsh: "usr/share/zsh/site-functions", licences: "usr/share/licenses/tenon",
		extra: openRC}
}

// files returns the files of a package.
func (l layout) files(r *release.Release, t release.Target) (list []archive.File, err error) {
	for _, f := range t.Files {
		to := l.place(f.Path)
		if to == "" {
			continue
		}
		f.Path = to
		if f, err = adapt(f); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		list = append(list, f)
	}
	list = append(list, plugins()...)
	for name, source := range map[string]string{
		"CHANGELOG.md.gz":        "CHANGELOG.md",
		"examples/pods.conflist": "packaging/examples/pods.conflist",
		"examples/cluster.json":  "packaging/examples/cluster.json",
	} {
		f, err := adapt(archive.File{Path: path.Join(docDir, name), Source: filepath.Join(r.Root, source)})
		if err != nil {
			return nil, err
		}
		list = append(list, f)
	}
	if l.extra != nil {
		list = append(list, l.extra(r)...)
	}
	return list, archive.Sort(list)
}

// place returns the path of a file of the release in the package, or "" if the package lacks it.
func (l layout) place(file string) string {
	dir, base := path.Split(file)
	switch dir {
	case "bin/":
		return "usr/" + file
	case "share/man/man8/":
		return "usr/" + file + ".gz"
	case "lib/systemd/system/":
		if l.units {
			return "usr/" + file
		}
		return ""
	case "share/completion/bash/":
		return "usr/share/bash-completion/completions/" + base
	case "share/completion/zsh/":
		return path.Join(l.zsh, base)
	case "share/completion/fish/":
		return "usr/share/fish/vendor_completions.d/" + base
	}
	switch file {
	case "README.md":
		return path.Join(docDir, file)
	case "LICENSE":
		if l.licences == docDir { // Debian has the text in common-licenses
			return ""
		}
		return path.Join(l.licences, file)
	case "THIRD-PARTY-LICENSES":
		return path.Join(l.licences, file+".gz")
	}
	return "" // for example, the install script of the archive
}

// adapt compresses files with the suffix .gz, and sets the path of the programs in units.
func adapt(f archive.File) (archive.File, error) {
	unit := strings.HasPrefix(f.Path, "usr/lib/systemd/")
	if !unit && !strings.HasSuffix(f.Path, ".gz") {
		return f, nil
	}
	content, err := f.Read()
	if err != nil {
		return f, err
	}
	if unit {
		content = bytes.ReplaceAll(content, []byte("/usr/local/bin/"), []byte("/usr/bin/"))
	} else {
		content = compress(content)
	}
	f.Source, f.Data = "", content
	return f, nil
}

// compress returns the same bytes for the same content: the header has neither name nor time.
func compress(content []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
	_, _ = w.Write(content)                               // a buffer accepts everything
	_ = w.Close()
	return b.Bytes()
}

// plugins returns a link to its program for each plugin.
func plugins() (links []archive.File) {
	link := func(plugin, program string) {
		links = append(links, archive.File{Path: path.Join(pluginDir, plugin),
			Link: "../../../bin/" + program})
	}
	for _, p := range all.Plugins {
		link(p.Name, "tenon")
	}
	for _, p := range all.Programs {
		link(p.Name, p.Program)
	}
	return links
}

// debianDocs returns the copyright and the changelog in Debian's forms.
func debianDocs(r *release.Release) []archive.File {
	copyright := fmt.Sprintf(`Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Tenon
Source: `+homepage+`

Files: *
Copyright: %d The Tenon authors
License: Apache-2.0

License: Apache-2.0
 The text is in /usr/share/common-licenses/Apache-2.0.
Comment:
 The licences of the Go modules in the programs are in
 /usr/share/doc/tenon/THIRD-PARTY-LICENSES.gz.
`, r.Time.UTC().Year())
	changelog := fmt.Sprintf("%s (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md.gz.\n\n -- %s  %s\n",
		name, r.Version.Debian(), maintainer, r.Time.UTC().Format(time.RFC1123Z))
	return []archive.File{
		{Path: docDir + "/copyright", Data: []byte(copyright)},
		{Path: docDir + "/changelog.gz", Data: compress([]byte(changelog))},
		{Path: "usr/share/lintian/overrides/" + name,
			Source: filepath.Join(r.Root, "packaging/scripts/deb/lintian-overrides")},
	}
}

// openRC returns the services of OpenRC.
func openRC(r *release.Release) (list []archive.File) {
	for _, service := range []string{"tenon-cluster", "tenon-dhcp", "tenon-repair", "tenon-watch"} {
		list = append(list, archive.File{Path: "etc/init.d/" + service, Mode: 0o755,
			Source: filepath.Join(r.Root, "contrib/openrc", service)})
	}
	return list
}
