package provenance

import "testing"

func TestDirHash(t *testing.T) {
	t.Parallel()
	got, err := dirHash("h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")
	const want = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	if err != nil || got != want {
		t.Errorf("got %q, %v; want %s", got, err, want)
	}
	for _, sum := range []string{"", "h2:47DEQpj8HBSa", "h1:%"} {
		if got, err := dirHash(sum); err == nil {
			t.Errorf("%q: got %q", sum, got)
		}
	}
}
