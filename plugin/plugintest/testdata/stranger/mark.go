// Package mark is a chained plugin of a third party: it marks the host-side interface of an
// attachment with an alias. It uses public packages of Tenon and the standard library.
package mark

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
	"github.com/tenon-cni/tenon/plugin/linux"
)

// recordFirst is false in a variant that leaks: a process killed between both steps of ADD leaves a
// mark that DEL cannot find.
const recordFirst = true

const doc = "### Example\n```json\n" +
	`{"cniVersion": "1.1.0", "name": "net", "type": "mark"}` + "\n```\n"

// Plugin is the definition of the plugin.
var Plugin = linux.DefineChained(plugin.Info{
	Name: "mark", Doc: doc,
	// Results have interfaces since 0.3.0.
	Versions: []cni.Version{cni.V030, cni.V031, cni.V040, cni.V100, cni.V110},
}, func() linux.Decorator { return new(config) })

type config struct {
	plugin.Common
	// DataDir holds a record of each mark: a file with the name of the interface.
	DataDir string `json:"dataDir"`
}

// Apply records the mark, then sets it.
func (c *config) Apply(_ context.Context, s *linux.Session, _ *cni.Result) error {
	link, err := hostSide(s)
	if err != nil {
		return err
	}
	steps := []func() error{
		func() error { return c.record(s, link.Name) },
		func() error { return link.SetAlias(mark(s)) },
	}
	if !recordFirst {
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Verify looks for the record and the mark.
func (c *config) Verify(_ context.Context, s *linux.Session) error {
	link, err := hostSide(s)
	if err != nil {
		return err
	}
	if link.Alias != mark(s) {
		return fmt.Errorf("interface %s: expected alias %q, found %q", link.Name, mark(s),
			link.Alias)
	}
	_, err = os.Stat(c.file(s))
	return err
}

// Remove removes the marks in records of attachments that are gone, then the records.
func (c *config) Remove(_ context.Context, s *linux.Session, gone linux.Gone) error {
	files, err := os.ReadDir(c.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, f := range files {
		owner, temporary := strings.CutSuffix(f.Name(), ".new")
		if !gone.Owner(cni.Owner(owner)) {
			continue
		}
		file := filepath.Join(c.dir(), f.Name())
		if !temporary {
			if err := unmark(s, file); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		errs = append(errs, s.Do("remove "+file, func() error { return remove(file) }, nil))
	}
	return errors.Join(errs...)
}

// unmark removes the mark in a record, if the interface still exists.
func unmark(s *linux.Session, file string) error {
	name, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	link, err := s.Host.Link(string(name))
	if err == nil && strings.HasPrefix(link.Alias, "mark ") {
		err = link.SetAlias("")
	}
	if errors.Is(err, linux.ErrNoLink) || errors.Is(err, syscall.ENODEV) {
		return nil
	}
	return err
}

// hostSide returns the host-side interface.
func hostSide(s *linux.Session) (linux.Link, error) {
	for _, i := range s.Prev.Interfaces {
		if i.Sandbox == "" {
			return s.Host.Link(i.Name)
		}
	}
	return linux.Link{},
		cni.Errorf(cni.CodeInvalidConfig, "prevResult has no interface of the host")
}

func (c *config) dir() string {
	if c.DataDir == "" {
		return "/var/lib/mark"
	}
	return c.DataDir
}

// file is the record of an attachment.
func (c *config) file(s *linux.Session) string {
	return filepath.Join(c.dir(), string(s.Attachment().Owner()))
}

func mark(s *linux.Session) string { return "mark " + s.IfName + " " + s.ContainerID }

// record writes the record of an attachment, unless it exists.
func (c *config) record(s *linux.Session, link string) error {
	file := c.file(s)
	if have, err := os.ReadFile(file); err == nil && string(have) == link {
		return nil
	}
	return s.Do("write "+file, func() error {
		err := os.WriteFile(file+".new", []byte(link), 0o600)
		if err == nil {
			err = os.Rename(file+".new", file)
		}
		if err != nil {
			err = errors.Join(err, remove(file+".new"))
		}
		return err
	}, func() error { return remove(file) })
}

func remove(file string) error {
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
