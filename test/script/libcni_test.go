package script

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// linkedEnv names the libcni program of the embedding guide with Tenon's plugins linked into it.
const linkedEnv = "TENON_SCRIPT_LINKED"

// TestLibcniGuide builds the libcni program of the embedding guide with the commands in its text,
// and runs it with plugins as processes and with linked plugins.
func TestLibcniGuide(t *testing.T) {
	t.Parallel()
	require(t)
	text, err := os.ReadFile("../../docs/embedding.md")
	if err != nil {
		t.Fatal(err)
	}
	guide := string(text)
	files := program(t, guide, "libcni")
	linked := files["linked.go"]
	delete(files, "linked.go")
	if len(files) != 1 || linked == "" {
		t.Fatalf("the guide has %d files and linked.go: %q", len(files), linked)
	}

	workspace := libcniModule(t, files)
	workspace.sh(commands(t, guide, "go work init"))
	workspace.sh("go build .")

	module := libcniModule(t, files)
	module.sh(commands(t, guide, "go mod edit"))
	module.sh("go build -o processes .")
	module.write("linked.go", linked)
	module.sh("go mod tidy && go build -o linked .")
	run(t, "testdata/guide/libcni.txtar",
		exampleEnv+"="+filepath.Join(module.dir, "processes"),
		linkedEnv+"="+filepath.Join(module.dir, "linked"))
}

// commands returns the commands of the shell block that begins with a command.
func commands(t *testing.T, page, first string) string {
	t.Helper()
	for _, b := range blocks(page) {
		if block := strings.Join(b.lines, "\n"); b.info == "sh" && strings.HasPrefix(block, first) {
			return block
		}
	}
	t.Fatalf("the page has no shell block that begins with %q", first)
	return ""
}

// module is the directory of a Go module that requires libcni.
type module struct {
	t    *testing.T
	dir  string
	root string // of this repository
}

// libcniModule writes a program that requires libcni. Its go.sum has the modules of this repository.
func libcniModule(t *testing.T, files map[string]string) module {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	m := module{t: t, dir: t.TempDir(), root: root}
	m.write("go.mod", "module example.org/attach\n\ngo 1.26.0\n\n"+
		"require github.com/containernetworking/cni v1.3.1\n")
	m.write("go.sum", string(sum))
	for name, content := range files {
		m.write(name, content)
	}
	return m
}

func (m module) write(name, content string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(content), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// sh runs commands of the guide in the directory of the module.
func (m module) sh(commands string) {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), "sh", "-ec", commands)
	cmd.Dir = m.dir
	cmd.Env = append(goEnvironment(m.t), "TENON="+m.root)
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("%s\n%v\n%s", commands, err, out)
	}
}
