package statefile

import "os"

// NamesIn is [Names] of the directory at a path.
func NamesIn(path string) ([]string, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return Names(dir)
}
