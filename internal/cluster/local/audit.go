package local

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"time"

	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// Record is a line of the audit in JSON.
type Record struct {
	Time      time.Time  `json:"time"` // by the wall clock of the node
	Event     Event      `json:"event"`
	Pool      string     `json:"pool"`
	Addr      netip.Addr `json:"addr"`
	Network   string     `json:"network"`
	Container string     `json:"container"`
	IfName    string     `json:"ifname"`
	Namespace string     `json:"namespace,omitempty"`
	Pod       string     `json:"pod,omitempty"` // known only when the address is allocated
}

// Event is what happened to an address.
type Event string

// The events.
const (
	EventAdd Event = "add" // an attachment got the address
	EventDel Event = "del" // it was released
)

// audit appends to the log of the day, in UTC, if the pool asks for it. A failure is only logged:
// it must not prevent allocations and releases.
func (p *Pool) audit(e Event, a netip.Addr, o ipam.Owner, pod string) {
	if !p.State.Pool.Audit {
		return
	}
	_, now := p.store.o.Clock()
	r := Record{now.UTC(), e, p.name, a, o.Network, o.Container, o.IfName, o.Namespace, pod}
	if err := p.store.appendAudit(r); err != nil {
		p.store.o.Log.Warn("cannot write the audit", "err", err)
	}
}

func (s *Store) appendAudit(r Record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.path(auditDir), 0o755); err != nil {
		return err
	}
	path := s.path(auditDir, r.Time.Format(time.DateOnly)+".log")
	f, err := statefile.Open(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
