package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/invoke"
)

// ErrNotAllowed is what the error of [Policy.CheckExecutable] wraps.
var ErrNotAllowed = errors.New("executable not allowed")

// EveryPlugin stands for all types in [Policy.Executables].
const EveryPlugin = "*"

const digestPrefix = "sha256:"

// CheckExecutable refuses, with [ErrNotAllowed] and [cni.CodeInvalidConfig], an executable that [Policy.Executables] does
// not allow for a type of plugin, and what is no file that can be read. Client of package network asks it before it calls a plugin, also for
// VERSION, and about the IPAM plugin that a plugin is going to call; what that calls on its own is not known here. A DEL that
// is refused leaves its record, so that it can be repeated. A policy that cannot be read allows all: [Policy.Check] refuses
// everything that would make something new.
//
// A file is read again when it is another, or was changed. Who can write to the directory of the plugins can replace it after
// that; the directory has to be root's. A plugin that the program has linked ([invoke.LinkedPath]) has no file, and is allowed; any
// other in this process ([invoke.Local]) is judged by the file that the look-up of its caller names, though that is not what
// runs.
func (p *Policy) CheckExecutable(typ, path string) error {
	if _, linked := invoke.LinkedType(path); linked || !p.LimitsExecutables() {
		return nil
	}
	refusal := cni.Errorf(cni.CodeInvalidConfig, "plugin %q: %w by %s", typ, ErrNotAllowed, p.source())
	found, err := p.digests.of(path)
	if err != nil {
		return refusal.WithDetails(fmt.Sprintf("%v; only a file with a digest that is listed can be run", err))
	}
	if slices.Contains(p.Executables[typ], found) || slices.Contains(p.Executables[EveryPlugin], found) {
		return nil
	}
	return refusal.WithDetails(fmt.Sprintf("%s is %s; if it is to be run, add that to executables.%s", path, found, typ))
}

// LimitsExecutables reports whether [Policy.Executables] limits the executables that may run.
func (p *Policy) LimitsExecutables() bool { return p != nil && p.Executables != nil }

func (p *Policy) source() string { return cmp.Or(p.Source, "the policy") }

func (p *Policy) validateExecutables() error {
	for typ, listed := range p.Executables {
		if err := cni.ValidatePluginType(typ); typ != EveryPlugin && err != nil {
			return cni.DecodeFailure("policy: executables", err)
		}
		for _, text := range listed {
			if !isDigest(text) {
				return cni.Errorf(cni.CodeInvalidConfig, "policy: executables of %s: %q is not %q and %d hexadecimal digits in lower case",
					typ, text, digestPrefix, 2*sha256.Size)
			}
		}
	}
	return nil
}

func isDigest(text string) bool {
	digits, ok := strings.CutPrefix(text, digestPrefix)
	_, err := hex.DecodeString(digits)
	return ok && err == nil && len(digits) == 2*sha256.Size && digits == strings.ToLower(digits)
}

// digests remembers the digests of files. Hard links of one file are read once.
type digests struct {
	mu    sync.Mutex
	known map[statefile.Identity]string
}

func (d *digests) of(path string) (string, error) {
	f, err := statefile.Open(path, os.O_RDONLY, 0)
	if errors.Is(err, statefile.ErrNotRegular) || errors.Is(err, syscall.EISDIR) {
		return "", fmt.Errorf("%s is not a file", path)
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	id := statefile.IdentityOf(info)
	d.mu.Lock()
	defer d.mu.Unlock()
	if digest, ok := d.known[id]; ok {
		return digest, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	digest := digestPrefix + hex.EncodeToString(h.Sum(nil))
	if info, err := f.Stat(); err == nil && statefile.IdentityOf(info) == id && !id.Young(time.Now()) {
		if d.known == nil {
			d.known = map[statefile.Identity]string{}
		}
		d.known[id] = digest
	}
	return digest, nil
}
