package sums_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/packaging/internal/sums"
)

func TestSign(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("ssh-keygen"), testnet.Tool("sha256sum"))
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), "content of a")
	write(t, filepath.Join(dir, "b"), "content of b")
	list, err := sums.Read(dir, []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	if err := sums.Write(dir, list); err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", sums.File)
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}

	key, signers := newKey(t)
	other, _ := newKey(t)
	if err := sums.Sign(t.Context(), dir, key); err != nil {
		t.Fatal(err)
	}
	if err := sums.Verify(t.Context(), dir, signers); err != nil {
		t.Error(err)
	}
	write(t, filepath.Join(dir, sums.File), "other content")
	if err := sums.Verify(t.Context(), dir, signers); err == nil {
		t.Error("changed checksums have a valid signature")
	}

	if err := sums.Write(dir, list); err != nil {
		t.Fatal(err)
	}
	if err := sums.Sign(t.Context(), dir, other); err != nil {
		t.Fatal(err)
	}
	if err := sums.Verify(t.Context(), dir, signers); err == nil {
		t.Error("the signature of another key is valid")
	}
	if err := sums.Sign(t.Context(), dir, filepath.Join(dir, "missing")); err == nil {
		t.Error("signed without a key")
	}
}

// TestPurpose shows that a signature by a release key for another purpose, such as a commit, is no
// signature of a release.
func TestPurpose(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("ssh-keygen"))
	dir := t.TempDir()
	key, signers := newKey(t)
	file := filepath.Join(dir, sums.File)
	write(t, file, "content")
	run(t, "ssh-keygen", "-Y", "sign", "-f", key, "-n", "git", file)
	if err := sums.Verify(t.Context(), dir, signers); err == nil {
		t.Error("a signature in namespace git is valid")
	}
}

// ed25519 matches keys in files and on hardware tokens.
var ed25519 = regexp.MustCompile(` (ssh-ed25519|sk-ssh-ed25519@openssh\.com) AAAA`)

// TestAllowedSigners checks the form of the list in the repository: a key that may sign more than
// releases, or that was valid before it was added, is a mistake.
func TestAllowedSigners(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../keys/allowed_signers")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		prefix := sums.Identity + ` namespaces="` + sums.Namespace + `",valid-after="`
		if !strings.HasPrefix(line, prefix) || !ed25519.MatchString(line) {
			t.Errorf("expected %s…\" and an Ed25519 key: %s", prefix, line)
		}
	}
}

// newKey returns a key, and a list of allowed signers with that key.
func newKey(t *testing.T) (key, signers string) {
	t.Helper()
	dir := t.TempDir()
	key, signers = filepath.Join(dir, "key"), filepath.Join(dir, "allowed_signers")
	run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", key)
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	write(t, signers, sums.Identity+` namespaces="`+sums.Namespace+`" `+string(public))
	return key, signers
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
