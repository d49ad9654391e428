// Package planted builds programs with planted defects for the tests of the judge: each is a copy of
// a correct program with one small change of its source.
package planted

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Correct is the name of the program without changes.
const Correct = "correct"

// Defect is a change of a correct program, and the requirements that it violates.
type Defect struct {
	Name string
	// Rows are the rows of the catalog of which a finding is right. A finding must be one of them, and
	// the judge must find at least one.
	Rows  []string
	Edits []Edit
}

// Edit replaces a text that a file contains once.
type Edit struct{ File, Old, New string }

// Programs are a correct program and its copies with defects. All are one binary, because linking
// takes most of the time: each file ends with the name of the program as which it acts.
type Programs struct {
	binary []byte
	marks  map[string]string // by the names of the programs
}

// Build compiles the program of a directory without changes, under the name [Correct], and with each
// defect. The directory is a Go module that requires no other.
func Build(t testing.TB, dir string, defects []Defect) *Programs {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no files: %v", dir, err)
	}
	work := t.TempDir()
	p := &Programs{marks: map[string]string{}}
	for i, d := range append([]Defect{{Name: Correct}}, defects...) {
		if p.marks[d.Name] != "" {
			t.Fatalf("two defects have the name %q", d.Name)
		}
		p.marks[d.Name] = fmt.Sprintf("program%03d", i)
		if err := d.write(work, p.marks[d.Name], files); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(work, "main.go"), []byte(p.source()), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(work, "planted")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", binary, ".")
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, text)
	}
	if p.binary, err = os.ReadFile(binary); err != nil {
		t.Fatal(err)
	}
	return p
}

// module is the name of the module of the programs. Each program is a package of it.
const module = "planted"

// source returns the main package of the binary.
func (p *Programs) source() string {
	var imports, cases strings.Builder
	for _, mark := range p.marks {
		fmt.Fprintf(&imports, "\t%q\n", module+"/"+mark)
		fmt.Fprintf(&cases, "\tcase %q:\n\t\t%[1]s.Main()\n", mark)
	}
	return `package main

import (
	"io"
	"os"

` + imports.String() + `)

func main() {
	const length = int64(len("program000"))
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	if _, err := f.Seek(-length, io.SeekEnd); err != nil {
		panic(err)
	}
	mark, err := io.ReadAll(f)
	if err != nil {
		panic(err)
	}
	f.Close()
	switch string(mark) {
` + cases.String() + `	default:
		panic("no such program")
	}
}
`
}

// Write writes the program of a defect to a file.
func (p *Programs) Write(t testing.TB, name, path string) {
	t.Helper()
	if p.marks[name] == "" {
		t.Fatalf("no program %q", name)
	}
	if err := os.WriteFile(path, append(p.binary[:len(p.binary):len(p.binary)], p.marks[name]...), 0o755); err != nil {
		t.Fatal(err)
	}
}

// write writes the package of the defect: the files of the program with its edits.
func (d Defect) write(work, name string, files []string) error {
	if err := os.Mkdir(filepath.Join(work, name), 0o755); err != nil {
		return err
	}
	edited := 0
	for _, from := range files {
		b, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		text, file := string(b), filepath.Base(from)
		for _, e := range d.Edits {
			if e.File != file {
				continue
			}
			if text, err = once(text, e.Old, e.New); err != nil {
				return fmt.Errorf("%s: %s: %w", d.Name, file, err)
			}
			edited++
		}
		to := filepath.Join(work, name, file)
		if file == "go.mod" {
			_, rest, _ := strings.Cut(text, "\n")
			text, to = "module "+module+"\n"+rest, filepath.Join(work, file)
		} else if text, err = library(text, name); err != nil {
			return fmt.Errorf("%s: %s: %w", d.Name, file, err)
		}
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return err
		}
	}
	if edited != len(d.Edits) {
		return fmt.Errorf("%s: an edit names a file that does not exist", d.Name)
	}
	return nil
}

// library turns a file of a program into one of a package with the function Main.
func library(text, name string) (string, error) {
	text, err := once("\n"+text, "\npackage main\n", "\npackage "+name+"\n")
	if err != nil {
		return "", err
	}
	return strings.Replace(text, "\nfunc main() {", "\nfunc Main() {", 1), nil
}

// once replaces a text that another one contains once.
func once(text, old, now string) (string, error) {
	if n := strings.Count(text, old); n != 1 {
		return "", fmt.Errorf("contains %d times %q", n, old)
	}
	return strings.Replace(text, old, now, 1), nil
}
