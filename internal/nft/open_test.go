package nft_test

import (
	"os"
	"testing"
)

// TestManyFiles: it does not matter how many files a process has open. Not parallel, as it takes the low descriptors away.
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
