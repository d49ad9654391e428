package testnet

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// IPTables returns a table as saved by the tools of both families, without their comments. kind is
// "-nft", "-legacy", or "" for the installed default.
func IPTables(n *Namespace, kind, table string) string {
	var out strings.Builder
	for _, tool := range []string{"iptables", "ip6tables"} {
		for line := range strings.Lines(n.Command(tool+kind+"-save", "-t", table)) {
			if !strings.HasPrefix(line, "#") { // the time
				out.WriteString(line)
			}
		}
	}
	return out.String()
}

// LegacyIPTables makes the legacy variant of iptables the default for a test, which cannot be
// parallel.
func LegacyIPTables(t *testing.T) {
	t.Helper()
	Require(t, Tool("iptables-legacy-restore"))
	dir := t.TempDir()
	for _, tool := range []string{"iptables", "iptables-restore", "iptables-save", "ip6tables",
		"ip6tables-restore", "ip6tables-save"} {
		legacy, err := exec.LookPath(strings.Replace(tool, "tables", "tables-legacy", 1))
		if err == nil {
			// The program determines its function from its name.
			err = os.WriteFile(filepath.Join(dir, tool),
				[]byte("#!/bin/sh\nexec "+legacy+" \"$@\"\n"), 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}
