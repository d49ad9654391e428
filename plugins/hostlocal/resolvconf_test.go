package hostlocal

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-cni/tenon/cni"
)

// Cases of resolv.conf(5).
func TestReadResolvConf(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, text string
		want       cni.DNS
	}{
		{"simple", "nameserver 192.0.2.0\nnameserver 192.0.2.1\n", cni.DNS{Nameservers: []string{
			"192.0.2.0", "192.0.2.1",
		}}},
		{"comments and short lines",
			"nameserver 192.0.2.0\n#nameserver 192.0.2.1\n ; nameserver 192.0.2.2\nnameserver\n\nsortlist 1.2.3.4\n",
			cni.DNS{Nameservers: []string{"192.0.2.0"}}},
		{"all fields accumulate, the last domain counts",
			"nameserver 192.0.2.0\ndomain a.example\nsearch b.example c.example\ndomain d.example\nsearch e.example\noptions four\n\toptions five six\n",
			cni.DNS{Nameservers: []string{"192.0.2.0"}, Domain: "d.example",
				Search: []string{"b.example", "c.example", "e.example"}, Options: []string{
					"four", "five", "six",
				}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "resolv.conf")
			if err := os.WriteFile(path, []byte(row.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := readResolvConf(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A FIFO without a writer must not block ADD.
func TestReadResolvConfFIFO(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readResolvConf(path); err == nil {
		t.Error("a FIFO was read")
	}
}

// A line that is too long is an error that names the file, and is not truncated.
func TestReadResolvConfLongLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, []byte("search "+strings.Repeat("x", 1<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	if d, err := readResolvConf(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, %v", d, err)
	}
}

// FuzzParseResolvConf: all parsed values are words of the text, and a file with one value per line
// parses to the same result.
func FuzzParseResolvConf(f *testing.F) {
	f.Add("nameserver 192.0.2.0\n#x\n ; y\ndomain a.example\nsearch b c\noptions four\n\toptions five six\nsearch d\n")
	f.Add("nameserver\r\nnameserver 1 2\nNameserver 3\ndomain\x00 x\nsearch \u00a0 \u2003y\n")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parseResolvConf(strings.NewReader(text))
		if err != nil {
			return
		}
		var again strings.Builder
		for key, words := range map[string][]string{
			"nameserver": d.Nameservers, "domain": strings.Fields(d.Domain), "search": d.Search, "options": d.Options,
		} {
			for _, w := range words {
				if w == "" || !strings.Contains(text, w) {
					t.Errorf("%s: %q is not a word of %q", key, w, text)
				}
				fmt.Fprintln(&again, key, w)
			}
		}
		same, err := parseResolvConf(strings.NewReader(again.String()))
		if diff := cmp.Diff(d, same); diff != "" || err != nil {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
	})
}
