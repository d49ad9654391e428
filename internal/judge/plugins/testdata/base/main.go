// Command base is three small plugins that obey the specification: "lan" connects a container with a
// bridge, "pool" allocates addresses, and "mark" labels the interface of a container. The name of the
// program selects one. They use the standard library, ip(8), nft(8) and nsenter(1), and nothing of
// Tenon: the tests plant defects in them, and the judge has to find each.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// The codes of errors.
const (
	codeVersion     = 1
	codeUnsupported = 2
	codeVariables   = 4
	codeIO          = 5
	codeDecode      = 6
	codeConfig      = 7
	codeOwnNetns    = 8
	codeUnavailable = 50
	codeOther       = 100
)

var versions = []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// failure is the error object.
type failure struct {
	CNIVersion string `json:"cniVersion"`
	Code       int    `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details,omitempty"`
}

func (f *failure) Error() string { return f.Msg }

func fail(code int, format string, args ...any) error {
	return &failure{Code: code, Msg: fmt.Sprintf(format, args...)}
}

// call is one request.
type call struct {
	verb, id, netns, ifname, path string

	stdin   []byte
	version string
	conf    config
}

// config is what the plugins read of the configuration.
type config struct {
	CNIVersion *string `json:"cniVersion"`
	Name       string  `json:"name"`
	Bridge     string  `json:"bridge"`
	Label      string  `json:"label"`
	IPAM       *struct {
		Type   string `json:"type"`
		Subnet string `json:"subnet"`
		Last   string `json:"last"` // of the pool; default: the last but one of the subnet
	} `json:"ipam"`
	PrevResult json.RawMessage `json:"prevResult"`
	Valid      json.RawMessage `json:"cni.dev/valid-attachments"`
	// Attachments is the key of the tag spec-v1.1.0.
	Attachments json.RawMessage `json:"cni.dev/attachments"`
}

type attachment struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
}

// valid returns the attachments that GC must keep. The old key counts only if the new one is absent
// or null.
func (c *config) valid() (list []attachment, err error) {
	text := c.Valid
	if text == nil || string(text) == "null" {
		text = c.Attachments
	}
	if text == nil || string(text) == "null" {
		return nil, fail(codeConfig, "cni.dev/valid-attachments is missing")
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fail(codeDecode, "valid attachments: %v", err)
	}
	return list, nil
}

// plugin is the set of verbs of a plugin.
type plugin struct {
	add              func(*call) (*result, error)
	del, check       func(*call) error
	gc, status       func(*call) error
	needsPath        bool
	needsPrevResults bool
}

var plugins = map[string]plugin{
	"lan":  {add: lanAdd, del: lanDel, check: lanCheck, gc: lanGC, status: lanStatus, needsPath: true},
	"pool": {add: poolAdd, del: poolDel, check: poolCheck, gc: poolGC, status: poolStatus},
	"mark": {add: markAdd, del: markDel, check: markCheck, gc: nothing, status: nothing, needsPrevResults: true},
}

func nothing(*call) error { return nil }

func main() {
	p, ok := plugins[filepath.Base(os.Args[0])]
	if !ok {
		fmt.Fprintln(os.Stderr, "start this program as lan, pool or mark")
		os.Exit(1)
	}
	out, err := run(p)
	if err == nil {
		_, _ = os.Stdout.Write(out)
		return
	}
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{Code: codeOther, Msg: err.Error()}
	}
	answer := *f
	if answer.CNIVersion == "" {
		answer.CNIVersion = "1.1.0"
	}
	text, _ := json.Marshal(answer) // strings and numbers
	fmt.Println(string(text))
	os.Exit(1)
}

func run(p plugin) ([]byte, error) {
	c := &call{verb: os.Getenv("CNI_COMMAND"), id: os.Getenv("CNI_CONTAINERID"), netns: os.Getenv("CNI_NETNS"),
		ifname: os.Getenv("CNI_IFNAME"), path: os.Getenv("CNI_PATH")}
	switch c.verb {
	case "":
		fmt.Fprintf(os.Stderr, "CNI plugin %s for versions %s\n", filepath.Base(os.Args[0]), strings.Join(versions, ", "))
		return nil, nil
	case "VERSION":
		return versionReply(), nil
	case "ADD", "DEL", "CHECK", "GC", "STATUS":
	default:
		return nil, fail(codeVariables, "CNI_COMMAND: unknown command %q", c.verb)
	}
	if err := c.variables(p); err != nil {
		return nil, err
	}
	if err := c.read(); err != nil {
		return nil, err
	}
	out, err := c.execute(p)
	if err != nil {
		f := failure{Code: codeOther, Msg: err.Error()}
		if known := (*failure)(nil); errors.As(err, &known) {
			f = *known
		}
		f.CNIVersion = c.version
		return nil, &f
	}
	return out, nil
}

// versionReply repeats the version of the request. It does not wait long for one: the input can be
// empty and remain open.
func versionReply() []byte {
	requested := make(chan string, 1)
	go func() {
		var request struct {
			CNIVersion string `json:"cniVersion"`
		}
		_ = json.NewDecoder(os.Stdin).Decode(&request) // the version is empty if there is none
		requested <- request.CNIVersion
	}()
	version := versions[len(versions)-1]
	select {
	case v := <-requested:
		if slices.Contains(versions, v) {
			version = v
		}
	case <-time.After(2 * time.Second):
	}
	text, _ := json.Marshal(map[string]any{"cniVersion": version, "supportedVersions": versions})
	return append(text, '\n')
}

// pattern is a regular expression, which is compiled when a call needs it.
type pattern string

func (p pattern) MatchString(s string) bool { return regexp.MustCompile(string(p)).MatchString(s) }

const identifier pattern = `\A[a-zA-Z0-9][a-zA-Z0-9_.-]*\z`

// variables checks the variables that the verb needs.
func (c *call) variables(p plugin) error {
	var missing []string
	need := func(name, value string) {
		if value == "" {
			missing = append(missing, name)
		}
	}
	attached := c.verb == "ADD" || c.verb == "DEL" || c.verb == "CHECK"
	if attached {
		need("CNI_CONTAINERID", c.id)
		need("CNI_IFNAME", c.ifname)
	}
	if c.verb == "ADD" || c.verb == "CHECK" {
		need("CNI_NETNS", c.netns)
	}
	if attached && p.needsPath {
		need("CNI_PATH", c.path)
	}
	if missing != nil {
		return fail(codeVariables, "missing variables: %s", strings.Join(missing, ", "))
	}
	if !attached {
		return nil
	}
	if !identifier.MatchString(c.id) {
		return fail(codeVariables, "CNI_CONTAINERID %q: not an identifier", c.id)
	}
	if n := c.ifname; len(n) > 15 || n == "." || n == ".." || strings.ContainsAny(n, "/:") ||
		strings.ContainsFunc(n, unicode.IsSpace) {
		return fail(codeVariables, "CNI_IFNAME %q: not a name of an interface", n)
	}
	return nil
}

// read decodes the standard input.
func (c *call) read() (err error) {
	if c.stdin, err = io.ReadAll(io.LimitReader(os.Stdin, 32<<20)); err != nil {
		return fail(codeIO, "standard input: %v", err)
	}
	if !json.Valid(c.stdin) || !bytes.HasPrefix(bytes.TrimSpace(c.stdin), []byte("{")) {
		return fail(codeDecode, "the configuration is not a JSON object")
	}
	if err := json.Unmarshal(c.stdin, &c.conf); err != nil {
		return fail(codeDecode, "configuration: %v", err)
	}
	c.version = "0.1.0"
	if v := c.conf.CNIVersion; v != nil && *v != "" {
		if !versionForm.MatchString(*v) {
			return fail(codeDecode, "cniVersion %q is not a version", *v)
		}
		c.version = *v
	}
	if !identifier.MatchString(c.conf.Name) {
		return fail(codeConfig, "name %q: not a name of a network", c.conf.Name)
	}
	if !slices.Contains(versions, c.version) {
		return fail(codeVersion, "version %s of the configuration is not one of %s", c.version, strings.Join(versions, ", "))
	}
	return nil
}

const versionForm pattern = `\A[0-9]+\.[0-9]+\.[0-9]+\z`

// since reports whether the version of the call is a version or a newer one. All numbers in versions have
// one digit.
func (c *call) since(v string) bool { return c.version >= v }

func (c *call) execute(p plugin) ([]byte, error) {
	switch {
	case c.verb == "CHECK" && !c.since("0.4.0"), (c.verb == "GC" || c.verb == "STATUS") && !c.since("1.1.0"):
		return nil, fail(codeVersion, "version %s has no %s", c.version, c.verb)
	case c.verb == "GC":
		return nil, p.gc(c)
	case c.verb == "STATUS":
		return nil, p.status(c)
	case c.verb == "DEL":
		return nil, p.del(c)
	}
	if err := c.foreignNetns(); err != nil {
		return nil, err
	}
	if c.conf.PrevResult == nil && (c.verb == "CHECK" || p.needsPrevResults) {
		return nil, fail(codeConfig, "prevResult is missing")
	}
	if c.verb == "CHECK" {
		return nil, p.check(c)
	}
	r, err := p.add(c)
	if err != nil {
		return nil, err
	}
	return r.encode(c)
}

// foreignNetns returns an error if the namespace does not exist or is the one of this process.
func (c *call) foreignNetns() error {
	theirs, err := os.Stat(c.netns)
	if err != nil {
		return fail(codeVariables, "CNI_NETNS: %v", err)
	}
	own, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		return err
	}
	if v := os.Getenv("CNI_NETNS_OVERRIDE"); os.SameFile(theirs, own) && v != "1" && !strings.EqualFold(v, "true") {
		return fail(codeOwnNetns, "CNI_NETNS %s is the namespace of the plugin", c.netns)
	}
	return nil
}
