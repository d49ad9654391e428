package packages_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/packaging/internal/archive"
	"github.com/tenon-cni/tenon/packaging/internal/build"
	"github.com/tenon-cni/tenon/packaging/internal/packages"
	"github.com/tenon-cni/tenon/packaging/internal/release"
	"github.com/tenon-cni/tenon/packaging/internal/version"
	"github.com/tenon-cni/tenon/plugins/all"
)

// sample returns a release with short files in place of programs.
func sample(t *testing.T, arch string) (*release.Release, release.Target) {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	target := release.Target{Arch: build.Arch{Name: arch}, Files: []archive.File{
		{Path: "LICENSE", Data: []byte("licence")},
		{Path: "README.md", Data: []byte("readme")},
		{Path: "THIRD-PARTY-LICENSES", Data: []byte("licences")},
		{Path: "share/man/man8/tenon.8", Data: []byte(".TH TENON 8\n")},
		{Path: "share/completion/bash/tenon", Data: []byte("# bash\n")},
		{Path: "share/completion/zsh/_tenon", Data: []byte("# zsh\n")},
		{Path: "share/completion/fish/tenon.fish", Data: []byte("# fish\n")},
		{Path: "install.sh", Mode: 0o755, Data: []byte("of the archive only")},
		{Path: "lib/systemd/system/tenon-dhcp.service",
			Source: filepath.Join(root, "contrib/systemd/tenon-dhcp.service")},
	}}
	for _, program := range build.Programs() {
		target.Files = append(target.Files, archive.File{
			Path: "bin/" + program, Mode: 0o755, Data: []byte(program)})
	}
	return &release.Release{
		Version: version.Version{Minor: 2, Stage: "rc", Number: 1}, Root: root, Out: t.TempDir(),
		Time: time.Unix(1780000000, 0),
	}, target
}

// content describes a file of a package.
type content struct {
	mode string
	data string // of a file, or the target of a link
}

// read returns the files of a tar archive.
func read(t *testing.T, r io.Reader, files map[string]content) {
	t.Helper()
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s belongs to %d:%d", h.Name, h.Uid, h.Gid)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(h.Name, "./")
		mode := h.FileInfo().Mode().String()
		if h.Typeflag == tar.TypeSymlink {
			mode = "link" // its permissions have no meaning
		}
		files[name] = content{mode, h.Linkname + string(data)}
	}
}

// debFiles returns the files that a deb package installs, and its control files with prefix DEBIAN/.
func debFiles(t *testing.T, path string) map[string]content {
	t.Helper()
	files, control := map[string]content{}, map[string]content{}
	for option, to := range map[string]map[string]content{"--fsys-tarfile": files, "--ctrl-tarfile": control} {
		out, err := exec.Command("dpkg-deb", option, path).Output()
		if err != nil {
			t.Fatal(err)
		}
		read(t, bytes.NewReader(out), to)
	}
	for name, f := range control {
		files["DEBIAN/"+name] = f
	}
	return files
}

// apkFiles returns the files of an apk package, which is a series of gzip streams, each with a part
// of one tar archive.
func apkFiles(t *testing.T, path string) map[string]content {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]content{}
	read(t, z, files)
	return files
}

// contains compares some files of a package: a mode, and the beginning of the data.
func contains(t *testing.T, files map[string]content, want map[string]content) {
	t.Helper()
	for name, w := range want {
		got, ok := files[name]
		if !ok {
			t.Errorf("no %s in %q", name, slices.Sorted(maps.Keys(files)))
		} else if got.mode != w.mode || !strings.HasPrefix(got.data, w.data) {
			t.Errorf("%s: %s %q, expected %s %q", name, got.mode, got.data, w.mode, w.data)
		}
	}
}

func common() map[string]content {
	const gzipped = "\x1f\x8b"
	want := map[string]content{
		"usr/bin/tenon":                                  {"-rwxr-xr-x", "tenon"},
		"usr/bin/tenon-ovs":                              {"-rwxr-xr-x", "tenon-ovs"},
		"usr/share/man/man8/tenon.8.gz":                  {"-rw-r--r--", gzipped},
		"usr/share/bash-completion/completions/tenon":    {"-rw-r--r--", "# bash"},
		"usr/share/fish/vendor_completions.d/tenon.fish": {"-rw-r--r--", "# fish"},
		"usr/share/doc/tenon/examples/pods.conflist":     {"-rw-r--r--", "{"},
		"usr/lib/tenon/cni/ovs":                          {"link", "../../../bin/tenon-ovs"},
	}
	for _, p := range all.Plugins {
		want["usr/lib/tenon/cni/"+p.Name] = content{"link", "../../../bin/tenon"}
	}
	return want
}

func TestDeb(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("dpkg-deb"))
	r, target := sample(t, "arm")
	name, err := packages.Deb(t.Context(), r, target)
	if err != nil || name != "tenon_0.2.0-rc.1_linux_arm.deb" {
		t.Fatalf("%s, %v", name, err)
	}
	files := debFiles(t, filepath.Join(r.Out, name))
	contains(t, files, common())
	contains(t, files, map[string]content{
		"DEBIAN/control":                          {"-rw-r--r--", "Package: tenon\nVersion: 0.2.0~rc.1\n"},
		"DEBIAN/postinst":                         {"-rwxr-xr-x", "#!/bin/sh\n"},
		"DEBIAN/prerm":                            {"-rwxr-xr-x", "#!/bin/sh\n"},
		"DEBIAN/postrm":                           {"-rwxr-xr-x", "#!/bin/sh\n"},
		"DEBIAN/triggers":                         {"-rw-r--r--", "interest-noawait /opt/cni/bin\n"},
		"usr/share/doc/tenon/copyright":           {"-rw-r--r--", "Format:"},
		"usr/share/zsh/vendor-completions/_tenon": {"-rw-r--r--", "# zsh"},
	})
	if control := files["DEBIAN/control"].data; !strings.Contains(control, "Architecture: armhf\n") {
		t.Error(control)
	}
	unit := files["usr/lib/systemd/system/tenon-dhcp.service"].data
	if !strings.Contains(unit, "ExecStart=/usr/bin/tenon ") || strings.Contains(unit, "/usr/local") {
		t.Error(unit)
	}
	for name := range files {
		if strings.HasSuffix(name, "install.sh") {
			t.Errorf("%s is in the package", name)
		}
	}
}

func TestAPK(t *testing.T) {
	t.Parallel()
	r, target := sample(t, "arm64")
	name, err := packages.APK(t.Context(), r, target)
	if err != nil {
		t.Fatal(err)
	}
	files := apkFiles(t, filepath.Join(r.Out, name))
	want := common()
	maps.Copy(want, map[string]content{
		".post-install":                             {"-rwxr-xr-x", "#!/bin/sh\n"},
		".post-upgrade":                             {"-rwxr-xr-x", "#!/bin/sh\n"},
		".pre-deinstall":                            {"-rwxr-xr-x", "#!/bin/sh\n"},
		".post-deinstall":                           {"-rwxr-xr-x", "#!/bin/sh\n"},
		"usr/share/licenses/tenon/LICENSE":          {"-rw-r--r--", "licence"},
		"usr/share/zsh/site-functions/_tenon":       {"-rw-r--r--", "# zsh"},
		"usr/share/doc/tenon/CHANGELOG.md.gz":       {"-rw-r--r--", "\x1f\x8b"},
		"usr/share/doc/tenon/examples/cluster.json": {"-rw-r--r--", "{"},
		"etc/init.d/tenon-cluster":                  {"-rwxr-xr-x", "#!/sbin/openrc-run\n"},
		"etc/init.d/tenon-dhcp":                     {"-rwxr-xr-x", "#!/sbin/openrc-run\n"},
		"etc/init.d/tenon-repair":                   {"-rwxr-xr-x", "#!/sbin/openrc-run\n"},
		"etc/init.d/tenon-watch":                    {"-rwxr-xr-x", "#!/sbin/openrc-run\n"},
	})
	contains(t, files, want)
	for name := range files {
		if strings.Contains(name, "systemd") {
			t.Errorf("%s is in the package, and Alpine has no systemd", name)
		}
	}
	info := files[".PKGINFO"].data
	for _, line := range []string{"pkgname = tenon", "pkgver = 0.2.0_rc1-r0", "arch = aarch64", "depend = /bin/sh"} {
		if !strings.Contains(info, line+"\n") {
			t.Errorf("no %q in %s", line, info)
		}
	}
}

// TestReproducible writes each package twice.
func TestReproducible(t *testing.T) {
	t.Parallel()
	for format, write := range map[string]func(context.Context, *release.Release, release.Target,
	) (string, error){"deb": packages.Deb, "rpm": packages.RPM, "apk": packages.APK} {
		var first []byte
		for range 2 {
			r, target := sample(t, "s390x")
			name, err := write(t.Context(), r, target)
			if err != nil {
				t.Fatalf("%s: %v", format, err)
			}
			content, err := os.ReadFile(filepath.Join(r.Out, name))
			if err != nil {
				t.Fatal(err)
			}
			if first != nil && !bytes.Equal(first, content) {
				t.Errorf("%s differs", format)
			}
			first = content
		}
	}
}
