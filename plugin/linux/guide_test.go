package linux_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/tracer"
)

// TestGuideBuilds follows docs/writing-plugins.md in an empty module without a network: plugin and
// tests compile, and the plugin answers VERSION.
func TestGuideBuilds(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("go"))
	dir, _ := follow(t, "mymacvlan.go", "mymacvlan_test.go")
	run(t, dir, "go", "vet", ".")
	cmd := exec.CommandContext(t.Context(), "go", "run", ".")
	cmd.Dir, cmd.Env = dir, append(environment(), "CNI_COMMAND=VERSION")
	cmd.Stdin = strings.NewReader(`{"cniVersion":"1.1.0"}`)
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), `"supportedVersions"`) {
		t.Errorf("VERSION: %v\n%s", err, out)
	}
}

// TestGuideSuite runs the tests of the guide's plugin. Faults must be injected.
func TestGuideSuite(t *testing.T) {
	testnet.Long(t)
	t.Parallel()
	testnet.Require(t, testnet.Tool("go"), testnet.Tool("ip"), tracer.Supported,
		testnet.Kernel(kernel.FeatureMacvlan))
	dir, _ := follow(t, "mymacvlan.go", "mymacvlan_test.go")
	out := run(t, dir, "go", "test", "-vet=off", "-v", "-count=1", ".")
	for _, fault := range []string{
		`faults/addresses/ADD\n[^=]* [1-9][0-9]* changes`,
		`faults/addresses/system_calls_of_ADD\n[^=]*something, [1-9][0-9]* faults injected`,
		`faults/addresses/system_calls_of_DEL\n[^=]*something, [1-9][0-9]* faults injected`,
		`faults/addresses/system_calls_of_GC\n[^=]*something, [1-9][0-9]* faults injected`,
	} {
		if !regexp.MustCompile(`=== RUN +TestSuite/` + fault).MatchString(out) {
			t.Errorf("no match for %s in:\n%s", fault, out)
		}
	}
}

// TestGuideRules builds the plugin of the section on rule sets and attaches a container with it:
// the kernel has the rules that the page lists, and DEL removes the address.
func TestGuideRules(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("go"), testnet.Tool("nft"), testnet.Kernel(kernel.FeatureNFT))
	dir, page := follow(t, "quarantine.go")
	run(t, dir, "go", "vet", ".")
	run(t, dir, "go", "build", "-o", "quarantine", ".")
	net := testnet.New(t, "web")
	sandbox := net.Container("web").Path()
	request := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "lan", "type": "quarantine", "prevResult": {
		"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": %q}],
		"ips": [{"address": "192.0.2.2/24", "interface": 0}]
	}}`, sandbox)
	call := func(verb string) {
		t.Helper()
		_, err := net.Host.Output(request, "env", "CNI_COMMAND="+verb, "CNI_CONTAINERID=web",
			"CNI_NETNS="+sandbox, "CNI_IFNAME=eth0", "CNI_PATH="+dir,
			filepath.Join(dir, "quarantine"))
		if err != nil {
			t.Fatal(err)
		}
	}
	call("ADD")
	rules := net.Host.Command("nft", "list", "table", "inet", "tenon")
	listing := regexp.MustCompile("(?s)`nft list table inet tenon` shows:\n\n```\n(.*?)```").FindStringSubmatch(page)
	if listing == nil {
		t.Fatal("the guide has no list of the rules")
	}
	pattern := strings.NewReplacer(
		"…", "[0-9a-v]*", // an owner
		`\} chain`, `\} .*chain`, // other sets are between
	).Replace(regexp.QuoteMeta(strings.Join(strings.Fields(listing[1]), " ")))
	if found := strings.Join(strings.Fields(rules),
		" "); !regexp.MustCompile(pattern).MatchString(found) {
		t.Errorf("no match for %s in:\n%s", pattern, rules)
	}
	call("CHECK")
	call("DEL")
	if left := net.Host.Command("nft", "list", "table", "inet", "tenon"); strings.Contains(left,
		"192.0.2.2") {
		t.Errorf("DEL leaves:\n%s", left)
	}
	after := testnet.Snapshot(t, net.Spaces())
	call("ADD")
	if testnet.Snapshot(t, net.Spaces()) == after {
		t.Error("ADD changes nothing")
	}
	call("DEL")
	if diff := testnet.Diff(after, testnet.Snapshot(t, net.Spaces())); diff != "" {
		t.Errorf("the second DEL leaves:\n%s", diff)
	}
}

// TestTestingGuideBuilds compiles the plugin and the tests of docs/testing-plugins.md.
func TestTestingGuideBuilds(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("go"))
	run(t, testingGuide(t), "go", "vet", ".")
}

// TestTestingGuide runs the suite of docs/testing-plugins.md.
func TestTestingGuide(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("go"), testnet.Tool("ip"), testnet.Kernel(kernel.FeatureDummy))
	out := run(t, testingGuide(t), "go", "test", "-short", "-vet=off", "-v", "-count=1", ".")
	for _, passed := range []string{"TestMTU", "TestSuite/faults/plain", "TestSuite/del/plain"} {
		if !strings.Contains(out, "--- PASS: "+passed+" ") {
			t.Errorf("%s did not pass:\n%s", passed, out)
		}
	}
}

// testingGuide makes a module with the files of docs/testing-plugins.md, and with the test at the
// end of the page.
func testingGuide(t *testing.T) (dir string) {
	t.Helper()
	dir, _ = follow(t)
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "testing-plugins.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) != 3 {
		t.Fatalf("the page has %d blocks of Go, not a plugin, its tests and one more", len(blocks))
	}
	tests := slices.Concat(blocks[1][1], []byte("\n"), blocks[2][1])
	for name, content := range map[string][]byte{"mylink.go": blocks[0][1], "mylink_test.go": tests} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// follow makes the module of the guide with the commands of the page, and writes the named files of
// the page to it. It returns the directory and the page.
func follow(t *testing.T, names ...string) (dir, page string) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "writing-plugins.md"))
	if err != nil {
		t.Fatal(err)
	}
	setUp := regexp.MustCompile("(?s)```sh\n(mkdir mymacvlan .*?)```").FindSubmatch(text)
	if setUp == nil {
		t.Fatal("the guide does not make a module")
	}
	dir = t.TempDir()
	run(t, dir, "env", "TENON="+root, "sh", "-ec", string(setUp[1]))
	dir = filepath.Join(dir, "mymacvlan")
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"go.sum": sums}
	file := regexp.MustCompile("(?s)Write this to `([a-z_.]+)`:\n\n```go\n(.*?)```")
	for _, found := range file.FindAllSubmatch(text, -1) {
		if name := string(found[1]); slices.Contains(names, name) {
			files[name] = found[2]
		}
	}
	if len(files) != 1+len(names) {
		t.Fatalf("the guide has not all of %q", names)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, string(text)
}

// environment makes the go command use this repository and the module cache only.
func environment() []string {
	return append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
}

// run runs a command in a module and returns its output.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, environment()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}
