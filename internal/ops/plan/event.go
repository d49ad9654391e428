package plan

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
)

// event is what the process inside reports: exactly one field is set.
type event struct {
	Operation *Operation `json:"operation,omitempty"`
	File      *file      `json:"file,omitempty"`
	End       *Failure   `json:"end,omitempty"`    // without Error if the operation succeeds
	Broken    string     `json:"broken,omitempty"` // why the world cannot be set up
}

// Operation is a plugin call, or a change that a plugin describes before it makes it.
type Operation struct {
	Plugin  string         `json:"plugin"`
	Verb    cni.Command    `json:"verb,omitzero"` // of a call
	Text    string         `json:"text,omitzero"` // of a change
	Key     cni.Attachment `json:"attachment,omitzero"`
	Unknown string         `json:"unknown,omitzero"` // why the effect of the call is unknown
}

// file is a file that the operation has changed. Contents that are no text are omitted.
type file struct {
	Path   string  `json:"path"`
	Before *string `json:"before,omitempty"` // nil: did not exist
	After  *string `json:"after,omitempty"`  // nil: was removed
}

// text returns the text in the file, or the former text if it was removed.
func (f file) text() string {
	switch {
	case f.After != nil:
		return *f.After
	case f.Before != nil:
		return *f.Before
	}
	return ""
}

// Failure is the error of an operation.
type Failure struct {
	Error   string   `json:"error,omitzero"`
	Code    cni.Code `json:"code,omitzero"`
	Details string   `json:"details,omitzero"`
	Hints   []string `json:"hints,omitzero"`
}

func (w *Inside) report(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.events.Encode(e) // the parent notices a missing end
}

// End reports the changes of files and the outcome of the operation.
func (w *Inside) End(err error, hints []string) error {
	for _, l := range w.layers {
		if err := w.files(l); err != nil {
			return err
		}
	}
	end := &Failure{Hints: hints}
	if err != nil {
		object := cni.AsError(err)
		end.Error, end.Code, end.Details = object.Msg, object.Code, object.Details
	}
	w.report(event{End: end})
	return nil
}

// files reports the files in the upper directory of a layer that differ from the lower directory. A
// character device 0/0 stands for a removed file (overlayfs.rst of the kernel, "whiteouts").
func (w *Inside) files(l layer) error {
	upper, lower := os.DirFS(fdDir(l.upper)), fdDir(l.lower)
	return fs.WalkDir(upper, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f := file{Path: filepath.Join(l.dir, name)}
		if f.Before, err = textOf(filepath.Join(lower, name)); err != nil {
			return err
		}
		if f.Before != nil {
			*f.Before = w.refer(*f.Before)
		}
		if info.Mode()&fs.ModeCharDevice == 0 {
			if f.After, err = textOf(filepath.Join(fdDir(l.upper), name)); err != nil {
				return err
			}
		}
		same := f.Before == nil && f.After == nil ||
			f.Before != nil && f.After != nil && *f.Before == *f.After
		if !same {
			w.report(event{File: &f})
		}
		return nil
	})
}

func fdDir(f *os.File) string { return filepath.Join("/proc/self/fd", strconv.Itoa(int(f.Fd()))) }

// textOf returns the text in a file, nil if there is none: "" for other contents.
func textOf(path string) (*string, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	const longest = 256 << 10
	var text string
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if text, err = os.Readlink(path); err != nil {
			return nil, err
		}
	case info.Mode().IsRegular() && info.Size() <= longest:
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if text = string(b); !utf8.ValidString(text) {
			text = ""
		}
	}
	return &text, nil
}
