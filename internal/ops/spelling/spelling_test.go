package spelling

import "testing"

func TestNearest(t *testing.T) {
	t.Parallel()
	commands := []string{
		"add",
		"check",
		"del",
		"demo",
		"install",
		"ipam",
		"--json",
		"--keep-none",
		"--keep",
	}
	for name, want := range map[string]string{
		"ad":       "add",
		"dad":      "add",
		"dle":      "del",
		"delete":   "del",
		"instal":   "install",
		"inst":     "install",
		"chekc":    "check",
		"x":        "",
		"ps":       "",
		"--jsn":    "--json",
		"--kep":    "--keep",
		"--keep-n": "--keep-none",
		"":         "add",
	} {
		if got := Nearest(name, commands); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"add", "add", 0}, {"add", "dad", 1}, {"pods", "pds", 1}, {"bridge", "brigde", 1},
		{"check", "chalk", 2}, {"abc", "xyz", 3},
	} {
		if got, back := distance(row.a, row.b), distance(row.b, row.a); got != row.want ||
			back != row.want {
			t.Errorf("%q, %q: got %d and %d, want %d", row.a, row.b, got, back, row.want)
		}
	}
}
