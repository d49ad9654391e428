package watch

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/host/events"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/network"
)

// index finds the attachments that a notification is about. It contains the attachments of the
// records when it was last read; a look reads it again first if records have changed.
type index struct {
	host   *kernel.Namespace
	detach func(network.Record) string // see Options

	mu     sync.RWMutex
	stale  bool
	owners map[cni.Owner]attached
	spaces map[int][]cni.Attachment    // by the identifier of the container's namespace
	names  map[string][]cni.Attachment // by the name of an interface of the host
	links  map[int]*link               // interfaces of the host, by number

	read time.Time     // when it was last read
	cost time.Duration // of reading it
}

// attached is an attachment in the index.
type attached struct {
	key    cni.Attachment
	libcni bool   // the record is a file of libcni
	detach string // a hint with the command that detaches it
}

// link is the last known state of an interface of the host.
type link struct {
	name   string
	up     bool
	master int
}

func newIndex(host *kernel.Namespace, detach func(network.Record) string) *index {
	return &index{host: host, detach: detach, stale: true, links: map[int]*link{}}
}

// outdated marks the index as outdated.
func (x *index) outdated() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stale = true
}

// refresh reads the records and the links of the host, if records have changed, and reports whether
// it did. The error is about records that cannot be read.
func (x *index) refresh(ctx context.Context, c *network.Client) (read bool, err error) {
	x.mu.RLock()
	stale := x.stale
	x.mu.RUnlock()
	if !stale {
		return false, nil
	}
	start := time.Now()
	x.mu.Lock()
	x.stale = false // a change from here on marks it again
	x.mu.Unlock()
	list, damaged := c.ListHost()
	host, closeHost, err := kernel.OpenHost(ctx)
	if err != nil {
		return true, x.failed(err)
	}
	defer closeHost()
	links, err := host.Links.All()
	if err != nil {
		return true, x.failed(err)
	}
	var paths []string
	for _, r := range list {
		paths = append(paths, r.Netns)
	}
	ids, err := events.Identify(x.host, paths)
	if err != nil {
		return true, x.failed(err)
	}
	next := newIndex(x.host, x.detach)
	next.fill(list, ids, links)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.owners, x.spaces, x.names, x.links = next.owners, next.spaces, next.names, next.links
	x.read, x.cost = time.Now(), time.Since(start)
	return true, damaged
}

// failed marks the index as outdated, so that the next look tries again, and returns err.
func (x *index) failed(err error) error {
	x.outdated()
	return err
}

func (x *index) fill(list []network.Record, ids map[string]int, links []kernel.Link) {
	x.owners = map[cni.Owner]attached{}
	x.spaces, x.names = map[int][]cni.Attachment{}, map[string][]cni.Attachment{}
	for _, r := range list {
		if r.State != network.Attached {
			continue
		}
		a := r.Attachment
		x.owners[a.Owner()] = attached{a, r.Source != "", x.detach(r)}
		if id, ok := ids[r.Netns]; ok && id != events.Own {
			x.spaces[id] = append(x.spaces[id], a)
		}
		if r.Result == nil {
			continue
		}
		for _, i := range r.Result.Interfaces {
			if i.Sandbox == "" {
				x.names[i.Name] = append(x.names[i.Name], a)
			}
		}
	}
	for _, l := range links {
		x.links[l.Index] = &link{l.Name, l.Up, l.Master}
	}
}

// pause returns how long the next refresh must wait.
func (x *index) pause(now time.Time) time.Duration {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if !x.stale {
		return 0
	}
	return x.read.Add(10 * x.cost).Sub(now)
}

// all returns all attachments.
func (x *index) all() (list []cni.Attachment) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, a := range x.owners {
		list = append(list, a.key)
	}
	return list
}

// owner returns the attachment of an owner.
func (x *index) owner(o cni.Owner) (attached, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	a, ok := x.owners[o]
	return a, ok
}

// of returns the attachments that a loss is about, and the name of the link.
func (x *index) of(l *events.Loss) (name string, list []cni.Attachment) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if l.NSID != events.Own {
		list = x.spaces[l.NSID]
		if len(list) == 0 {
			return "", nil
		}
		name = cmp.Or(l.Name, list[0].IfName)
		if l.Kind == events.LostRule {
			name = ""
		}
		return name + " in " + list[0].Container, list
	}
	if name = l.Name; name == "" {
		if known := x.links[l.Link]; known != nil {
			name = known.name
		}
	}
	return name, x.names[name]
}

// relevant reports whether a loss is about an attachment in the index, and keeps the states of the
// links of the host.
func (x *index) relevant(l *events.Loss) bool {
	if l.NSID != events.Own {
		x.mu.RLock()
		defer x.mu.RUnlock()
		return len(x.spaces[l.NSID]) > 0 && l.Kind != events.LostForwarding &&
			(l.Deleted || l.Name != "" && !l.Up && !l.Left)
	}
	switch l.Kind {
	case events.LostForwarding:
		return true
	case events.LostRule: // plugins make rules in containers only
		return false
	case events.LostAddress, events.LostRoute:
		x.mu.RLock()
		defer x.mu.RUnlock()
		known := x.links[l.Link]
		return known != nil && len(x.names[known.name]) > 0
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.names[l.Name]) == 0 {
		return false
	}
	if l.Deleted {
		delete(x.links, l.Link)
		return true
	}
	before := x.links[l.Link]
	if l.Left {
		return true
	}
	x.links[l.Link] = &link{l.Name, l.Up, l.Master}
	return before != nil &&
		(before.up && !l.Up || before.master != 0 && before.master != l.Master)
}
