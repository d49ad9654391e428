package runtimes

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// The directories and names that a driver gets.
const (
	confDir   = script.Dir + "/net.d"
	cacheDir  = "/var/lib/conform"
	netName   = "judged"
	ifName    = "eth0"
	netnsName = "c1"
	netnsPath = script.Netns + "/" + netnsName
	id        = "conform-1"

	// searchPath is the PATH of drivers.
	searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:" + script.Plugins

	// timeout is the deadline of a verb in milliseconds.
	timeout = 20_000
)

// The scripted plugins, in the order of the list.
const (
	first  = "conform-first"
	second = "conform-second"
	third  = "conform-third"
)

// Setup builds the scenario of a case for a version of the specification.
type Setup struct {
	Subject *Subject
	Version cni.Version
	files   []script.File
	answers map[string]bool // paths of the answers of plugins that the case changes
}

// plugin returns the object of a plugin in a list, with further members.
func plugin(typ string, more ...map[string]any) map[string]any {
	p := map[string]any{"type": typ}
	for _, m := range more {
		for k, v := range m {
			p[k] = v
		}
	}
	return p
}

// list returns a list of plugins without options.
func (s *Setup) list(name string, types ...string) map[string]any {
	var plugins []any
	for _, t := range types {
		plugins = append(plugins, plugin(t))
	}
	return map[string]any{"cniVersion": s.Version.String(), "name": name, "plugins": plugins}
}

// three returns the list of the three scripted plugins.
func (s *Setup) three() map[string]any { return s.list(netName, first, second, third) }

// network adds a list to the directory of configurations.
func (s *Setup) network(file string, list map[string]any) {
	s.files = append(s.files, script.File{Path: confDir + "/" + file + ".conflist", Data: document(list)})
}

// document returns a value as JSON.
func document(v any) string {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(err) // a case of the judge contains a value that JSON does not have
	}
	return string(b) + "\n"
}

// answer sets what a scripted plugin does for a command, as a text for sh(1).
func (s *Setup) answer(typ string, verb cni.Command, shell string) {
	f := script.Answers(typ, string(verb), shell)
	if s.answers == nil {
		s.answers = map[string]bool{}
	}
	s.answers[f.Path] = true
	s.files = append(s.files, f)
}

// fails returns an answer that fails with an error object.
func (s *Setup) fails(code cni.Code, details string) string {
	return fmt.Sprintf("echo '{\"cniVersion\":%q,\"code\":%d,\"msg\":%q,\"details\":%q}'\nexit 1\n",
		s.Version, code, refusal, details)
}

// refusal is the message of plugins that fail.
const refusal = "conform-refusal"

// prints returns an answer that prints a result in a version.
func prints(r *cni.Result, v cni.Version) string {
	text, err := r.Encode(v)
	if err != nil {
		panic(err) // the results of the judge exist in all versions
	}
	return "cat <<'END-OF-RESULT'\n" + string(text) + "\nEND-OF-RESULT\n"
}

// results are the results of the scripted plugins: each one adds something to the one before.
func results(typ string) *cni.Result {
	r := &cni.Result{
		Interfaces: []cni.Interface{{Name: ifName, MAC: "02:00:00:00:00:01", Sandbox: netnsPath}},
		IPs:        []cni.IP{{Address: netip.MustParsePrefix("10.77.0.2/24"), Gateway: netip.MustParseAddr("10.77.0.1")}},
	}
	if typ == second || typ == third {
		r.Routes = []cni.Route{{Dst: netip.MustParsePrefix("10.88.0.0/16")}}
	}
	if typ == third {
		r.DNS = cni.DNS{Nameservers: []string{"10.77.0.53"}}
	}
	return r
}

// input is the standard input of a driver.
type input struct {
	members map[string]any
	env     []string
}

type option func(*input)

// with sets a member of the input.
func with(key string, value any) option { return func(i *input) { i.members[key] = value } }

// network and container select another network and container.
func network(name string) option { return with("network", name) }
func container(id string) option { return with("containerID", id) }

// environment adds a variable to the environment of the driver.
func environment(variable string) option { return func(i *input) { i.env = append(i.env, variable) } }

// call returns a call of the driver.
func (s *Setup) call(name string, verb Verb, options ...option) script.Call {
	i := &input{
		members: map[string]any{"network": netName, "confDir": confDir, "pluginDirs": []string{script.Plugins},
			"cacheDir": cacheDir, "timeoutMs": timeout},
		env: []string{"PATH=" + searchPath},
	}
	switch verb {
	case Add, Check, Del:
		i.members["containerID"], i.members["netns"], i.members["ifname"] = id, netnsPath, ifName
		i.members["args"], i.members["capabilityArgs"] = []any{}, map[string]any{}
	case GC:
		i.members["validAttachments"] = []any{}
	}
	for _, o := range options {
		o(i)
	}
	text, err := script.Object(i.members)
	if err != nil {
		panic(err) // a case of the judge contains a value that JSON does not have
	}
	return script.Call{Name: name, Path: script.Plugins + "/" + s.Subject.Name,
		Args: append(slices.Clone(s.Subject.Arguments), string(verb)), Env: i.env, Stdin: text}
}

// step returns a step with a call. The state of the kernel is irrelevant for runtimes.
func step(calls ...script.Call) script.Step { return script.Step{Calls: calls, Quiet: true} }

// run returns a step with commands.
func run(shell string) script.Step { return script.Step{Shell: shell, Quiet: true} }

// scenario returns a scenario with the scripted plugins, a container and steps.
func (s *Setup) scenario(steps ...script.Step) *script.Scenario {
	for _, typ := range []string{first, second, third} {
		s.files = append(s.files, script.RecorderFile(typ))
		for verb, text := range map[cni.Command]string{cni.VersionCommand: s.supported(), cni.Add: prints(results(typ), s.Version)} {
			if f := script.Answers(typ, string(verb), text); !s.answers[f.Path] {
				s.files = append(s.files, f)
			}
		}
	}
	return &script.Scenario{Version: s.Version.String(), Role: Role,
		Programs: append([]string{s.Subject.Path}, s.Subject.Programs...), Files: s.files,
		Steps: append([]script.Step{
			run("mkdir -p " + cacheDir),
			{Container: &script.Container{Name: netnsName}, Quiet: true},
		}, steps...)}
}

// inVersion returns an answer of a first plugin to ADD, with a result in the version of the request.
func inVersion() string {
	var b strings.Builder
	b.WriteString("case $(tr -d ' \t\n' <$stdin) in\n")
	for _, v := range judgedVersions() {
		fmt.Fprintf(&b, "*'\"cniVersion\":\"%s\"'*)\n%s;;\n", v, prints(results(first), v))
	}
	b.WriteString("esac\n")
	return b.String()
}

// supported is the answer of scripted plugins to VERSION.
func (s *Setup) supported() string {
	var list []string
	for _, v := range cni.Versions() {
		list = append(list, v.String())
	}
	return fmt.Sprintf("echo '{\"cniVersion\":%q,\"supportedVersions\":[\"%s\"]}'\n",
		s.Version, strings.Join(list, `","`))
}
