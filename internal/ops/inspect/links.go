package inspect

import (
	"context"
	"errors"

	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/network"
)

// linksGone reports whether the namespace lacks an interface that ADD created. It returns false if
// the namespace cannot be entered, which requires privileges.
func linksGone(ns *kernel.Namespace, r network.Record) bool {
	names := interfaces(r)
	if len(names) == 0 {
		return false
	}
	space, err := kernel.Begin(context.Background()).Open(ns)
	if err != nil {
		return false
	}
	defer space.Close()
	for _, name := range names {
		if _, err := space.Links.ByName(name); errors.Is(err, kernel.ErrNoLink) {
			return true
		}
	}
	return false
}

// interfaces returns the names of the interfaces that ADD created in the container. If the result
// has addresses but no interfaces, as before CNI 0.3.0, that is the interface of the request.
func interfaces(r network.Record) (names []string) {
	if r.Result == nil {
		return nil
	}
	for _, i := range r.Result.Interfaces {
		if i.Sandbox != "" {
			names = append(names, i.Name)
		}
	}
	if len(r.Result.Interfaces) == 0 && len(r.Result.IPs) > 0 {
		names = append(names, r.Attachment.IfName)
	}
	return names
}
