// Package release is what the artefacts of one release share: version, time, directories, and for
// each processor the binaries and the files to install. Other packages write the artefacts.
package release

import (
	"time"

	"github.com/tenon-cni/tenon/packaging/internal/archive"
	"github.com/tenon-cni/tenon/packaging/internal/build"
	"github.com/tenon-cni/tenon/packaging/internal/modules"
	"github.com/tenon-cni/tenon/packaging/internal/version"
)

// Release is a release in progress.
type Release struct {
	Version version.Version
	Tagged  bool      // the version is the tag of the commit
	Commit  string    // 40 hexadecimal digits
	Time    time.Time // of all files
	Root    string    // of the repository
	Out     string    // directory of the artefacts; see Write
	Go      build.Env
}

// Name returns the file name of an artefact: tenon_VERSION_SUFFIX.
func (r *Release) Name(suffix string) string {
	return "tenon_" + r.Version.String() + "_" + suffix
}

// Target is the part of a release for one processor.
type Target struct {
	Arch build.Arch
	Bin  string // directory of the binaries

	// Modules are the Go modules in the binaries.
	Modules modules.Set

	// Files are the files to install, relative to the prefix: bin/, share/man/manN/,
	// share/completion/, lib/systemd/system/, and LICENSE, THIRD-PARTY-LICENSES and README.md
	// without a directory.
	Files []archive.File
}
