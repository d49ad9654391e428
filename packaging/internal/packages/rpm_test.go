//go:build packages

package packages_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// otherRPM writes a package like Fedora's containernetworking-plugins and returns its path.
func otherRPM(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	info := &nfpm.Info{Name: "containernetworking-plugins", Version: version, Release: "1", Arch: "noarch",
		Platform: "linux"}
	info.Contents = files.Contents{{Destination: "/usr/libexec/cni", Type: files.TypeDir,
		FileInfo: &files.ContentFileInfo{Mode: 0o755}}}
	for _, name := range []string{"bridge", "host-local", "sample"} {
		source := filepath.Join(dir, name)
		must(t, os.WriteFile(source, []byte(name+version), 0o755))
		info.Contents = append(info.Contents, &files.Content{Source: source, Destination: "/usr/libexec/cni/" + name,
			FileInfo: &files.ContentFileInfo{Mode: 0o755}})
	}
	must(t, nfpm.PrepareForPackager(nfpm.WithDefaults(info), "rpm"))
	path := filepath.Join(dir, "other-"+version+".rpm")
	w, err := os.Create(path)
	must(t, err)
	defer w.Close()
	must(t, rpm.DefaultRPM.Package(info, w))
	return path
}

// TestRPMOtherPackage installs, upgrades and removes the distribution's plugins before and after the
// package. rpm runs no script of ours then: "tenon install --system" links the plugins again, as
// docs/install.md describes.
func TestRPMOtherPackage(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	rpm := func(args string) { m.Helper(); m.inside("rpm --root " + m.root + " " + args) }
	const linked = "cmp /usr/libexec/cni/bridge /usr/bin/tenon && cmp /usr/libexec/cni/ptp /usr/bin/tenon"
	again := commands(t, "## Packages")[0][0]
	if again != "sudo tenon install --system" {
		t.Fatal(again)
	}
	rpm("--initdb")
	before := m.state()
	first, second := otherRPM(t, "1"), otherRPM(t, "2")
	rpm("--nodeps --ignoreos -i " + first)
	withOther := m.state()

	rpm("--nodeps --ignoreos -i " + packageFile(t, older, "rpm")) // after the distribution's plugins
	m.run(linked + "; grep -x sample1 /usr/libexec/cni/sample")
	m.attach()
	p := m.ping("web", gateway)
	rpm("--nodeps --ignoreos -U " + second)
	m.run("tenon install --system; " + linked + "; grep -x bridge2 /usr/libexec/cni/bridge.before-tenon")
	rpm("--nodeps --ignoreos -U --oldpackage " + first)
	m.run("tenon install --system; " + linked)
	m.run("tenon check pods web")
	p.done()
	m.run("tenon del pods web; tenon net rm pods; ip netns del web")
	rpm("-e tenon")
	m.same(withOther, m.state())

	rpm("--nodeps --ignoreos -i " + packageFile(t, older, "rpm")) // removed after the distribution's plugins
	rpm("-e containernetworking-plugins")
	rpm("-e tenon")
	m.unchanged(before)

	rpm("--nodeps --ignoreos -i " + packageFile(t, older, "rpm")) // before the distribution's plugins
	rpm("--nodeps --ignoreos -i " + first)
	m.run("tenon install --system; " + linked)
	rpm("-e containernetworking-plugins")
	m.run("tenon install --system; test ! -e /usr/libexec/cni; cmp /opt/cni/bin/bridge /usr/bin/tenon")
	rpm("-e tenon")
	m.unchanged(before)
}
