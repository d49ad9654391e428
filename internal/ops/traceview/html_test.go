package traceview_test

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tenon-cni/tenon/internal/ops/traceview"
	"github.com/tenon-cni/tenon/internal/testnet"
	"github.com/tenon-cni/tenon/internal/trace"
)

// hostile is a name that would run a script if it were not escaped.
const hostile = `"><script>document.title="owned"</script><img src=x onerror="document.title='owned'">`

func page(t *testing.T) string {
	t.Helper()
	records := failing()
	records[1].Name = hostile
	records[2].Attributes[trace.Result] = []string{hostile}
	records[11].Error = hostile
	var b bytes.Buffer
	if err := traceview.HTML(&b, read(t, file(records...))); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestHTML(t *testing.T) {
	t.Parallel()
	got := page(t)
	if n := strings.Count(got, "<script>"); n != 1 {
		t.Errorf("%d scripts", n)
	}
	if strings.Contains(got, "<img") {
		t.Error("a name is not escaped")
	}
	if found := regexp.MustCompile(`(?i)(https?:)?//[a-z]|@import|url\(|<link|\ssrc=[^&]`).FindString(strings.ReplaceAll(got, "&lt;img src=", "")); found != "" {
		t.Errorf("the page may load %q", found)
	}
	if n := strings.Count(got, "<tr class="); n != 14 {
		t.Errorf("%d rows", n)
	}
}

// chromium runs the browser on a page, without network, and returns its output.
func chromium(t *testing.T, path string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	args = append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
		"--user-data-dir=" + t.TempDir(), "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=2000"}, args...)
	cmd := exec.CommandContext(ctx, "chromium", append(args, "file://"+path)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("chromium: %v\n%s", err, stderr.String())
	}
	return string(out)
}

// TestBrowser opens the page in a browser: the script runs and hostile names do not, and the page is
// not wider than the window.
func TestBrowser(t *testing.T) {
	t.Parallel()
	testnet.Long(t) // the gate installs no browser
	testnet.Require(t, testnet.Tool("chromium"))
	path := filepath.Join(t.TempDir(), "trace.html")
	// The browser runs only the script of the page that the policy names, so the test appends its
	// own to that policy.
	const probe = `const lane = document.querySelector("tbody .lane").getBoundingClientRect();` +
		`document.body.dataset.bars = lane.width > 0.8 * innerWidth ? "below" : "beside";` +
		`document.body.dataset.wide = document.documentElement.scrollWidth > innerWidth;` +
		`document.querySelector("[data-do=plugins]").click();` +
		`document.body.dataset.rows = [...document.querySelectorAll("tbody tr")].filter(r => !r.hidden).length;` +
		`document.querySelectorAll("tbody .lane")[1].click();` +
		`document.body.dataset.axis = document.querySelector(".axis").textContent;`
	content := strings.Replace(page(t), "script-src '", "script-src 'nonce-probe' '", 1)
	content = strings.Replace(content, "</body>", `<script nonce="probe">`+probe+"</script></body>", 1)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, size := range []struct {
		width, height int
		bars          string
	}{{1400, 1000, "beside"}, {420, 900, "below"}} {
		t.Run(fmt.Sprintf("%d columns", size.width), func(t *testing.T) {
			t.Parallel()
			window := fmt.Sprintf("--window-size=%d,%d", size.width, size.height)
			picture := filepath.Join(t.TempDir(), "page.png")
			dom := chromium(t, path, window, "--dump-dom", "--screenshot="+picture)
			for _, want := range []string{`class="js"`, `data-bars="` + size.bars + `"`, `data-wide="false"`, `data-rows="6"`, `data-axis="0.100.380.650.931.20ms"`,
				"<title>ADD pods/web eth0</title>"} {
				if !strings.Contains(dom, want) {
					t.Errorf("the page lacks %s: %s", want, regexp.MustCompile(`<body[^>]*>`).FindString(dom))
				}
			}
			f, err := os.Open(picture)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if c, err := png.DecodeConfig(f); err != nil || c.Width != size.width {
				t.Errorf("picture %v, %v", c, err)
			}
		})
	}
}
