package script

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tenon-cni/tenon/internal/shell"
)

// Shell returns the scenario as a text for a POSIX shell, which needs root, unshare(1), mount(8) and
// ip(8) but nothing of Tenon. It runs in namespaces that end with it, and prints the exit status and
// the output of each call:
//
//	--- add: exit status 0
//	{"cniVersion":"1.1.0"}
//
// A call that the judge kills has the exit status 137.
func (s *Scenario) Shell() string {
	inner := text{}
	inner.preparation(s)
	for i, step := range s.Steps {
		inner.step(i+1, step)
	}
	outer := text{}
	title := "Scenario " + s.Name
	if s.Version != "" {
		title += ", CNI " + s.Version
	}
	outer.line("# %s. Run this text as root. It works in namespaces of its own, and leaves", title)
	outer.line("# nothing behind.")
	outer.line("scenario=$(mktemp)")
	outer.document("cat >$scenario", "END-OF-SCENARIO", inner.String())
	outer.line("unshare --mount --net --ipc --uts --pid --fork --mount-proc sh -eu $scenario </dev/null")
	outer.line("rm $scenario")
	return outer.String()
}

// text is a shell script.
type text struct{ strings.Builder }

func (t *text) line(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }

// document adds a command with a here-document, in which the shell expands nothing. The data ends
// with a line feed.
func (t *text) document(command, end, data string) {
	end = delimiter(end, data)
	t.line("%s <<'%s'\n%s%s", command, end, data, end)
}

// delimiter returns a line that the data does not contain.
func delimiter(base, data string) string {
	end := base
	for n := 2; strings.Contains("\n"+data, "\n"+end+"\n"); n++ {
		end = fmt.Sprintf("%s-%d", base, n)
	}
	return end
}

func (t *text) preparation(s *Scenario) {
	t.line("# The directories of state are empty, and /etc is a copy.")
	t.line("cd /")
	t.line("mount -t tmpfs conform /run")
	t.line("mkdir -p %s %s %s %s", Plugins, Outputs, Calls, Netns)
	for _, p := range s.Programs {
		t.line("cp %s %s/", quote(p), Plugins)
	}
	t.line("for dir in /var /tmp; do mount -t tmpfs conform $dir; done")
	t.line("mkdir -p /var/lib /var/log /var/cache %s/etc %s/work", Dir, Dir)
	t.line("ln -s /run /var/run")
	t.line("mount -t overlay conform /etc -o lowerdir=/etc,upperdir=%s/etc,workdir=%s/work", Dir, Dir)
	t.line("mount -t sysfs conform /sys")
	t.line("ip link set lo up")
	if s.NoDetection {
		t.line(noDetection)
	}
	for _, f := range s.Files {
		t.file(f)
	}
	t.line(`
# run NAME COMMAND... executes a call. show NAME prints its exit status and output, and the variables and
# the input of the scripted plugins that ran since.
run() {
	name=$1
	shift
	status=0
	"$@" >"%[1]s/$name" || status=$?
	echo $status >"%[1]s/$name.status"
}
show() {
	echo "--- $1: exit status $(cat "%[1]s/$1.status")"
	cat "%[1]s/$1"
	echo
	for plugin in $(ls %[2]s | sed -n 's/\.name$//p' | sort -n); do
		echo "ran $(cat %[2]s/$plugin.name)"
		tr '\0' '\n' <%[2]s/$plugin.env | grep -E '^(CNI_|TRACE|BAGGAGE)' || :
		cat %[2]s/$plugin.stdin
		echo
	done
	rm -f %[2]s/*
}`, Outputs, Calls)
}

func (t *text) file(f File) {
	t.line("\nmkdir -p %s", quote(filepath.Dir(f.Path)))
	if strings.HasSuffix(f.Data, "\n") && plain(f.Data) {
		t.document("cat >"+quote(f.Path), "END-OF-FILE", f.Data)
	} else {
		t.line("%s >%s", printf(f.Data), quote(f.Path))
	}
	if f.Mode != 0 {
		t.line("chmod %o %s", f.Mode, quote(f.Path))
	}
}

func (t *text) step(number int, step Step) {
	commands := strings.TrimSpace(step.Shell)
	switch {
	case step.Daemon != "":
		t.line("\n# Step %d: a daemon in the background", number)
		t.line("sh -euc %s >>%s 2>&1 &", quote(strings.TrimSpace(step.Daemon)), DaemonLog)
		if commands != "" {
			t.line("until (\n%s\n) 2>/dev/null; do sleep 0.1; done", commands)
		}
	case step.Container != nil:
		t.line("\n# Step %d: container %s", number, step.Container.Name)
		t.Write([]byte(step.Container.commands()))
	case commands != "" && step.Try:
		t.line("\n# Step %d: commands that may fail", number)
		end := delimiter("END-OF-COMMANDS", commands+"\n")
		t.line("sh -eu <<'%s' || :\n%s\n%s", end, commands, end)
	case commands != "":
		t.line("\n# Step %d: commands", number)
		t.line("(\n%s\n)", commands)
	case len(step.Calls) == 1:
		t.line("\n# Step %d: call %s", number, step.Calls[0].Name)
		t.call(step.Calls[0], "")
		t.line("show %s", quote(step.Calls[0].Name))
	default:
		t.line("\n# Step %d: %d calls at the same time", number, len(step.Calls))
		for _, c := range step.Calls {
			t.call(c, " &")
		}
		t.line("wait")
		for _, c := range step.Calls {
			t.line("show %s", quote(c.Name))
		}
	}
}

// call adds the command of a call. It ends with a text behind the command.
func (t *text) call(c Call, end string) {
	if c.Fault != nil {
		t.line("# %s", c.Fault)
	}
	words := []string{"run", quote(c.Name)}
	if c.Deadline > 0 {
		words = append(words, "timeout", "-s", "KILL", fmt.Sprintf("%g", c.Deadline.Seconds()))
	}
	words = append(words, "env", "-i")
	for _, e := range c.Env {
		words = append(words, quote(e))
	}
	words = append(words, quote(c.Path))
	for _, a := range c.Args {
		words = append(words, quote(a))
	}
	command := wrap(words)
	document, ok := object(c.Stdin)
	switch fifo := Outputs + "/" + quote(c.Name) + ".input"; {
	case c.Open:
		t.line("mkfifo %s", fifo)
		t.line("{ %s >&9; %s 9>&-; } 9<>%s <%s%s", input(c.Stdin), command, fifo, fifo, end)
	case len(c.Stdin) == 0:
		t.line("%s </dev/null%s", command, end)
	case ok:
		t.line("%s <<%s%s\n%s", command, document.end, end, document.text)
	default:
		t.line("%s | %s%s", input(c.Stdin), command, end)
	}
}

// wrap joins words to lines, which are indented from the second one on.
func wrap(words []string) string {
	const width = 100
	var b strings.Builder
	column := 0
	for i, w := range words {
		switch {
		case i > 0 && column+1+len(w) > width:
			b.WriteString(" \\\n\t")
			column = 8
		case i > 0:
			b.WriteString(" ")
			column++
		}
		b.WriteString(w)
		column += len(w)
	}
	return b.String()
}

// here is a here-document: the word behind <<, and the text with the last line.
type here struct{ end, text string }

// object returns the standard input of a call as a here-document, if that is readable and means the
// same: an object in the compact form of package json. The document is indented, and refers to the
// outputs of other calls with $(cat FILE).
func object(in Text) (h here, ok bool) {
	const placeholder = "\"conform-output-%d\""
	var compact strings.Builder
	for i, p := range in {
		if p.Repeat > 1 {
			return h, false
		}
		compact.WriteString(p.Literal)
		if p.Output != "" {
			fmt.Fprintf(&compact, placeholder, i)
		}
	}
	var indented, again bytes.Buffer
	if compact.Len() > 8<<10 || !strings.HasPrefix(compact.String(), "{") || json.Compact(&again, []byte(compact.String())) != nil ||
		again.String() != compact.String() || !plain(compact.String()) ||
		json.Indent(&indented, again.Bytes(), "", "  ") != nil || indented.Len() > 32<<10 {
		return h, false
	}
	body, quoted := indented.String()+"\n", true
	for i, p := range in {
		mark := fmt.Sprintf(placeholder, i)
		if p.Output == "" {
			continue
		}
		if strings.Count(body, mark) != 1 {
			return h, false
		}
		if quoted {
			body, quoted = strings.NewReplacer(`\`, `\\`, "$", `\$`, "`", "\\`").Replace(body), false
		}
		body = strings.Replace(body, mark, "$(cat "+Outputs+"/"+quote(p.Output)+")", 1)
	}
	h.end = delimiter("END-OF-INPUT", body)
	h.text = body + h.end
	if quoted {
		h.end = "'" + h.end + "'"
	}
	return h, true
}

// input returns a command that prints exactly a text.
func input(in Text) string {
	var words []string
	for _, p := range in {
		switch {
		case p.Repeat > 1:
			words = append(words, fmt.Sprintf("yes %s | tr -d '\\n' | head -c %d", quote(p.Literal), p.Repeat*len(p.Literal)))
		case p.Literal != "":
			words = append(words, printf(p.Literal))
		}
		if p.Output != "" {
			words = append(words, "cat "+Outputs+"/"+quote(p.Output))
		}
	}
	switch len(words) {
	case 0:
		return ":"
	case 1:
		return words[0]
	}
	return "{ " + strings.Join(words, "; ") + "; }"
}

// plain reports whether a text has only characters that a terminal and a shell accept everywhere.
func plain(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool {
		return r != '\n' && r != '\t' && !unicode.IsPrint(r)
	}) < 0
}

// printf returns a command that prints a text.
func printf(s string) string {
	if plain(s) {
		return "printf %s " + quote(s)
	}
	return "printf " + quote(octal(s))
}

// octal returns a format for printf(1) without control characters.
func octal(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c == '%':
			b.WriteString("%%")
		case c == '\\':
			b.WriteString(`\\`)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// quote returns a word of the shell, without control characters.
func quote(s string) string {
	if plain(s) {
		return shell.Quote(s)
	}
	core := strings.TrimRight(s, "\n") // a command substitution drops line feeds at the end
	return `"$(` + printf(core) + `)"'` + s[len(core):] + "'"
}
