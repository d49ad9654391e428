package git_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/packaging/internal/git"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("git"))
	repo := repository{t, t.TempDir()}
	repo.git("init", "-q")
	repo.git("config", "status.showUntrackedFiles", "no") // a setting of users
	describe := func(forced, epoch string) string {
		t.Helper()
		s, err := git.Describe(t.Context(), repo.dir, forced, epoch)
		if err != nil {
			t.Fatal(err)
		}
		hash := repo.git("rev-parse", "HEAD")
		if s.Commit != hash {
			t.Errorf("commit %s, expected %s", s.Commit, hash)
		}
		line := strings.ReplaceAll(s.Version.String(), hash[:12], "COMMIT") + " " +
			s.Time.Format(time.RFC3339)
		if s.Tagged {
			line += " tagged"
		}
		if s.Dirty {
			line += " dirty"
		}
		return line
	}
	expect := func(name, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	repo.commit("first")
	expect("no tag", describe("", ""), "0.0.0-0.20261123150704.gCOMMIT 2026-11-23T15:07:04Z")
	expect("forced", describe("v2.0.0", "1700000000"), "2.0.0 2023-11-14T22:13:20Z")
	repo.git("tag", "v0.1.0-rc.1")
	repo.git("tag", "other")
	expect("pre-release", describe("", ""), "0.1.0-rc.1 2026-11-23T15:07:04Z tagged")
	repo.commit("second")
	expect("after a pre-release", describe("", ""),
		"0.1.0-rc.1.0.20261123150704.gCOMMIT 2026-11-23T15:07:04Z")
	repo.git("tag", "-a", "-m", "release", "v0.1.0")
	expect("release", describe("", "1700000000"), "0.1.0 2023-11-14T22:13:20Z tagged")
	repo.write("second", "changed")
	expect("changed tree", describe("", ""),
		"0.1.1-0.20261123150704.gCOMMIT.dirty 2026-11-23T15:07:04Z dirty")
	repo.git("checkout", "-q", "second")
	repo.write("untracked", "x")
	expect("untracked file", describe("", ""),
		"0.1.1-0.20261123150704.gCOMMIT.dirty 2026-11-23T15:07:04Z dirty")
}

// TestSignedCommit has a setting with which git log prints a line about the signature.
func TestSignedCommit(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("git"), testnet.Tool("ssh-keygen"))
	repo := repository{t, t.TempDir()}
	key := filepath.Join(t.TempDir(), "key")
	out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "",
		"-f", key).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	repo.git("init", "-q")
	repo.git("config", "gpg.format", "ssh")
	repo.git("config", "user.signingKey", key)
	repo.git("config", "commit.gpgSign", "true")
	repo.git("config", "log.showSignature", "true")
	repo.commit("signed")
	s, err := git.Describe(t.Context(), repo.dir, "", "")
	if hash := repo.git("rev-parse", "HEAD"); err != nil || s.Commit != hash {
		t.Errorf("commit %q, expected %s; error %v", s.Commit, hash, err)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	testnet.Require(t, testnet.Tool("git"))
	repo := repository{t, t.TempDir()}
	repo.git("init", "-q")
	if _, err := git.Describe(t.Context(), repo.dir, "", ""); err == nil {
		t.Error("a repository without a commit has a version")
	}
	repo.commit("first")
	repo.git("tag", "v1")
	for name, call := range map[string][2]string{
		`version "v1": expected`:           {"", ""},
		`version "1.0": expected`:          {"1.0", ""},
		`SOURCE_DATE_EPOCH: "today" is no`: {"", "today"},
	} {
		_, err := git.Describe(t.Context(), repo.dir, call[0], call[1])
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

type repository struct {
	t   *testing.T
	dir string
}

func (r repository) write(name, content string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r repository) commit(name string) {
	r.t.Helper()
	r.write(name, "content")
	r.git("add", name)
	r.git("commit", "-q", "-m", name)
}

// git runs git without the configuration of the user.
func (r repository) git(args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "git", append([]string{"-C", r.dir}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A",
		"GIT_COMMITTER_EMAIL=a@example.com", "GIT_COMMITTER_DATE=2026-11-23T16:07:04+01:00")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}
