package invoke_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tenon-cni/tenon/internal/testnet/exefile"
	"github.com/tenon-cni/tenon/invoke"
)

// LIF-06: the files of a call are open in its process, in order, and closed in the process of
// a call without them.
func TestProcessHoldsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "plugin")
	const script = "#!/bin/sh\nreadlink /proc/$$/fd/3 /proc/$$/fd/4\nexit 0\n"
	if err := exefile.Write(path, []byte(script)); err != nil {
		t.Fatal(err)
	}
	call, want := add(path), ""
	for _, name := range []string{"first", "second"} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		call.Files = append(call.Files, f)
		want += fmt.Sprintln(f.Name())
	}
	reply, err := invoke.Process{}.Call(t.Context(), call)
	if err != nil || string(reply.Stdout) != want {
		t.Errorf("open are %q, %v, want %q", reply.Stdout, err, want)
	}
	reply, err = invoke.Process{}.Call(t.Context(), add(path))
	if err != nil || string(reply.Stdout) != "" {
		t.Errorf("without: open are %q, %v", reply.Stdout, err)
	}
}
