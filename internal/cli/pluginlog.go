package cli

import (
	"bytes"
	"io"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/tenon-cni/tenon/invoke"
)

// logLine matches a line that package log/slog writes by default, as Tenon's plugins do:
// "2006/01/02 15:04:05 LEVEL message key=value".
// It is compiled on first use, because plugins do not need it at their start.
var logLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d (DEBUG|INFO|WARN|ERROR) (.*?)((?: [\w.]+=(?:"(?:[^"\\]|\\.)*"|[^ "]*))*)$`,
	)
})

var logAttr = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(` ([\w.]+)=("(?:[^"\\]|\\.)*"|[^ "]*)`)
})

// pluginLog is standard error of plugins that run as processes. It writes the log lines of Tenon's
// plugins in the style of the command's own messages, from its log level on, and copies all other
// output.
type pluginLog struct {
	w     io.Writer
	least slog.Leveler

	mu   sync.Mutex
	rest []byte // the start of a line that is not complete
}

// Write implements [io.Writer].
func (p *pluginLog) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest = append(p.rest, b...)
	for {
		i := bytes.IndexByte(p.rest, '\n')
		if i < 0 {
			return len(b), nil
		}
		line := string(p.rest[:i])
		p.rest = p.rest[i+1:]
		if err := p.line(line); err != nil {
			return 0, err
		}
	}
}

// Close writes the last line if it is incomplete.
func (p *pluginLog) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.w.Write(p.rest)
	p.rest = nil
	return err
}

func (p *pluginLog) line(line string) error {
	m := logLine().FindStringSubmatch(line)
	var level slog.Level
	if m == nil || level.UnmarshalText([]byte(m[1])) != nil {
		_, err := io.WriteString(p.w, line+"\n")
		return err
	}
	if level < p.least.Level() {
		return nil
	}
	var attrs []string
	for _, a := range logAttr().FindAllStringSubmatch(m[3], -1) {
		value, err := strconv.Unquote(a[2])
		if err != nil {
			value = a[2]
		}
		attrs = append(attrs, a[1]+": "+value)
	}
	text := m[2]
	if len(attrs) > 0 {
		text += " (" + strings.Join(attrs, ", ") + ")"
	}
	return writeLine(p.w, levelName(level), text)
}

// withStderr returns a caller that passes standard error of plugin processes to w, if c supports
// it.
func withStderr(c invoke.Caller, w io.Writer) invoke.Caller {
	if c, ok := c.(interface {
		WithStderr(w io.Writer) invoke.Caller
	}); ok {
		return c.WithStderr(w)
	}
	return c
}
