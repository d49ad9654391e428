package events

import (
	"github.com/tenon-cni/tenon/internal/netlink"
	"github.com/tenon-cni/tenon/internal/netns"
)

// Identify returns the identifiers of namespaces in another one, as in [Loss.NSID], by their paths.
// A namespace without identifier gets one, because a [Source] receives nothing from it otherwise.
// Identify omits paths that lead to no namespace.
func Identify(in *netns.NS, paths []string) (map[string]int, error) {
	conn, err := netlink.Open(in)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ids := map[string]int{}
	for _, path := range paths {
		if _, known := ids[path]; known {
			continue
		}
		ns, err := netns.Open(path)
		if err != nil {
			continue
		}
		if in.Same(ns) {
			ids[path] = Own
		} else if id, err := identify(conn, ns); err == nil {
			ids[path] = id
		}
		ns.Close()
	}
	return ids, nil
}

func identify(conn *netlink.Conn, ns *netns.NS) (int, error) {
	if id, ok, err := conn.Identifier(ns); ok || err != nil {
		return id, err
	}
	if err := conn.Identify(ns); err != nil {
		return 0, err
	}
	id, _, err := conn.Identifier(ns)
	return id, err
}
