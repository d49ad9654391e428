// Package sums writes and signs the checksums of a release.
package sums

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// File is the name of the file with the checksums, in the format of sha256sum.
const File = "SHA256SUMS"

// Signature is the name of the file with the signature of the checksums.
const Signature = File + ".sig"

// Namespace separates signatures of releases from other signatures by the same key.
const Namespace = "tenon-release"

// Identity is the principal of the release keys in packaging/keys/allowed_signers.
const Identity = "releases@tenon-cni"

// Artefact is a file of the release.
type Artefact struct {
	Name   string // without a directory
	SHA256 string // hexadecimal
}

// Read computes the checksums of files in a directory.
func Read(dir string, names []string) (list []Artefact, err error) {
	for _, name := range names {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		hash := sha256.New()
		_, err = io.Copy(hash, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		list = append(list, Artefact{name, hex.EncodeToString(hash.Sum(nil))})
	}
	return list, nil
}

// Write writes SHA256SUMS in a directory.
func Write(dir string, list []Artefact) error {
	var b strings.Builder
	for _, a := range list {
		fmt.Fprintf(&b, "%s  %s\n", a.SHA256, a.Name)
	}
	return os.WriteFile(filepath.Join(dir, File), []byte(b.String()), 0o644)
}

// Sign signs SHA256SUMS in a directory with an SSH key and replaces the signature of an earlier one.
// key is a file with the private key, or with the public key if ssh-agent has the private one.
func Sign(ctx context.Context, dir, key string) error {
	err := os.Remove(filepath.Join(dir, Signature)) // or ssh-keygen asks
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file := filepath.Join(dir, File)
	if err := keygen(ctx, nil, "-Y", "sign", "-f", key, "-n", Namespace, file); err != nil {
		return fmt.Errorf("sign %s with %s: %w", File, key, err)
	}
	return nil
}

// Verify checks the signature of SHA256SUMS in a directory against the keys in file signers.
func Verify(ctx context.Context, dir, signers string) error {
	content, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		return err
	}
	err = keygen(ctx, content, "-Y", "verify", "-f", signers, "-I", Identity, "-n", Namespace,
		"-s", filepath.Join(dir, Signature))
	if err != nil {
		return fmt.Errorf("verify the signature of %s: %w", File, err)
	}
	return nil
}

func keygen(ctx context.Context, stdin []byte, args ...string) error {
	cmd := exec.CommandContext(ctx, "ssh-keygen", args...)
	cmd.Stdin = bytes.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ssh-keygen: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
