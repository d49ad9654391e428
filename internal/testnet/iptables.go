package testnet

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// IPTables is what both families of iptables save of a table, without the comments of the tool. kind is "-nft" or "-legacy",
// "" for the one that is installed.
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

// LegacyIPTables makes iptables that of the legacy kind for a test, which cannot be parallel.
func LegacyIPTables(t *testing.T) {
	t.Helper()
	Require(t, Tool("iptables-legacy-restore"))
	dir := t.TempDir()
	for _, tool := range []string{"iptables", "iptables-restore", "iptables-save", "ip6tables", "ip6tables-restore", "ip6tables-save"} {
		legacy, err := exec.LookPath(strings.Replace(tool, "tables", "tables-legacy", 1))
		if err == nil {
			// The program looks at the name it is called by.
			err = os.WriteFile(filepath.Join(dir, tool), []byte("#!/bin/sh\nexec "+legacy+" \"$@\"\n"), 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}
