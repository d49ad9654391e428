//go:build packages

package packages_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLint runs the checks of the distributions on both versions of the packages, and of the manual
// pages. scripts/deb/lintian-overrides and testdata/rpmlint.toml list the findings that are wrong here.
func TestLint(t *testing.T) {
	t.Parallel()
	m := start(t, unpack(t, "TENON_TOOLS_ROOT"), "sleep", "infinity")
	settings, err := os.ReadFile(filepath.Join("testdata", "rpmlint.toml"))
	must(t, err)
	m.write("/root/rpmlint.toml", string(settings))
	for _, version := range []string{older, newer} {
		deb, rpm := m.give(packageFile(t, version, "deb")), m.give(packageFile(t, version, "rpm"))
		out := m.run("lintian --no-cfg --allow-root --display-info --pedantic --tag-display-limit 0 " +
			"--fail-on error,warning,info,pedantic " + deb)
		if strings.TrimSpace(out) != "" {
			t.Errorf("lintian: %s", out)
		}
		if out := m.run("rpmlint --config /root/rpmlint.toml " + rpm); !strings.Contains(out, " 0 errors, 0 warnings") {
			t.Errorf("rpmlint: %s", out)
		}
		// rpm's own check of a transaction, and the scripts for the shell.
		m.run("rpm --root /root/system --initdb; rpm --root /root/system --nodeps --test -i " + rpm)
		m.run("rpm -qp --requires " + rpm + " | grep -x /bin/sh")
		m.run("rpm -qp --changelog " + rpm + " | grep CHANGELOG.md")
		if out := m.run("rpm -qp --triggers --filetriggers " + rpm); out != "" {
			t.Errorf("triggers, which nfpm cannot write: %s", out)
		}
		m.run("rpm -qp --scripts " + rpm + " | sed '/scriptlet (using/d' | sh -n")

		m.run("rm -rf /root/files; dpkg-deb -x " + deb + " /root/files; gzip -d /root/files/usr/share/man/man8/*.gz")
		// Level style asks for short lines in the source, which is generated.
		m.run("mandoc -T lint -W warning /root/files/usr/share/man/man8/*")
		if out := m.run("cd /root/files/usr/share/man/man8; groff -ww -man -T utf8 -z *"); out != "" {
			t.Errorf("groff: %s", out)
		}
		m.run("for p in /root/files/usr/bin/*; do test -e /root/files/usr/share/man/man8/${p##*/}.8; done")
		m.run("cd /root/files/usr/share/man/man8; for page in *; do lexgrog $page >/dev/null; done; " +
			"man -l tenon-uninstall.8 | grep -e --keep-attachments")
	}
}
