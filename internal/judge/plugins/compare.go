package plugins

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// difference is what differs between two snapshots, in words.
type difference struct {
	more []string // added or changed
	less []string // deleted
}

func (d difference) empty() bool { return len(d.more)+len(d.less) == 0 }

func (d difference) String() string {
	return list(slices.Concat(prefixed("", d.more), prefixed("missing: ", d.less)))
}

func prefixed(prefix string, words []string) (out []string) {
	for _, w := range words {
		out = append(out, prefix+w)
	}
	return out
}

// naming returns the differences that name one of the objects.
func (d difference) naming(objects ...string) difference {
	return difference{more: naming(d.more, objects...), less: naming(d.less, objects...)}
}

// naming returns the texts that contain one of the words.
func naming(texts []string, words ...string) (out []string) {
	for _, t := range texts {
		if slices.ContainsFunc(strings.Fields(t), func(w string) bool { return slices.Contains(words, w) }) {
			out = append(out, t)
		}
	}
	return out
}

// list joins the first items.
func list(items []string) string {
	const most = 6
	if len(items) == 0 {
		return "none"
	}
	if len(items) > most {
		return strings.Join(items[:most], "; ") + fmt.Sprintf("; and %d more", len(items)-most)
	}
	return strings.Join(items, "; ")
}

// record is the least number of bytes by which a file grows that gets another attachment: the shortest
// IPv4 address. Counters and times may become longer by less.
const record = 7

// compare returns what differs between two snapshots, except what follows from another difference, and
// except containers that have ended. A file that was rewritten is a difference only if it has grown.
func compare(before, after *script.Snapshot) (d difference) {
	for i := range before.Host.Namespaces {
		old := &before.Host.Namespaces[i]
		now := after.Host.Namespace(old.ID)
		if now == nil {
			continue
		}
		d.add(title(after, old), host.DiffNamespace(old, now), old, now)
	}
	for _, path := range slices.Sorted(maps.Keys(after.Files)) {
		now := after.Files[path]
		switch old, known := before.Files[path]; {
		case !known:
			d.more = append(d.more, "file "+path)
		case now.Size >= old.Size+record && strings.HasPrefix(now.Mode, "-"):
			d.more = append(d.more, fmt.Sprintf("file %s has grown from %d to %d bytes", path, old.Size, now.Size))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(before.Files)) {
		if _, found := after.Files[path]; !found {
			d.less = append(d.less, "file "+path)
		}
	}
	return d
}

func (d *difference) add(where string, changes []host.Change, old, now *host.Namespace) {
	created := map[string]bool{}
	for _, c := range changes {
		if c.Kind == host.KindLink && c.Action != host.Changed {
			created[c.Object] = true
		}
	}
	for _, c := range changes {
		if c.Kind == host.KindSetting && slices.ContainsFunc(strings.Split(c.Object, "."), func(part string) bool { return created[part] }) {
			continue // of a link that is a difference itself
		}
		if c.Kind == host.KindAddress && strings.HasPrefix(c.Object, "127.0.0.1/8 dev lo") {
			continue // the kernel adds it when lo comes up, and keeps it
		}
		if c.Kind == host.KindPolicy && strings.HasPrefix(c.Object, "1000: ") && strings.HasSuffix(c.Object, "(more conditions)") {
			continue // the kernel adds the rule for VRFs with the first one of a namespace, and keeps it
		}
		if c.Derived || c.Kind == host.KindSetting && (len(old.Settings) == 0 || len(now.Settings) == 0) {
			continue
		}
		text := fmt.Sprintf("%s: %s %s", where, c.Kind, c.Object)
		switch c.Action {
		case host.Added:
			d.more = append(d.more, text)
		case host.Deleted:
			d.less = append(d.less, text)
		case host.Changed:
			d.more = append(d.more, fmt.Sprintf("%s changed from %q to %q", text, c.Before, c.After))
		}
	}
}

// missing returns what a result lists and the kernel does not have in the container: interfaces, MAC
// addresses, MTUs, addresses and routes.
func missing(r *cni.Result, s *script.Snapshot, container string) (list []string) {
	ns := s.Container(container)
	if ns == nil {
		return []string{"the container"}
	}
	for _, i := range r.Interfaces {
		if i.Sandbox == "" {
			continue
		}
		l := ns.LinkByName(i.Name)
		switch {
		case l == nil:
			list = append(list, "interface "+i.Name)
		case i.MAC != "" && !strings.EqualFold(i.MAC, l.MAC):
			list = append(list, fmt.Sprintf("MAC address %s of %s, which has %s", i.MAC, i.Name, l.MAC))
		case i.MTU != 0 && i.MTU != l.MTU:
			list = append(list, fmt.Sprintf("MTU %d of %s, which has %d", i.MTU, i.Name, l.MTU))
		}
	}
	for _, ip := range r.IPs {
		if i, ok := ip.Interface.Get(); ok && (i < 0 || i >= len(r.Interfaces) || r.Interfaces[i].Sandbox == "") {
			continue
		}
		if !slices.ContainsFunc(ns.Addrs, func(a host.Addr) bool { return a.Prefix == ip.Address }) {
			list = append(list, "address "+ip.Address.String())
		}
	}
	for _, route := range r.Routes {
		if !slices.ContainsFunc(ns.Routes, func(x host.Route) bool { return x.Dst == route.Dst.Masked() }) {
			list = append(list, "route to "+route.Dst.String())
		}
	}
	return list
}

// title returns the name of a namespace for people.
func title(s *script.Snapshot, n *host.Namespace) string {
	for name, id := range s.Containers {
		if id == n.ID {
			return "container " + name
		}
	}
	return "host"
}

// result returns the decoded result of an ADD, nil if it has none.
func (j *Judgment) result(call string) *cni.Result {
	r, _ := j.Call(call)
	result, err := cni.DecodeResult(r.Stdout, j.Setup.Version)
	if r.Status != 0 || err != nil {
		return nil
	}
	return result
}

// container returns the part of a snapshot that belongs to a container.
func container(s *script.Snapshot, name string) *script.Snapshot {
	part := &script.Snapshot{Host: &host.Host{}, Containers: s.Containers}
	if ns := s.Container(name); ns != nil {
		part.Host.Namespaces = []host.Namespace{*ns}
	}
	return part
}

// links returns the names of the links in a container.
func links(s *script.Snapshot, name string) string {
	var names []string
	if ns := s.Container(name); ns != nil {
		for _, l := range ns.Links {
			names = append(names, l.Name)
		}
	}
	return list(names)
}

// hasLink reports whether a container has a link of a name.
func hasLink(s *script.Snapshot, container, name string) bool {
	ns := s.Container(container)
	return ns != nil && ns.LinkByName(name) != nil
}

// last returns the last snapshot.
func (j *Judgment) last() *script.Snapshot {
	for _, e := range slices.Backward(j.Events) {
		if e.After != nil {
			return e.After
		}
	}
	return j.Start
}
