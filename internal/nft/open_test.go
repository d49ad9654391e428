package nft_test

import (
	"os"
	"testing"
)

// TestManyFiles checks that Open works in a process with many open files. It is not parallel,
// because it occupies the low descriptors.
func TestManyFiles(t *testing.T) {
	for range 2000 {
		f, err := os.Open("/dev/null")
		must(t, err)
		defer f.Close()
	}
	_, c := setup(t)
	masquerade(t, c, "owner a", "10.1.2.3/24")
	expect(t, c, "10.1.2.3 10.1.2.0/24 owner a")
}
