package main

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

// TestPlot draws rows with times on both sides only, in proportion to the slower side.
func TestPlot(t *testing.T) {
	t.Parallel()
	picture := plot([]row{
		{What: "ADD <bridge>", Unit: "ms", Ours: 10, Peer: 40},
		{What: "no peer", Unit: "ms", Ours: 10},
		{What: "size", Unit: "MiB", Ours: 1, Peer: 2},
	}, "Tenon", "upstream")
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		if _, err := decoder.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for text, times := range map[string]int{
		"ADD &lt;bridge&gt;": 1, "no peer": 0, "size": 0, `width="92.5"`: 1, `width="370.0"`: 1, "upstream": 1,
	} {
		if n := strings.Count(picture, text); n != times {
			t.Errorf("%q appears %d times, want %d:\n%s", text, n, times, picture)
		}
	}
}
