package filestore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ipam/storetest"
)

// FuzzAddressFile reads arbitrary content of an address file. Only white space is debris; any other
// content names a holder, which keeps the address and finds it.
func FuzzAddressFile(f *testing.F) {
	for _, seed := range []string{"c1\r\neth0", "c1", "c1\n", "", " \r\n", "\r\neth0",
		"a\r\nb\r\nc", "a \r\neth0", "\x00\xff", strings.Repeat("x", 5000)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		path := newPath(t)
		write(t, filepath.Join(path, "10.0.0.2"), string(content))
		n, sets := network(path, bootID), storetest.Sets(t, "10.0.0.0/29")
		got := mustAllocate(t, n, ipam.Owner{Container: "fuzzer", IfName: "eth9"}, sets)
		debris := strings.TrimSpace(string(content)) == ""
		if (got[0].Addr == addr("10.0.0.2")) != debris {
			t.Errorf("%q: got %s", content, got[0].Addr)
		}
		if debris {
			return
		}
		n.Do(t, nil, func(s ipam.Store) {
			leases, err := s.Leases(ctx)
			if err != nil || len(leases) != 2 || leases[0].Addr != addr("10.0.0.2") {
				t.Fatalf("%q: %v, %v", content, leases, err)
			}
			if c := leases[0].Owner.Container; c != strings.TrimSpace(c) {
				return // implementations trim IDs before writing
			}
			held, err := s.Held(ctx, leases[0].Owner)
			if err != nil || len(held) != 1 || held[0].Owner != leases[0].Owner {
				t.Fatalf("%q: %s holds %v, %v", content, leases[0].Owner, held, err)
			}
		})
	})
}

// FuzzCaches reads a damaged index and a damaged bitmap under an intact seal. An address that has a
// file is never allocated again, and its file stays.
func FuzzCaches(f *testing.F) {
	build := func(t testing.TB) (path string, n storetest.Network, sets []ipam.RangeSet) {
		path = newPath(t)
		n, sets = network(path, bootID), storetest.Sets(t, "10.0.0.0/29")
		for _, c := range []string{"c1", "c2"} {
			mustAllocate(t, n, owner(c), sets)
		}
		return path, n, sets
	}
	const indexFile, bitmapFile = ".owners/index", ".owners/map.10.0.0.1-10.0.0.6"
	path, _, _ := build(f)
	index, errIndex := os.ReadFile(filepath.Join(path, indexFile))
	bitmap, errBitmap := os.ReadFile(filepath.Join(path, bitmapFile))
	if err := errors.Join(errIndex, errBitmap); err != nil {
		f.Fatal(err)
	}
	f.Add(index, bitmap)
	f.Add(index[:128], []byte{})
	f.Add(append(append([]byte{}, index[:88]...), make([]byte, len(index)-88)...),
		append(bitmap[:len(bitmap)-1:len(bitmap)-1], 0))
	f.Add([]byte("tenon index v2\n\x00"), append(bitmap[:len(bitmap)-1:len(bitmap)-1], 0xff))
	f.Fuzz(func(t *testing.T, index, bitmap []byte) {
		path, n, sets := build(t)
		for name, content := range map[string][]byte{indexFile: index, bitmapFile: bitmap} {
			if err := os.WriteFile(filepath.Join(path, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []string{"c3", "c4", "c1"} {
			all, err := n.Allocate(ctx, ipam.Request{Owner: owner(c), Sets: sets})
			if err == nil && (all[0].Addr == addr("10.0.0.2") || all[0].Addr == addr("10.0.0.3")) {
				t.Errorf("%s got %s", c, all[0].Addr)
			}
			if c != "c1" && err != nil {
				t.Errorf("%s: %v", c, err)
			}
		}
		if err := n.Release(ctx, owner("c2")); err != nil {
			t.Error(err)
		}
		if content, err := os.ReadFile(filepath.Join(path, "10.0.0.2")); err != nil ||
			string(content) != "c1\r\neth0" {
			t.Errorf("the file of c1: %q, %v", content, err)
		}
	})
}
