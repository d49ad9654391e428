package picture_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tenon-cni/tenon/internal/ops/picture"
	"github.com/tenon-cni/tenon/internal/ops/topology"
	"github.com/tenon-cni/tenon/internal/ops/topology/sample"
	"github.com/tenon-cni/tenon/internal/ops/why"
	"github.com/tenon-cni/tenon/internal/testnet"
)

// page writes the page of a host to a file.
func page(t *testing.T, p *why.Places) string {
	t.Helper()
	m := topology.Build(p)
	var b bytes.Buffer
	if err := picture.HTML(&b, m, m.Tree(false)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "map.html")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// browse opens a page in a browser without a screen, and returns the document after its script has
// run. Its only way out is a proxy that does not exist.
func browse(t *testing.T, path, fragment, size string, more ...string) string {
	t.Helper()
	args := append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--hide-scrollbars", "--no-first-run", "--proxy-server=127.0.0.1:1", "--virtual-time-budget=2000",
		"--user-data-dir=" + t.TempDir(), "--window-size=" + size}, more...)
	cmd := exec.CommandContext(t.Context(), "chromium", append(args, "--dump-dom",
		"file://"+path+fragment)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("chromium: %v\n%s", err, stderr.Bytes())
	}
	return string(out)
}

// body returns an attribute of the body, which the script of the page sets.
func body(dom, name string) string {
	m := regexp.MustCompile(`<body[^>]*\s` + name + `="([^"]*)"`).FindStringSubmatch(dom)
	if m == nil {
		return ""
	}
	return m[1]
}

// healthy checks that the script has run to its end, and that nothing was blocked.
func healthy(t *testing.T, dom string) {
	t.Helper()
	if body(dom, "data-ready") != "true" || body(dom, "data-error") != "" || body(dom,
		"data-violation") != "" {
		t.Errorf("ready %q, error %q, violation %q", body(dom, "data-ready"), body(dom, "data-error"),
			body(dom, "data-violation"))
	}
}

// TestPage searches and zooms in a browser, on pages of three sizes of hosts and two of windows.
func TestPage(t *testing.T) {
	t.Parallel()
	testnet.Long(t) // the gate installs no browser
	testnet.Require(t, testnet.Tool("chromium"))
	for _, row := range []struct {
		containers        int
		size, find, found string
		list              bool
	}{
		{3, "1280,800", "web", `<h2>web</h2>`, false},
		{50, "390,844", "10.77.0.30", `<h2>api-26</h2>`, true},
		{1000, "390,844", "api-900", `<h2>api-900</h2>`, true},
		{1000, "1280,800", "10.77.3.100", `<rect class="tile hit picked" data-i="`, false},
	} {
		t.Run(fmt.Sprintf("%d containers %s", row.containers, row.size), func(t *testing.T) {
			t.Parallel()
			dom := browse(t, page(t, sample.Host(row.containers)), "#zoom=2&q="+row.find, row.size)
			healthy(t, dom)
			if body(dom, "data-hits") != "1" || !strings.Contains(dom, row.found) {
				t.Errorf("%s hits for %s", body(dom, "data-hits"), row.find)
			}
			if strings.Contains(dom, `<body class="as-list"`) != row.list {
				t.Error("a phone gets a list, and a large window the picture")
			}
			whole, _ := strconv.ParseFloat(body(dom, "data-fit"), 64)
			if zoomed, err := strconv.ParseFloat(body(dom, "data-scale"), 64); err != nil ||
				zoomed < 1.7*whole {
				t.Errorf("scale %.2f, after zooming %.2f: %v", whole, zoomed, err)
			}
		})
	}
}

// TestHostileNames opens a page with attacks as names.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	testnet.Long(t) // the gate installs no browser
	testnet.Require(t, testnet.Tool("chromium"))
	dom := browse(t, page(t, sample.Hostile()), "#q=script", "1280,800")
	healthy(t, dom)
	for what, bad := range map[string]bool{
		"title": !strings.Contains(dom, "<title>Map of node-7</title>"), "image": strings.Contains(dom,
			"<img"),
		"script": strings.Count(dom, "<script") != 2, "control character": strings.ContainsAny(dom,
			"\x1b\u202e"),
	} {
		if bad {
			t.Errorf("a name has become part of the page: %s", what)
		}
	}
	if body(dom, "data-hits") == "0" {
		t.Error("the search does not find the name")
	}
}

// TestEscaping decodes all formats strictly: names are text only.
func TestEscaping(t *testing.T) {
	t.Parallel()
	m := topology.Build(sample.Hostile())
	var svg, html, chart bytes.Buffer
	if err := errors.Join(picture.SVG(&svg, m, m.Tree(true)), picture.HTML(&html, m, m.Tree(true)),
		picture.Mermaid(&chart, m.Tree(true))); err != nil {
		t.Fatal(err)
	}
	known := "svg style rect text g path title"
	d := xml.NewDecoder(&svg)
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && !strings.Contains(known, start.Name.Local) {
			t.Errorf("element %s", start.Name.Local)
		}
	}
	for _, bad := range []string{"<img", "<script>document", "<b>\"", "\x1b", "\u202e", "https:",
		"src=\""} {
		if strings.Contains(html.String(), bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	node := regexp.MustCompile(`^  n\d+(\[|\()"[^"<>` + "`" + `]*(<br/>[^"<>` + "`" +
		`]*)*"(\]|\))(:::\w+)?$`)
	for line := range strings.Lines(chart.String()) {
		line = strings.TrimSuffix(line, "\n")
		if strings.Contains(line, `"`) && !node.MatchString(line) {
			t.Errorf("line of Mermaid: %s", line)
		}
	}
}
