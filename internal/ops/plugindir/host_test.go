package plugindir_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/internal/ops/plugindir"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// newHost returns a host below a temporary directory with the plugins bridge and ptp.
func newHost(t *testing.T) (*plugindir.Host, string) {
	t.Helper()
	root := t.TempDir()
	h := &plugindir.Host{
		Source: filepath.Join(root, "package"),
		Dirs:   []string{filepath.Join(root, "opt/cni/bin")},
		Shared: []string{filepath.Join(root, "lib/cni")},
	}
	write(t, filepath.Join(root, "package/bridge"), "tenon")
	write(t, filepath.Join(root, "package/ptp"), "tenon")
	return h, root
}

func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o755))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tree lists the directories, files with their content, and links below a directory.
func tree(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, root)
		switch d.Type() {
		case fs.ModeDir:
			b.WriteString(name + "/\n")
		case fs.ModeSymlink:
			to, err := os.Readlink(path)
			b.WriteString(name + " -> " + strings.TrimPrefix(to, root) + "\n")
			return err
		default:
			content, err := os.ReadFile(path)
			b.WriteString(name + ": " + strings.ReplaceAll(strings.TrimSpace(string(content)), root, "") + "\n")
			return err
		}
		return nil
	}))
	return b.String()
}

func link(t *testing.T, h *plugindir.Host) []plugindir.Directory {
	t.Helper()
	done, err := h.Link(t.Context())
	must(t, err)
	return done
}

// linkTwice also tests that a second run changes nothing.
func linkTwice(t *testing.T, h *plugindir.Host, root string) []plugindir.Directory {
	t.Helper()
	done := link(t, h)
	before := tree(t, root)
	again := link(t, h)
	if diff := cmp.Diff(done, again); diff != "" {
		t.Errorf("second run: %s", diff)
	}
	if diff := cmp.Diff(before, tree(t, root)); diff != "" {
		t.Errorf("second run: %s", diff)
	}
	return done
}

func expect(t *testing.T, root, want string) {
	t.Helper()
	if diff := cmp.Diff(want, tree(t, root)); diff != "" {
		t.Error(diff)
	}
}

func TestLinkCreatesAndRestoreRemovesTheDirectory(t *testing.T) {
	t.Parallel()
	h, root := newHost(t)
	before := tree(t, root)
	done := linkTwice(t, h, root)
	want := []plugindir.Directory{{Path: h.Dirs[0], Linked: 2}}
	if diff := cmp.Diff(want, done); diff != "" {
		t.Error(diff)
	}
	expect(t, filepath.Join(root, "opt"), `/
/cni/
/cni/bin/
/cni/bin/.created-by-tenon: 
/cni/bin/bridge -> `+filepath.Join(h.Source, "bridge")+`
/cni/bin/ptp -> `+filepath.Join(h.Source, "ptp")+"\n")
	must(t, h.Restore(t.Context()))
	expect(t, root, before)
}

func TestRestorePutsFilesBack(t *testing.T) {
	t.Parallel()
	h, root := newHost(t)
	write(t, filepath.Join(h.Dirs[0], "bridge"), "upstream")
	write(t, filepath.Join(h.Dirs[0], "calico"), "not ours")
	write(t, filepath.Join(h.Shared[0], "ptp"), "distribution's")
	must(t, os.Symlink("elsewhere", filepath.Join(h.Dirs[0], "ptp")))
	before := tree(t, root)
	done := linkTwice(t, h, root)
	want := []plugindir.Directory{
		{Path: h.Dirs[0], Linked: 2, Kept: 2}, {Path: h.Shared[0], Linked: 2, Kept: 1},
	}
	if diff := cmp.Diff(want, done); diff != "" {
		t.Error(diff)
	}
	must(t, h.Restore(t.Context()))
	must(t, h.Restore(t.Context()))
	expect(t, root, before)
}

// TestRestoreKeepsNewerFiles: a file that replaced a link stays, and the older one does not return.
func TestRestoreKeepsNewerFiles(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t)
	path := filepath.Join(h.Dirs[0], "bridge")
	write(t, path, "old")
	link(t, h)
	must(t, os.Remove(path))
	write(t, path, "new")
	must(t, h.Restore(t.Context()))
	expect(t, h.Dirs[0], "/\n/bridge: new\n")
}

// TestLinkLeavesDirectoryOfRemovedPackage: without other plugins, the distribution's directory is not
// used any more.
func TestLinkLeavesDirectoryOfRemovedPackage(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t)
	debug := filepath.Join(h.Shared[0], "debug")
	write(t, debug, "not a plugin of ours")
	link(t, h)
	must(t, os.Remove(debug))
	if done := link(t, h); len(done) != 1 {
		t.Errorf("%+v", done)
	}
	if _, err := os.Lstat(h.Shared[0]); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the empty directory remains: %v", err)
	}
}

// TestRestoreDropsEarlierInstallation: "tenon install" has installed an earlier version, in one
// place over an upstream plugin. Only the upstream plugin is restored, and the shared directory
// stays in use.
func TestRestoreDropsEarlierInstallation(t *testing.T) {
	t.Parallel()
	h, root := newHost(t)
	h.Ours = func(path string) bool {
		content, err := os.ReadFile(path)
		return err == nil && slices.Contains([]string{"earlier", "tenon"}, string(content))
	}
	for _, dir := range []string{h.Dirs[0], h.Shared[0]} {
		write(t, filepath.Join(dir, "bridge"), "earlier")
		write(t, filepath.Join(dir, "ptp"), "earlier")
	}
	write(t, plugindir.Kept(filepath.Join(h.Dirs[0], "bridge")), "upstream")
	link := filepath.Join(h.Dirs[0], "ptp") // of the user, and leads to the earlier version now
	must(t, os.Remove(link))
	must(t, os.Symlink(filepath.Join(h.Shared[0], "ptp"), link))
	for _, d := range linkTwice(t, h, root) {
		if d.Linked != 2 {
			t.Errorf("%+v", d)
		}
	}
	must(t, h.Restore(t.Context()))
	expect(t, h.Dirs[0], "/\n/bridge: upstream\n/ptp -> "+filepath.Join(h.Shared[0], "ptp")+"\n")
	if _, err := os.Lstat(h.Shared[0]); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the empty directory remains: %v", err)
	}
}

// TestPackageRemovedWithLinks: rpm does not know links and kept files. The removal of another
// package removes its links, and its upgrade replaces them.
func TestPackageRemovedWithLinks(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(h *plugindir.Host) error{
		"link":    func(h *plugindir.Host) error { _, err := h.Link(t.Context()); return err },
		"restore": func(h *plugindir.Host) error { return h.Restore(t.Context()) },
	} {
		h, root := newHost(t)
		bridge := filepath.Join(h.Shared[0], "bridge")
		write(t, bridge, "of another package")
		link(t, h)
		must(t, os.Remove(bridge))
		write(t, bridge, "its upgrade")
		linkTwice(t, h, root)
		if content, err := os.ReadFile(plugindir.Kept(bridge)); err != nil || string(content) != "its upgrade" {
			t.Errorf("kept %q, %v", content, err)
		}
		must(t, os.Remove(bridge))
		must(t, end(h))
		if _, err := os.Lstat(h.Shared[0]); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the directory remains: %v", name, err)
		}
	}
}

// TestLinkKeepsEmptyDirectory: an empty shared directory is from another program.
func TestLinkKeepsEmptyDirectory(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t)
	must(t, os.MkdirAll(h.Shared[0], 0o755))
	link(t, h)
	must(t, h.Restore(t.Context()))
	expect(t, h.Shared[0], "/\n")
}

func TestLinkRefusesDirectories(t *testing.T) {
	t.Parallel()
	h, _ := newHost(t)
	must(t, os.MkdirAll(filepath.Join(h.Dirs[0], "bridge"), 0o755))
	if _, err := h.Link(t.Context()); err == nil {
		t.Error("a directory was replaced")
	}
}

// withDpkg gives a host a package database in which package other owns lib/cni/bridge.
func withDpkg(t *testing.T, h *plugindir.Host, root string) {
	t.Helper()
	testnet.Require(t, testnet.Tool("dpkg-divert"), testnet.Tool("update-alternatives"))
	for _, dir := range []string{"dpkg/info", "dpkg/updates", "alternatives", "db"} {
		must(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	write(t, filepath.Join(root, "dpkg/status"), `Package: other
Status: install ok installed
Maintainer: Nobody <nobody@example.org>
Architecture: all
Version: 1
Description: owns a file

`)
	write(t, filepath.Join(root, "dpkg/info/format"), "1\n")
	write(t, filepath.Join(root, "dpkg/info/other.list"), filepath.Join(h.Shared[0], "bridge")+"\n")
	h.Dpkg = &plugindir.Dpkg{
		Package: "tenon", AdminDir: filepath.Join(root, "dpkg"), Alternatives: filepath.Join(root, "alternatives"),
		AlternativesDB: filepath.Join(root, "db"), AlternativesLog: filepath.Join(root, "log"),
	}
}

func TestFilesOfPackagesAreDiverted(t *testing.T) {
	t.Parallel()
	h, root := newHost(t)
	withDpkg(t, h, root)
	bridge, ptp := filepath.Join(h.Shared[0], "bridge"), filepath.Join(h.Shared[0], "ptp")
	write(t, bridge, "of package other")
	write(t, ptp, "of no package")
	before := tree(t, h.Shared[0])
	done := linkTwice(t, h, root)
	if got := done[1]; got.Diverted != 1 || got.Kept != 1 || got.Linked != 2 {
		t.Errorf("%+v", got)
	}
	content, err := os.ReadFile(bridge)
	if err != nil || string(content) != "tenon" {
		t.Errorf("bridge is %q, %v", content, err)
	}
	out, err := exec.Command("dpkg-divert", "--admindir", h.Dpkg.AdminDir, "--truename", bridge).Output()
	if err != nil || strings.TrimSpace(string(out)) != bridge+".distrib" {
		t.Errorf("truename %q, %v", out, err)
	}
	if links, err := h.Links(); err != nil || len(links) != 4 {
		t.Errorf("%q, %v", links, err)
	}
	must(t, h.Restore(t.Context()))
	must(t, h.Restore(t.Context()))
	expect(t, h.Shared[0], before)
	expect(t, filepath.Join(root, "alternatives"), "/\n")
	expect(t, filepath.Join(root, "db"), "/\n")
	if content, err := os.ReadFile(filepath.Join(root, "dpkg/diversions")); err != nil || len(content) > 0 {
		t.Errorf("diversions: %q, %v", content, err)
	}
}

// TestOtherPackageRemoved: dpkg removes the diverted file of a removed package; the next run removes
// the diversion.
func TestOtherPackageRemoved(t *testing.T) {
	t.Parallel()
	h, root := newHost(t)
	withDpkg(t, h, root)
	bridge := filepath.Join(h.Shared[0], "bridge")
	write(t, bridge, "of package other")
	link(t, h)
	must(t, os.Remove(bridge+".distrib"))
	write(t, filepath.Join(h.Shared[0], "debug"), "keeps the directory in use")
	if done := linkTwice(t, h, root); done[1].Diverted != 0 || done[1].Linked != 2 {
		t.Errorf("%+v", done)
	}
	if to, err := os.Readlink(bridge); err != nil || to != filepath.Join(h.Source, "bridge") {
		t.Errorf("bridge leads to %q, %v", to, err)
	}
	expect(t, filepath.Join(root, "db"), "/\n")
}

// TestInterruptedDiversion repeats runs that ended between two programs of dpkg.
func TestInterruptedDiversion(t *testing.T) {
	t.Parallel()
	h, root := newHost(t)
	withDpkg(t, h, root)
	bridge := filepath.Join(h.Shared[0], "bridge")
	write(t, bridge, "of package other")
	before := tree(t, h.Shared[0])
	removeTenon := func() {
		t.Helper()
		out, err := exec.Command("update-alternatives", "--altdir", h.Dpkg.Alternatives, "--admindir", h.Dpkg.AlternativesDB,
			"--log", h.Dpkg.AlternativesLog, "--remove", strings.ReplaceAll(strings.Trim(bridge, "/"), "/", "-"),
			filepath.Join(h.Source, "bridge")).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	expectTenon := func() {
		t.Helper()
		if content, err := os.ReadFile(bridge); err != nil || string(content) != "tenon" {
			t.Errorf("bridge is %q, %v", content, err)
		}
	}
	link(t, h)
	removeTenon() // as if Link had registered the first of both files only
	linkTwice(t, h, root)
	expectTenon()
	removeTenon() // as if Restore had been interrupted
	must(t, os.Rename(bridge+".distrib", bridge))
	linkTwice(t, h, root) // dpkg keeps the package
	expectTenon()
	removeTenon()
	must(t, os.Rename(bridge+".distrib", bridge))
	must(t, h.Restore(t.Context()))
	expect(t, h.Shared[0], before)
	expectNoTraces(t, root)

	divert := func() {
		t.Helper()
		if out, err := exec.Command("dpkg-divert", "--admindir", h.Dpkg.AdminDir, "--package", "tenon", "--divert",
			bridge+".distrib", "--no-rename", "--add", bridge).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	divert()
	must(t, os.Link(bridge, bridge+".distrib")) // as if Link had registered no alternative
	must(t, h.Restore(t.Context()))
	expect(t, h.Shared[0], before)
	expectNoTraces(t, root)
	divert()
	write(t, bridge+".distrib", "its upgrade") // dpkg writes to the diverted name
	linkTwice(t, h, root)
	expectTenon()
	must(t, h.Restore(t.Context()))
	expect(t, h.Shared[0], "/\n/bridge: its upgrade\n")
	expectNoTraces(t, root)
}

// expectNoTraces expects neither diversions nor alternatives.
func expectNoTraces(t *testing.T, root string) {
	t.Helper()
	expect(t, filepath.Join(root, "db"), "/\n")
	if content, err := os.ReadFile(filepath.Join(root, "dpkg/diversions")); err != nil || len(content) > 0 {
		t.Errorf("diversions: %q, %v", content, err)
	}
}
