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

// ErrNotAllowed is wrapped by the errors of [Policy.CheckExecutable].
var ErrNotAllowed = errors.New("executable not allowed")

// EveryPlugin stands for all types in [Policy.Executables].
const EveryPlugin = "*"

const digestPrefix = "sha256:"

// CheckExecutable returns an error, wrapping [ErrNotAllowed] and with [cni.CodeInvalidConfig], if
// [Policy.Executables] does not allow the file at path for a type of plugin, or if the file cannot
// be read. Client of package network calls it before it runs a plugin, also for VERSION, and for
// the IPAM plugin that a plugin will call. It does not cover other programs that a plugin runs. A
// refused DEL keeps its record, so that it can be repeated. A policy that cannot be read allows all
// binaries here; [Policy.Check] then refuses every operation that would create something.
//
// CheckExecutable reads a file again when it was replaced or changed. A process that can write to
// the plugin directory can replace the file after the check; the directory must belong to root. A
// plugin that is linked into the program ([invoke.LinkedPath]) has no file and is allowed. Any
// other plugin that runs in this process ([invoke.Local]) is checked by the file that its caller's
// look-up finds, although that file does not run.
func (p *Policy) CheckExecutable(typ, path string) error {
	if _, linked := invoke.LinkedType(path); linked || !p.LimitsExecutables() {
		return nil
	}
	refusal := cni.Errorf(cni.CodeInvalidConfig, "plugin %q: %w by %s", typ, ErrNotAllowed,
		p.source())
	found, err := p.digests.of(path)
	if err != nil {
		return refusal.WithDetails(fmt.Sprintf("%v; only files with a listed digest may run", err))
	}
	if slices.Contains(p.Executables[typ], found) ||
		slices.Contains(p.Executables[EveryPlugin], found) {
		return nil
	}
	return refusal.WithDetails(fmt.Sprintf(
		"%s is %s; to allow it, add that digest to executables.%s", path, found, typ))
}

// LimitsExecutables reports whether [Policy.Executables] limits the binaries that may run.
func (p *Policy) LimitsExecutables() bool { return p != nil && p.Executables != nil }

func (p *Policy) source() string { return cmp.Or(p.Source, "the policy") }

func (p *Policy) validateExecutables() error {
	for typ, listed := range p.Executables {
		if err := cni.ValidatePluginType(typ); typ != EveryPlugin && err != nil {
			return cni.DecodeFailure("policy: executables", err)
		}
		for _, text := range listed {
			if !isDigest(text) {
				return cni.Errorf(cni.CodeInvalidConfig,
					"policy: executables of %s: %q is not %q and %d hexadecimal digits in lower case",
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

// digests caches the digests of files. Hard links to one file are read once.
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
	if info, err := f.Stat(); err == nil && statefile.IdentityOf(info) == id &&
		!id.Young(time.Now()) {
		if d.known == nil {
			d.known = map[statefile.Identity]string{}
		}
		d.known[id] = digest
	}
	return digest, nil
}
