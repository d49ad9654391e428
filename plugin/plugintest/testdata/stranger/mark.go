// Package mark is a chained plugin of a third party: it marks the host-side interface of an attachment with an alias. It uses
// public packages of Tenon, the standard library and ip(8).
package mark

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/plugin"
)

// recordFirst is false in a variant that leaks: a process killed between both steps of ADD leaves a mark of which DEL knows
// nothing.
const recordFirst = true

const doc = "### Example\n```json\n" + `{"cniVersion": "1.1.0", "name": "net", "type": "mark"}` + "\n```\n"

// Plugin is the definition of the plugin.
var Plugin = plugin.Define[config](plugin.Info{
	Name: "mark", Role: plugin.RoleChained, Doc: doc,
	Versions: []cni.Version{cni.V030, cni.V031, cni.V040, cni.V100, cni.V110}, // results have interfaces
}, mark{})

type config struct {
	plugin.Common
	DataDir string `json:"dataDir"` // holds a record of each mark
}

type call = plugin.Call[config]

type mark struct{}

func (mark) Add(_ context.Context, c *call) (*cni.Result, error) {
	link, err := hostSide(c.Prev)
	if err != nil {
		return nil, err
	}
	unlock, err := c.Conf.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	file := record(c.Conf.dir(), c.Attachment())
	steps := []func() error{
		func() error { return write(file, link) },
		func() error { return alias(link, tag(c.Attachment())) },
	}
	if !recordFirst {
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, errors.Join(err, remove(file), alias(link, ""))
		}
	}
	return c.Prev, nil
}

func (mark) Del(_ context.Context, c *call) error {
	unlock, err := c.Conf.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return remove(record(c.Conf.dir(), c.Attachment()))
}

func (mark) Check(_ context.Context, c *call) error {
	link, err := hostSide(c.Prev)
	if err != nil {
		return err
	}
	if _, err := os.Stat(record(c.Conf.dir(), c.Attachment())); err != nil {
		return err
	}
	out, err := exec.Command("ip", "link", "show", "dev", link).Output()
	if err == nil && !strings.Contains(string(out), "alias "+tag(c.Attachment())) {
		err = fmt.Errorf("%s has lost its mark", link)
	}
	return err
}

func (mark) GC(_ context.Context, c *call) error {
	unlock, err := c.Conf.lock()
	if err != nil {
		return err
	}
	defer unlock()
	files, err := filepath.Glob(filepath.Join(c.Conf.dir(), c.Name+"@*"))
	for _, file := range files {
		if !slices.ContainsFunc(c.Valid, func(v cni.ValidAttachment) bool {
			valid := record(c.Conf.dir(), cni.Attachment{Network: c.Name, Container: v.ContainerID, IfName: v.IfName})
			return strings.TrimSuffix(file, ".new") == valid
		}) {
			err = errors.Join(err, remove(strings.TrimSuffix(file, ".new")))
		}
	}
	return err
}

// hostSide returns the name of the host-side interface.
func hostSide(r *cni.Result) (string, error) {
	if r != nil {
		for _, i := range r.Interfaces {
			if i.Sandbox == "" {
				return i.Name, nil
			}
		}
	}
	return "", cni.Errorf(cni.CodeInvalidConfig, "prevResult has no interface of the host")
}

func (c *config) dir() string {
	if c.DataDir == "" {
		return "/var/lib/mark"
	}
	return c.DataDir
}

// lock waits until no other call of the plugin changes records.
func (c *config) lock() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(c.dir(), ".lock"), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

func tag(a cni.Attachment) string { return "mark " + a.IfName + " " + a.Container }

func record(dir string, a cni.Attachment) string {
	return filepath.Join(dir, a.Network+"@"+a.Container+"@"+a.IfName)
}

// write makes a record: all of it, or nothing.
func write(file, link string) error {
	content, err := json.Marshal(link)
	if err != nil {
		return err
	}
	err = os.WriteFile(file+".new", content, 0o600)
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	return err
}

// remove takes a mark off the interface in its record, and removes the record.
func remove(file string) error {
	if err := os.Remove(file + ".new"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var link string
	if err == nil {
		err = json.Unmarshal(content, &link)
	}
	if err == nil {
		err = alias(link, "")
	}
	if err == nil {
		err = os.Remove(file)
	}
	return err
}

// alias marks an interface, if it still exists.
func alias(link, text string) error {
	if _, err := net.InterfaceByName(link); err != nil && text == "" {
		return nil
	}
	if out, err := exec.Command("ip", "link", "set", "dev", link, "alias", text).CombinedOutput(); err != nil {
		return fmt.Errorf("mark %s: %w: %s", link, err, out)
	}
	return nil
}
