package plugins

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// The names that all scenarios use.
const (
	network      = "conform"
	ifName       = "eth0"
	scriptedIPAM = "conform-ipam"
)

// Setup is a subject in one role and version, from which cases build their scenarios.
type Setup struct {
	Subject *Subject
	Config  *Config
	Role    Role
	Version cni.Version
	// Lacks is the feature of the host that the configuration needs, if it is missing.
	Lacks string

	containers int  // of the scenario
	detection  bool // of duplicate IPv6 addresses is enabled, which takes more than a second
	alone      bool // the daemon of the configuration does not run
}

// Scenario returns a scenario in which the host is ready and the containers 1 to n exist.
func (s *Setup) Scenario(n int, steps ...script.Step) *script.Scenario {
	c := &script.Scenario{
		Version: s.Version.String(), Role: string(s.Role), NoDetection: !s.detection,
		Programs: append([]string{s.Subject.Path}, s.Config.Programs...),
		Files: []script.File{
			script.RecorderFile(scriptedIPAM), script.Answers(scriptedIPAM, "ADD", s.addresses()),
		},
	}
	if s.Role == Meta {
		c.Files = append(c.Files, s.delegateFiles()...)
	}
	s.containers = n
	if s.Config.Before != "" && s.Lacks == "" {
		c.Steps = append(c.Steps, script.Step{Shell: fmt.Sprintf("containers=%d\n%s", n, s.Config.Before), Quiet: true})
	}
	if s.Config.Daemon != "" && s.Lacks == "" && !s.alone {
		step := script.Step{Daemon: s.Subject.commands(s.Config.Daemon), Quiet: true}
		if s.Config.Ready != "" {
			step.Shell = s.Subject.commands(s.Config.Ready)
		}
		c.Steps = append(c.Steps, step)
	}
	for i := 1; i <= n; i++ {
		c.Steps = append(c.Steps, s.container(i)...)
	}
	c.Steps = append(c.Steps, steps...)
	return c
}

// container returns the steps that create container n.
func (s *Setup) container(n int) []script.Step {
	c := &script.Container{Name: fmt.Sprintf("c%d", n), NoDetection: !s.detection, Up: s.ifName() != "lo"}
	if s.Role == Chained {
		v4, v6 := previousAddresses(n)
		c.Veth = &script.Veth{
			Host: fmt.Sprintf("host%d", n), HostMAC: fmt.Sprintf("02:00:00:01:00:%02x", n),
			MAC: fmt.Sprintf("02:00:00:00:00:%02x", n), Addrs: []netip.Prefix{netip.MustParsePrefix(v4), netip.MustParsePrefix(v6)},
		}
	}
	steps := []script.Step{{Container: c, Quiet: true}}
	if s.Config.Container != "" && s.Lacks == "" {
		text := fmt.Sprintf("container=%s\nn=%d\n%s\n", c.Name, n, s.Config.Container)
		steps = append(steps, script.Step{Shell: text, Quiet: true})
	}
	return steps
}

// previousAddresses returns the addresses that the plugins before a chained one gave container n.
func previousAddresses(n int) (v4, v6 string) {
	return fmt.Sprintf("10.77.0.%d/24", n+1), fmt.Sprintf("fd77::%x/64", n+1)
}

// PrevResult returns the result of the plugins before a chained one for container n.
func (s *Setup) PrevResult(n int) string {
	ip := func(version, address string, index int) string {
		if s.Version >= cni.V100 {
			return fmt.Sprintf(`{"address":%q,"interface":%d}`, address, index)
		}
		return fmt.Sprintf(`{"version":%q,"address":%q,"interface":%d}`, version, address, index)
	}
	v4, v6 := previousAddresses(n)
	if s.Version < cni.V030 {
		return fmt.Sprintf(`{"cniVersion":%q,"ip4":{"ip":%q},"ip6":{"ip":%q}}`, s.Version, v4, v6)
	}
	return fmt.Sprintf(`{"cniVersion":%q,"interfaces":[{"name":"host%[2]d","mac":"02:00:00:01:00:%02[2]x"},`+
		`{"name":"eth0","mac":"02:00:00:00:00:%02[2]x","sandbox":%q}],"ips":[%s,%s]}`,
		s.Version, n, netns(n), ip("4", v4, 1), ip("6", v6, 1))
}

// addresses is the answer of the scripted IPAM plugin to ADD.
func (s *Setup) addresses() string { return answerWith(s.ipamResult()) }

// ipamResult is the result in [Setup.addresses], with the variables of [answerWith].
func (s *Setup) ipamResult() string {
	result := `{"cniVersion":%q,"ips":[{"address":"10.77.0.$n/24","gateway":"10.77.0.1"},` +
		`{"address":"fd77::$x/64","gateway":"fd77::1"}],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}`
	switch {
	case s.Version < cni.V030:
		result = `{"cniVersion":%q,"ip4":{"ip":"10.77.0.$n/24","gateway":"10.77.0.1","routes":[{"dst":"0.0.0.0/0"}]},` +
			`"ip6":{"ip":"fd77::$x/64","gateway":"fd77::1","routes":[{"dst":"::/0"}]}}`
	case s.Version < cni.V100:
		result = strings.ReplaceAll(result, `{"address":"10`, `{"version":"4","address":"10`)
		result = strings.ReplaceAll(result, `{"address":"fd`, `{"version":"6","address":"fd`)
	}
	return fmt.Sprintf(result, s.Version)
}

// answerWith returns an answer of the scripted IPAM plugin that prints a result. The variables n and x are
// numbers of the container and the interface, decimal and hexadecimal. echo(1) belongs to the shell, so
// that the plugin starts no process for it.
func answerWith(result string) string {
	return `i=${CNI_IFNAME##*[!0-9]}
n=$((${CNI_CONTAINERID##*[!0-9]} + 1 + 100 * ${i:-0}))
x=$(printf %x $n)
echo "` + strings.ReplaceAll(result, `"`, `\"`) + "\"\n"
}

// commands returns a text for sh(1) in which $plugin is the path of the subject.
func (s *Subject) commands(text string) string {
	return fmt.Sprintf("plugin=%s\n%s", s.program(), text)
}

// program returns the path of the subject in the cell.
func (s *Subject) program() string { return script.Plugins + "/" + s.Name }

func (s *Setup) ifName() string { return cmp.Or(s.Config.IfName, ifName) }

func netns(n int) string       { return fmt.Sprintf("%s/c%d", script.Netns, n) }
func containerID(n int) string { return fmt.Sprintf("conform-%d", n) }

// Request returns the members of the configuration of the subject for container n. Cases change them.
func (s *Setup) Request(n int) map[string]any {
	m := number(s.Config.Network, n).(map[string]any)
	m["cniVersion"], m["name"], m["type"] = s.Version.String(), network, s.Subject.Name
	if s.Config.ScriptedIPAM {
		m["ipam"] = map[string]any{"type": scriptedIPAM}
	}
	if s.Config.Capabilities != nil {
		m["runtimeConfig"] = number(s.Config.Capabilities, n)
	}
	if n <= len(s.Config.Containers) && n > 0 {
		maps.Copy(m, number(s.Config.Containers[n-1], n).(map[string]any))
	}
	return m
}

// Call returns a call of the subject for container n, with a request as a runtime derives it: ADD of
// a chained plugin has the previous result of [Setup.PrevResult], CHECK and DEL have the result
// of the call "add", or of "addN" for container N from 2 on. options change it.
func (s *Setup) Call(name string, verb cni.Command, n int, options ...func(*Draft)) script.Call {
	d := &Draft{Request: s.Request(n), Env: map[string]string{
		"CNI_COMMAND": string(verb), "CNI_PATH": script.Plugins, "PATH": searchPath,
	}}
	if verb == cni.Add || verb == cni.Del || verb == cni.Check {
		d.Env["CNI_CONTAINERID"], d.Env["CNI_NETNS"], d.Env["CNI_IFNAME"] = containerID(n), netns(n), s.ifName()
		d.Env["CNI_ARGS"] = s.Config.Args
	}
	switch {
	case verb == cni.Add && s.Role == Chained:
		d.Request["prevResult"] = script.Literal(s.PrevResult(n))
	case verb == cni.Check, verb == cni.Del && s.Version >= cni.V040:
		add := "add"
		if n > 1 {
			add = fmt.Sprintf("add%d", n)
		}
		d.Request["prevResult"] = script.Text{{Output: add}}
	}
	for _, o := range options {
		o(d)
	}
	c := script.Call{Name: name, Path: s.Subject.program(), Stdin: d.Stdin}
	for _, k := range slices.Sorted(maps.Keys(d.Env)) {
		c.Env = append(c.Env, k+"="+d.Env[k])
	}
	if c.Stdin == nil && d.Request != nil {
		var err error
		if c.Stdin, err = script.Object(d.Request); err != nil {
			panic(err) // a case of the judge contains a value that JSON does not have
		}
	}
	return c
}

// Draft is a call that options can change before it becomes part of a scenario.
type Draft struct {
	Request map[string]any
	Env     map[string]string
	Stdin   script.Text // replaces Request unless nil
}

// Without removes variables or keys of the request.
func Without(names ...string) func(*Draft) {
	return func(d *Draft) {
		for _, n := range names {
			delete(d.Env, n)
			delete(d.Request, n)
		}
	}
}

// With sets a key of the request.
func With(key string, value any) func(*Draft) {
	return func(d *Draft) { d.Request[key] = value }
}

// Env sets a variable.
func Env(key, value string) func(*Draft) {
	return func(d *Draft) { d.Env[key] = value }
}

// Stdin replaces the standard input.
func Stdin(text string) func(*Draft) {
	return func(d *Draft) { d.Stdin = script.Literal(text) }
}

// Each returns a step for each call.
func Each(calls ...script.Call) (steps []script.Step) {
	for _, c := range calls {
		steps = append(steps, script.Step{Calls: []script.Call{c}})
	}
	return steps
}
