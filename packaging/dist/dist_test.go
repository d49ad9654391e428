package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	_ "time/tzdata" // a time zone other than UTC on every host

	spdxjson "github.com/spdx/tools-golang/json"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/packaging/internal/build"
	"github.com/tenon-cni/tenon/packaging/internal/sums"
)

// With -full, TestDist builds all artefacts for all processors, the second time without Go's build
// cache.
var full = flag.Bool("full", false, "build everything, without a cache (make test-release STAGES=dist)")

// runVariable makes TestMain run dist itself.
const runVariable = "TENON_DIST_TEST_RUN"

func TestMain(m *testing.M) {
	if os.Getenv(runVariable) != "" {
		os.Exit(run())
	}
	os.Exit(m.Run())
}

// TestDist builds a release twice and compares the artefacts: once from the repository, and once
// elsewhere. It also examines the artefacts. Without -full it builds the archive for the processor
// of the test.
func TestDist(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("git"), testnet.Tool("sha256sum"), userNamespaces)
	if *full {
		testnet.Require(t, testnet.Root, testnet.Linux(6, 7), testnet.Tool("qemu-s390x-static"))
	}
	copied := copyOfRepository(t)
	first := options{root: "../..", out: t.TempDir(), builder: "https://ci.example/builder",
		environ: os.Environ()}
	if !*full {
		first.arches, first.only = runtime.GOARCH, "tar,sbom,script"
	}
	var log bytes.Buffer
	if err := first.run(t.Context(), &log); err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	t.Logf("\n%s", &log)
	second := first
	second.root, second.out = copied, t.TempDir()
	t.Logf("\n%s", runElsewhere(t, second))
	names := files(t, first.out)
	if other := files(t, second.out); !slices.Equal(names, other) {
		t.Fatalf("the first build wrote %q, the second %q", names, other)
	}
	for _, name := range names {
		if !bytes.Equal(read(t, first.out, name), read(t, second.out, name)) {
			t.Errorf("%s differs between the two builds", name)
		}
	}
	t.Run("checksums", func(t *testing.T) { checkSums(t, first.out, names) })
	t.Run("provenance", func(t *testing.T) { checkProvenance(t, first.out, names) })
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			switch {
			case strings.Contains(name, "_linux_") && strings.HasSuffix(name, ".tar.gz"):
				checkArchive(t, filepath.Join(first.out, name))
			case strings.HasSuffix(name, ".spdx.json"):
				checkSBOM(t, read(t, first.out, name))
			}
		})
	}
}

func userNamespaces() error {
	return exec.Command("unshare", "--user", "--map-root-user", "--uts", "true").Run()
}

// runElsewhere runs dist in a process of its own: as another user, on a host with another name,
// with another home directory, time zone, language, umask and number of threads, and with settings
// of the go command that must not reach the binaries. With -full, the caches of builds and modules
// are empty.
func runElsewhere(t *testing.T, o options) (log string) {
	t.Helper()
	home := t.TempDir()
	environ := append(os.Environ(), runVariable+"=1", "TENON_RELEASE_KEY=", "HOME="+home,
		"USER=other", "LOGNAME=other", "TMPDIR="+t.TempDir(), "TZ=Asia/Kathmandu", "LANG=tr_TR.UTF-8",
		"LC_ALL=C.UTF-8", "GOFLAGS=-tags=other -ldflags=-B=0x01", "GOAMD64=v3", "GOARM=5",
		"GOEXPERIMENT=nogreenteagc", "CGO_ENABLED=1", "GOOS=darwin", "GOMAXPROCS=3")
	caches := strings.Fields(output(t, "", "go", "env", "GOCACHE", "GOMODCACHE"))
	if *full {
		empty := t.TempDir()
		environ = append(environ, "GOCACHE="+t.TempDir(), "GOMODCACHE="+empty,
			"GOPROXY=file://"+caches[1]+"/cache/download")
		t.Cleanup(func() { // its directories are read-only
			clean := exec.Command("go", "clean", "-modcache")
			clean.Env = append(os.Environ(), "GOMODCACHE="+empty)
			if err := clean.Run(); err != nil {
				t.Error(err)
			}
		})
	} else {
		environ = append(environ, "GOCACHE="+caches[0], "GOMODCACHE="+caches[1])
	}
	const become = `hostname elsewhere && umask 077 &&
		exec unshare --user --map-user=1234 --map-group=1234 "$@"`
	cmd := exec.CommandContext(t.Context(), "unshare", "--user", "--map-root-user", "--uts",
		"sh", "-c", become, "sh", os.Args[0], "-root", o.root, "-out", o.out,
		"-builder", o.builder, "-arch", o.arches, "-only", o.only)
	cmd.Env = environ
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// copyOfRepository clones the repository and repeats the changes of the working tree. The copy is
// in memory if possible: that file system lists files in another order.
func copyOfRepository(t *testing.T) (dir string) {
	t.Helper()
	parent, err := os.MkdirTemp("/dev/shm", "tenon-dist-test-")
	if err != nil {
		parent = t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(parent); err != nil {
			t.Error(err)
		}
	})
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(parent, "copy")
	output(t, "", "git", "clone", "-q", "--shared", root, dir)
	changes := output(t, root, "git", "status", "--porcelain", "--no-renames", "-uall", "-z")
	for change := range strings.SplitSeq(strings.TrimSuffix(changes, "\x00"), "\x00") {
		if change == "" {
			continue
		}
		name := change[len("XY "):]
		content, err := os.ReadFile(filepath.Join(root, name))
		target := filepath.Join(dir, name)
		if errors.Is(err, fs.ErrNotExist) {
			err = os.Remove(target)
		} else if err == nil {
			if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil {
				err = os.WriteFile(target, content, 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// checkSums runs sha256sum. All artefacts have a checksum.
func checkSums(t *testing.T, dir string, names []string) {
	output(t, dir, "sha256sum", "--check", "--strict", "--quiet", sums.File)
	var listed []string
	for line := range strings.Lines(string(read(t, dir, sums.File))) {
		listed = append(listed, strings.Fields(line)[1])
	}
	listed = append(listed, sums.File)
	slices.Sort(listed)
	if !slices.Equal(listed, names) {
		t.Errorf("checksums of %q, expected %q", listed, names)
	}
}

func checkProvenance(t *testing.T, dir string, names []string) {
	var statement struct {
		Subject []struct {
			Name   string
			Digest struct{ SHA256 string }
		}
		Predicate struct {
			BuildDefinition struct {
				ResolvedDependencies []struct {
					URI    string
					Digest map[string]string
				}
			}
			RunDetails struct{ Builder struct{ ID string } }
		}
	}
	content := read(t, dir, "provenance.json")
	if err := json.Unmarshal(content, &statement); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range names {
		if name != "provenance.json" && name != sums.File {
			want = append(want, name)
		}
	}
	var got []string
	for _, s := range statement.Subject {
		got = append(got, s.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("subjects %q, expected %q", got, want)
	}
	list, err := sums.Read(dir, got)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range list {
		if statement.Subject[i].Digest.SHA256 != a.SHA256 {
			t.Errorf("%s: wrong digest", a.Name)
		}
	}
	deps := statement.Predicate.BuildDefinition.ResolvedDependencies
	commit := strings.TrimSpace(output(t, "../..", "git", "rev-parse", "HEAD"))
	if len(deps) < 10 || deps[0].Digest["gitCommit"] != commit {
		t.Errorf("%d dependencies, the first is %+v; expected commit %s", len(deps), deps[0], commit)
	}
	for _, d := range deps[2:] {
		if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(d.Digest["dirHash"]) {
			t.Errorf("%s: digest %v", d.URI, d.Digest)
		}
	}
	if id := statement.Predicate.RunDetails.Builder.ID; id != "https://ci.example/builder" {
		t.Errorf("builder %q", id)
	}
}

// checkArchive extracts an archive. The programs are static and start; those for other processors
// start with -full only, under qemu. No file has a path of the builder.
func checkArchive(t *testing.T, file string) {
	dir := t.TempDir()
	output(t, dir, "tar", "--extract", "--no-same-owner", "--file", file)
	top := filepath.Join(dir, strings.TrimSuffix(filepath.Base(file), ".tar.gz"))
	for _, name := range []string{"LICENSE", "README.md", "THIRD-PARTY-LICENSES",
		"install.sh", "lib/systemd/system/tenon-dhcp.service"} {
		if len(read(t, top, name)) == 0 {
			t.Errorf("%s is empty", name)
		}
	}
	_, version, _ := strings.Cut(filepath.Base(top), "_")
	version, arch, _ := strings.Cut(version, "_linux_")
	for _, program := range build.Programs() {
		checkStatic(t, filepath.Join(top, "bin", program), arch)
	}
	if *full || arch == runtime.GOARCH {
		checkStart(t, filepath.Join(top, "bin"), version, arch)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	content := unzip(t, file)
	paths := strings.Fields(output(t, "", "go", "env", "GOMODCACHE", "GOROOT"))
	for _, path := range append(paths, root) {
		if i := bytes.Index(content, []byte(path+"/")); i >= 0 {
			t.Errorf("path of the builder: %q", content[max(0, i-60):i+120])
		}
	}
}

// checkSBOM checks references and the fields that SPDX 2.3 requires.
func checkSBOM(t *testing.T, content []byte) {
	var doc spdx.Document
	if err := spdxjson.ReadInto(bytes.NewReader(content), &doc); err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(&doc); err != nil {
		t.Error(err)
	}
	if doc.SPDXVersion != "SPDX-2.3" || doc.DocumentNamespace == "" || doc.DocumentName == "" {
		t.Errorf("version %q, name %q, namespace %q", doc.SPDXVersion, doc.DocumentName,
			doc.DocumentNamespace)
	}
	known := map[string]bool{"DOCUMENT": true}
	for _, p := range doc.Packages {
		id := string(p.PackageSPDXIdentifier)
		if known[id] || !regexp.MustCompile(`^[A-Za-z0-9.-]+$`).MatchString(id) {
			t.Errorf("%s: invalid identifier, or used twice", id)
		}
		known[id] = true
		if p.PackageName == "" || p.PackageVersion == "" || p.PackageDownloadLocation == "" ||
			p.PackageLicenseConcluded == "" || p.FilesAnalyzed {
			t.Errorf("%s: incomplete: %+v", id, p)
		}
	}
	related := map[string]bool{}
	for _, r := range doc.Relationships {
		a, b := string(r.RefA.ElementRefID), string(r.RefB.ElementRefID)
		if !known[a] || !known[b] {
			t.Errorf("%s %s %s: no such package", a, r.Relationship, b)
		}
		related[b] = true
	}
	for _, p := range doc.Packages {
		if !related[string(p.PackageSPDXIdentifier)] {
			t.Errorf("%s belongs to no program", p.PackageName)
		}
	}
	for _, name := range append(build.Programs(), "stdlib", "github.com/spf13/cobra",
		"go.etcd.io/etcd/client/v3") {
		if !slices.ContainsFunc(doc.Packages, func(p *spdx.Package) bool {
			return p.PackageName == name
		}) {
			t.Errorf("no package %s", name)
		}
	}
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func unzip(t *testing.T, file string) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(read(t, "", file)))
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, &stderr)
	}
	return string(out)
}

// TestPublish keeps files that no run of dist wrote, and, for a part of a release, artefacts.
func TestPublish(t *testing.T) {
	t.Parallel()
	others := []string{"notes.txt", "tenon", "tenon_notes.txt"}
	for whole, want := range map[bool][]string{
		true: {"SHA256SUMS", "install.sh"},
		false: {".tenon-dist-killed", "NOTES.md", "SHA256SUMS", "install.sh", "provenance.json",
			"tenon-0.1.0.tgz", "tenon_0.1.0_linux_amd64.tar.gz"},
	} {
		dir := t.TempDir()
		for _, name := range append([]string{"tenon_0.1.0_linux_amd64.tar.gz", "tenon-0.1.0.tgz",
			"SHA256SUMS", "SHA256SUMS.sig", "NOTES.md", "provenance.json"}, others...) {
			write(t, filepath.Join(dir, name), "earlier")
		}
		for _, sub := range []string{".tenon-dist-killed", "tenon_1"} {
			if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		d, err := newDestination(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"SHA256SUMS", "install.sh"} {
			write(t, filepath.Join(d.stage, name), "new")
		}
		if err := d.publish([]string{"SHA256SUMS", "install.sh"}, whole); err != nil {
			t.Fatal(err)
		}
		d.discard()
		want = slices.Sorted(slices.Values(append(append(want, others...), "tenon_1")))
		if got := files(t, dir); !slices.Equal(got, want) {
			t.Errorf("whole %t: left %q, expected %q", whole, got, want)
		}
		if got := string(read(t, dir, "SHA256SUMS")); got != "new" {
			t.Errorf("checksums are %q", got)
		}
	}
}

// TestOptions checks that wrong options fail before anything is built.
func TestOptions(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]options{
		`unknown processor "mips": choose from amd64, arm64`: {arches: "amd64,mips"},
		`unknown artefact "exe": choose from tar`:            {only: "tar,exe"},
		`version "1": expected MAJOR.MINOR.PATCH`:            {version: "1"},
		`SOURCE_DATE_EPOCH: "now" is no number`:              {epoch: "now"},
	} {
		o.root, o.out, o.environ = "../..", t.TempDir(), os.Environ()
		err := o.run(t.Context(), io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if left := files(t, o.out); len(left) > 0 {
			t.Errorf("%s: wrote %q", want, left)
		}
	}
}
