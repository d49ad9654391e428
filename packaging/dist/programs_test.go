package main

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// checkStatic reads the header of a program: its processor, and no dynamic linker or libraries.
func checkStatic(t *testing.T, program, arch string) {
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64,
		"arm": elf.EM_ARM, "riscv64": elf.EM_RISCV, "ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390}[arch]
	if f.Machine != machine || f.Type != elf.ET_EXEC {
		t.Errorf("%s: %s for %s, expected a program for %s", program, f.Type, f.Machine, arch)
	}
	if (f.ByteOrder == binary.BigEndian) != (arch == "s390x") {
		t.Errorf("%s: byte order %s", program, f.ByteOrder)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("%s is not static: it has a segment %s", program, p.Type)
		}
	}
}

// checkStart starts the programs in a directory, which print their version, and a plugin of each
// program that has plugins, under its name. Other processors need qemu.
func checkStart(t *testing.T, bin, version, arch string) {
	var under []string
	if arch != runtime.GOARCH {
		under = []string{"../../scripts/qemu-user", arch}
	}
	run := func(variable, program string, args ...string) string {
		return output(t, "", "env", slices.Concat([]string{variable}, under, []string{program}, args)...)
	}
	for _, program := range []string{"tenon", "tenon-cluster", "tenon-dhcp"} {
		got := run("CNI_COMMAND=", filepath.Join(bin, program), "--version")
		if want := program + " version " + version + "\n"; got != want {
			t.Errorf("%s for %s prints %q, expected %q", program, arch, got, want)
		}
	}
	for plugin, program := range map[string]string{"bridge": "tenon", "ovs": "tenon-ovs"} {
		link := filepath.Join(t.TempDir(), plugin)
		if err := os.Symlink(filepath.Join(bin, program), link); err != nil {
			t.Fatal(err)
		}
		got := run("CNI_COMMAND=VERSION", link)
		if !strings.Contains(got, `"supportedVersions":["0.1.0",`) {
			t.Errorf("VERSION of %s for %s prints %q", plugin, arch, got)
		}
	}
}
