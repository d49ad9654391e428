// Package git asks git for the version and the time of the commit to release.
package git

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/packaging/internal/version"
)

// Source is the commit to release.
type Source struct {
	Version version.Version
	Tagged  bool   // the version is the tag of the commit
	Commit  string // 40 hexadecimal digits
	Time    time.Time
	Dirty   bool // the working tree differs from the commit
}

// Describe returns the commit in repository root. Its version is forced, if not empty, or comes
// from the last tag before the commit. Its time is epoch, in seconds since 1970, or, if epoch is
// empty, the time of the commit.
func Describe(ctx context.Context, root, forced, epoch string) (Source, error) {
	head, err := run(ctx, root, "log", "-1", "--no-show-signature", "--format=%H %ct")
	if err != nil {
		return Source{}, err
	}
	hash, at, _ := strings.Cut(head, " ")
	s := Source{Commit: hash}
	committed, err := seconds(at)
	if err != nil {
		return Source{}, err
	}
	changes, err := run(ctx, root, "status", "--porcelain", "--untracked-files=normal")
	if err != nil {
		return Source{}, err
	}
	s.Dirty = changes != ""
	s.Time = committed
	if epoch != "" {
		if s.Time, err = seconds(epoch); err != nil {
			return Source{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
	}
	if forced != "" {
		s.Version, err = version.Parse(forced)
		return s, err
	}
	s.Version, err = fromTag(ctx, root, version.Commit{Hash: hash, Time: committed, Dirty: s.Dirty})
	s.Tagged = err == nil && s.Version.Release()
	return s, err
}

// described is the output of git describe --long: TAG-COMMITS-gHASH.
var described = regexp.MustCompile(`^(.*)-(\d+)-g[0-9a-f]+$`)

func fromTag(ctx context.Context, root string, c version.Commit) (version.Version, error) {
	tags, err := run(ctx, root, "tag", "--list", "v*", "--merged")
	if err != nil || tags == "" {
		return version.Version{}.Next(c), err
	}
	last, err := run(ctx, root, "describe", "--tags", "--long", "--match", "v*")
	if err != nil {
		return version.Version{}, err
	}
	m := described.FindStringSubmatch(last)
	if m == nil {
		return version.Version{}, fmt.Errorf("unexpected output of git describe: %q", last)
	}
	v, err := version.Parse(m[1])
	if err != nil || m[2] == "0" && !c.Dirty {
		return v, err
	}
	return v.Next(c), nil
}

func run(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

func seconds(text string) (time.Time, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is no number of seconds since 1970", text)
	}
	return time.Unix(n, 0).UTC(), nil
}
