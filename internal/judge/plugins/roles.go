package plugins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/judge/cell"
	"github.com/tenon-cni/tenon/internal/judge/script"
	"github.com/tenon-cni/tenon/internal/judge/trial"
)

// Roles returns all roles.
func Roles() []Role { return []Role{Interface, Chained, IPAM, Meta} }

// validate returns an error unless the role is one of [Roles].
func (r Role) validate() error {
	if slices.Contains(Roles(), r) {
		return nil
	}
	return fmt.Errorf("role %q is none of %v", r, Roles())
}

// Detect finds the roles of the subject and a configuration for each: the built-in one of a
// well-known name if the plugin works with it, else those with which trial calls of ADD show a role.
// If role is not empty, only that role is judged. If no role is found, Unknown explains it.
func (s *Subject) Detect(ctx context.Context, role Role) error {
	var known []Config
	for _, c := range WellKnown(s.Name) {
		known = append(known, c.locate(s.Path))
	}
	works, err := s.works(ctx, known)
	if err != nil {
		return err
	}
	s.Configs, s.Unknown = known, ""
	if !works {
		probed, reason, err := s.probe(ctx)
		if err != nil {
			return err
		}
		if len(probed) > 0 {
			s.Configs = probed
		} else if len(known) == 0 {
			s.Unknown = reason
		}
	}
	if role == "" {
		return nil
	}
	if err := role.validate(); err != nil {
		return err
	}
	s.Configs = slices.DeleteFunc(slices.Clone(s.Configs), func(c Config) bool { return c.Role != role })
	if len(s.Configs) == 0 {
		s.Configs, s.Unknown = []Config{{Role: role}}, ""
	}
	return nil
}

// works reports whether ADD succeeds with the first configuration, or the host lacks what it needs.
func (s *Subject) works(ctx context.Context, configs []Config) (bool, error) {
	if len(configs) == 0 {
		return false, nil
	}
	if lacks, err := s.lacks(ctx, &configs[0], trial.Play); err != nil || lacks != "" {
		return true, err
	}
	setup := &Setup{Subject: s, Config: &configs[0], Role: configs[0].Role, Version: slices.Max(s.Versions)}
	sc := setup.Scenario(1, quiet(setup.Call("add", cni.Add, 1)))
	sc.Name = "probe"
	r, err := cell.Run(ctx, sc)
	if err != nil {
		return false, err
	}
	add, _ := r.Call("add")
	return r.Broken == "" && add.Failed == "" && add.Status == 0, nil
}

// scriptedDelegate is the interface plugin of the judge that meta plugins call.
const scriptedDelegate = "conform-delegate"

// delegateFiles are the files of that plugin, which creates a link.
func (s *Setup) delegateFiles() []script.File {
	return []script.File{
		script.RecorderFile(scriptedDelegate),
		script.Answers(scriptedDelegate, "ADD", fmt.Sprintf(`ip -n ${CNI_NETNS##*/} link add $CNI_IFNAME type bridge || exit 1
echo '{"cniVersion":%q,"interfaces":[{"name":"'$CNI_IFNAME'","sandbox":"'$CNI_NETNS'"}]}'
`, s.Version)),
		script.Answers(scriptedDelegate, "CHECK", "ip -n ${CNI_NETNS##*/} link show $CNI_IFNAME >&2\n"),
		script.Answers(scriptedDelegate, "DEL", "ip -n ${CNI_NETNS##*/} link del $CNI_IFNAME 2>/dev/null || :\n"),
	}
}

// The keys of the configurations that a probe tries.
func (s *Subject) ipamSection() map[string]any {
	return map[string]any{"ipam": map[string]any{"type": s.Name, "subnet": "10.78.0.0/24"}}
}

func (s *Subject) ipamSectionOfOne() map[string]any {
	return map[string]any{"ipam": map[string]any{"type": s.Name, "subnet": "10.78.0.0/24",
		"rangeStart": "10.78.0.9", "rangeEnd": "10.78.0.9"}}
}

func delegateSection() map[string]any {
	delegate := map[string]any{"type": scriptedDelegate, "name": network}
	return map[string]any{"delegate": delegate, "delegates": []any{delegate}}
}

// probe calls ADD in several ways. The reason explains why no role was found.
func (s *Subject) probe(ctx context.Context) (configs []Config, reason string, err error) {
	setup := &Setup{Subject: s, Config: &Config{}, Role: Interface, Version: slices.Max(s.Versions)}
	prepared := *setup
	prepared.Role = Chained
	add := func(name string, n int, options ...func(*Draft)) script.Step {
		return call(setup.Call(name, cni.Add, n, options...))
	}
	sc := setup.Scenario(4, slices.Concat(prepared.container(5), []script.Step{
		add("plain", 1),
		add("delegating", 2, With("ipam", map[string]any{"type": scriptedIPAM})),
		add("ipam", 3, replace(s.ipamSection())),
		add("meta", 4, replace(delegateSection())),
		add("chained", 5, With("prevResult", script.Literal(prepared.PrevResult(5)))),
		add("one", 6, replace(s.ipamSectionOfOne()), Env("CNI_NETNS", netns(3))),
		add("two", 7, replace(s.ipamSectionOfOne()), Env("CNI_NETNS", netns(3))),
	})...)
	sc.Name = "probe"
	sc.Files = append(sc.Files, setup.delegateFiles()...)
	r, err := cell.Run(ctx, sc)
	if err != nil {
		return nil, "", err
	}
	if r.Broken != "" {
		return nil, "", errors.New(r.Broken)
	}
	configs = s.roles(r)
	if configs != nil {
		return configs, "", nil
	}
	var errs []string
	for _, name := range []string{"plain", "delegating", "ipam", "meta", "chained"} {
		c, _ := r.Call(name)
		errs = append(errs, fmt.Sprintf("%s: %s", name, describe(c)))
	}
	return nil, "role unknown: describe it in a file for --config; trial calls of ADD: " + strings.Join(errs, "; "), nil
}

// roles derives the roles of a plugin from the trial calls.
func (s *Subject) roles(r *script.Recording) (configs []Config) {
	succeeded := func(name string) bool {
		c, _ := r.Call(name)
		return c.Failed == "" && c.Status == 0
	}
	started := func(name, plugin string) bool {
		c, _ := r.Call(name)
		return slices.ContainsFunc(c.Recorded, func(d script.Recorded) bool { return d.Plugin == plugin })
	}
	allocates := func(name string) bool {
		c, _ := r.Call(name)
		got, err := cni.DecodeResult(c.Stdout, slices.Max(s.Versions))
		return succeeded(name) && err == nil && len(got.IPs) > 0 && len(got.Interfaces) == 0
	}
	creates := func(name, container string) bool { return succeeded(name) && hasLink(r.After(name), container, ifName) }
	switch {
	case started("delegating", scriptedIPAM):
		configs = append(configs, Config{Role: Interface, ScriptedIPAM: true})
	case started("meta", scriptedDelegate):
		return []Config{{Role: Meta, Network: delegateSection()}}
	case creates("plain", "c1"):
		configs = append(configs, Config{Role: Interface})
	case allocates("ipam"):
		c := Config{Role: IPAM, Network: s.ipamSection()}
		if allocates("one") && !succeeded("two") {
			c.Exhausted = s.ipamSectionOfOne()
		}
		return []Config{c}
	case allocates("plain"):
		return []Config{{Role: IPAM}}
	}
	if succeeded("chained") {
		configs = append(configs, Config{Role: Chained})
	}
	return configs
}
