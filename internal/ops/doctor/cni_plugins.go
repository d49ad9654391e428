package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/plugins/all"
)

func pluginChecks() []Check {
	return []Check{
		{ID: "plugins.missing", Title: "plugins that networks need and no directory has",
			Run: checkMissingPlugins},
		{ID: "plugins.executable", Title: "plugins that the kernel does not start",
			Run: checkExecutable},
		{ID: "plugins.owner", Title: "plugins that users other than root can change",
			Run: checkPluginOwner},
		{ID: "plugins.versions", Title: "plugins of several versions", Run: checkPluginVersions},
	}
}

// needed returns the plugins that networks name, with the networks.
func (s *State) needed() (types []string, networks map[string][]string) {
	networks = map[string][]string{}
	for _, n := range s.Networks {
		for _, p := range n.Plugins {
			for _, typ := range []string{p.Type, p.ipam().Type} {
				if typ == "" {
					continue
				}
				if networks[typ] == nil {
					types = append(types, typ)
				}
				if !slices.Contains(networks[typ], n.Name) {
					networks[typ] = append(networks[typ], n.Name)
				}
			}
		}
	}
	slices.Sort(types)
	return types, networks
}

// ipamSection is the part of an ipam section that the checks need.
type ipamSection struct {
	Type             string `json:"type"`
	DaemonSocketPath string `json:"daemonSocketPath"`
	Socket           string `json:"socket"`
}

func (p Plugin) ipam() ipamSection {
	var conf struct {
		IPAM ipamSection `json:"ipam"`
	}
	_ = json.Unmarshal(p.Conf, &conf) // package lint reports wrong types
	return conf.IPAM
}

// file returns the file that runtimes start for a plugin, the first one in the directories.
func (s *State) file(typ string) (PluginFile, bool) {
	i := slices.IndexFunc(s.CNI.Plugins, func(f PluginFile) bool { return f.Name == typ })
	if i < 0 {
		return PluginFile{}, false
	}
	return s.CNI.Plugins[i], true
}

func checkMissingPlugins(_ context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partPlugins); err != nil {
		return nil, err
	}
	if len(s.Options.PluginDirs) == 0 {
		return nil, NotUsed()
	}
	dirs := strings.Join(s.Options.PluginDirs, ", ")
	types, networks := s.needed()
	var missing, foreign []string
	for _, typ := range types {
		if _, ok := s.file(typ); !ok {
			if missing = append(missing, typ); all.Find(typ) == nil {
				foreign = append(foreign, typ)
			}
		}
	}
	if len(missing) == len(types) && foreign == nil && len(missing) > 0 && s.onlyTenon() {
		// No plugin is installed, and nothing but tenon itself attaches containers.
		return []Finding{{ID: "plugins.not-installed", Severity: Info,
			Title: fmt.Sprintf("no plugin is installed in %s", dirs),
			Text: "The command tenon and runtimes such as containerd cannot attach containers without " +
				"the files. Programs with linked plugins need none.",
			Evidence: []Evidence{{"ls " + s.Options.PluginDirs[0], ""}},
			Fix:      []Fix{s.installation()}}}, nil
	}
	for _, typ := range missing {
		f := Finding{ID: "plugins.missing", Severity: Error, Affects: networks[typ],
			Title: fmt.Sprintf("network %s needs plugin %s, which is in none of the plugin "+
				"directories", names(networks[typ]), typ),
			Text: fmt.Sprintf(
				"Runtimes search %s. They refuse to attach containers until the file "+
					"exists.",
				dirs,
			),
			Evidence: []Evidence{{"ls " + strings.Join(s.Options.PluginDirs, " "), ""}}}
		if all.Find(typ) != nil {
			f.Fix = []Fix{s.installation()}
		} else {
			f.Fix = []Fix{{Command: "install plugin " + typ,
				Effect: "from the project that provides it; Tenon does not have it"}}
		}
		list = append(list, f)
	}
	return list, nil
}

// onlyTenon reports whether the command tenon has made all attachments of this host.
func (s *State) onlyTenon() bool {
	if len(s.CNI.Plugins) > 0 {
		return false
	}
	return !slices.ContainsFunc(s.CNI.Attachments, func(a Attachment) bool {
		return a.Runtime != "" && a.Runtime != "tenon"
	})
}

func (s *State) installation() Fix {
	dir := "/opt/cni/bin"
	if len(s.Options.PluginDirs) > 0 {
		dir = s.Options.PluginDirs[0]
	}
	return Fix{Command: "tenon install " + dir,
		Effect: "installs all plugins of Tenon, and keeps replaced files as NAME.before-tenon"}
}

func checkExecutable(_ context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partPlugins); err != nil {
		return nil, err
	}
	types, networks := s.needed()
	for _, d := range s.CNI.Directories {
		if !d.NoExec {
			continue
		}
		f := Finding{ID: "plugins.noexec", Severity: Error,
			Title:    fmt.Sprintf("%s is mounted noexec: no plugin there can start", d.Path),
			Evidence: []Evidence{{"findmnt -T " + d.Path, "noexec"}},
			Fix: []Fix{{Command: "mount -o remount,exec " + d.Mount,
				Effect: "also change /etc/fstab; or install the plugins on another file system"}}}
		for _, n := range s.Networks {
			f.Affects = append(f.Affects, n.Name)
		}
		list = append(list, f)
	}
	for _, typ := range types {
		x, ok := s.file(typ)
		f := Finding{Severity: Error, Affects: networks[typ]}
		switch {
		case !ok:
			continue
		case x.Mode&0o111 == 0:
			f.ID = "plugins.not-executable"
			f.Title = fmt.Sprintf("plugin %s is not executable (mode %04o)", typ, x.Mode)
			f.Evidence = []Evidence{
				{"stat -c '%a %n' " + x.path(), fmt.Sprintf("%o %s", x.Mode, x.path())},
			}
			f.Fix = []Fix{{Command: "chmod 755 " + x.path()}}
		case x.Damage != "":
			f.ID = "plugins.damaged"
			f.Title = fmt.Sprintf("plugin %s cannot start: %s", typ, x.Damage)
			f.Evidence = []Evidence{{"file " + x.path(), x.Damage}}
			f.Fix = []Fix{s.installation()}
		default:
			continue
		}
		list = append(list, f)
	}
	return list, nil
}

func checkPluginOwner(_ context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partPlugins); err != nil {
		return nil, err
	}
	add := func(path, harm, command string) {
		list = append(list, Finding{ID: "plugins.owner", Severity: Warning,
			Title:    fmt.Sprintf("%s %s", path, harm),
			Text:     "Runtimes run plugins as root, so that user can become root.",
			Evidence: []Evidence{{"stat -c '%U %a %n' " + path, ""}},
			Fix:      []Fix{{Command: command}}})
	}
	for _, d := range s.CNI.Directories {
		switch {
		case d.Missing:
		case d.Writable:
			add(d.Path, "is writable by all users", "chmod o-w "+d.Path)
		case d.UID != 0:
			add(d.Path, fmt.Sprintf("belongs to user %d", d.UID), "chown root "+d.Path)
		}
	}
	for _, f := range s.CNI.Plugins {
		switch {
		case f.Mode&0o002 != 0:
			add(f.path(), "is writable by all users", "chmod o-w "+f.path())
		case f.UID != 0:
			add(f.path(), fmt.Sprintf("belongs to user %d", f.UID), "chown root "+f.path())
		}
	}
	return list, nil
}

// tenonModule is the module of Tenon's plugins.
const tenonModule = "github.com/tenon-cni/tenon"

func checkPluginVersions(_ context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partPlugins); err != nil {
		return nil, err
	}
	builds := map[string][]string{} // of Tenon, by checksum
	labels := map[string]string{}
	ours, others := 0, map[string]int{}
	for _, f := range s.CNI.Plugins {
		switch {
		case f.Module == tenonModule && all.Find(f.Name) == nil: // a program that plugins start
		case f.Module == tenonModule:
			ours++
			builds[f.Sum] = append(builds[f.Sum], f.Name)
			labels[f.Sum] = cmp.Or(f.Version, f.Sum)
		case strings.HasPrefix(f.Module, tenonModule+"/"): // a program of its own
		case f.Module != "":
			others[f.Module+" "+f.Version]++
		}
	}
	if len(builds) > 1 {
		var text []string
		for sum, files := range builds {
			text = append(text, fmt.Sprintf("%s (%s): %s", labels[sum], sum, names(files)))
		}
		slices.Sort(text)
		list = append(list, Finding{ID: "plugins.versions", Severity: Warning,
			Title: fmt.Sprintf("Tenon's plugins are of %d builds", len(builds)),
			Text: "An installation was interrupted, or replaced only some of the files. " +
				strings.Join(text, "; ") + ".",
			Evidence: []Evidence{{"sha256sum " + s.Options.PluginDirs[0] + "/*", ""}},
			Fix:      []Fix{s.installation()}})
	}
	if ours > 0 && len(others) > 0 {
		var text []string
		for module, n := range others {
			text = append(text, fmt.Sprintf("%d of %s", n, module))
		}
		slices.Sort(text)
		list = append(list, Finding{ID: "plugins.mixed", Severity: Info,
			Title: fmt.Sprintf("%d plugins are Tenon's, and %s", ours, strings.Join(text, ", ")),
			Text: "They work together, but Tenon's commands cannot verify or repair rules of the " +
				"other plugins.",
			Evidence: []Evidence{{"ls -li " + strings.Join(s.Options.PluginDirs, " "), ""}}})
	}
	return list, nil
}
