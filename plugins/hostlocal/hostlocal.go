package hostlocal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/boot"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ipam/store/file"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of the plugin: the ipam section of a network.
type Config struct {
	plugin.Common
	// IPAM is the section of address management.
	IPAM Settings `json:"ipam"`
}

// Settings is the ipam section.
type Settings struct {
	// The old form: one range, which comes before Ranges. It counts if subnet is there.
	Subnet     netip.Prefix `json:"subnet"`     // network of the range in the old form, which comes before ranges
	RangeStart netip.Addr   `json:"rangeStart"` // first address of the range in the old form
	RangeEnd   netip.Addr   `json:"rangeEnd"`   // last address of the range in the old form
	Gateway    netip.Addr   `json:"gateway"`    // gateway of the range in the old form
	// Ranges are the range sets; each yields one address.
	Ranges []ipam.RangeSet `json:"ranges"`
	// Routes go into the result as they are.
	Routes []cni.Route `json:"routes"`
	// ResolvConf is the path of a resolv.conf(5) whose content becomes the result's dns.
	ResolvConf string `json:"resolvConf"`
	// DataDir is the folder of the reservations, one folder for each network.
	DataDir string `json:"dataDir" default:"/var/lib/cni/networks"`
	// StatusWhenFull is the answer of STATUS while a pool or the file system of dataDir is full:
	// "warn" succeeds with a warning, "error" fails with code 50.
	StatusWhenFull WhenFull `json:"statusWhenFull" enum:"warn,error" default:"warn"`
}

// WhenFull is an answer of STATUS while no address can be reserved until one is released. Runtimes
// treat a failing STATUS as a node without network and stop restarting containers, also in pods that
// run, so a state that ends by itself does not fail STATUS by default.
type WhenFull string

// The answers.
const (
	WhenFullWarn  WhenFull = "warn"  // success and a warning
	WhenFullError WhenFull = "error" // code 50
)

// Sets returns the range sets that s has, the old form first, as they are written: see [ipam.CanonicalizeSets].
func (s *Settings) Sets() []ipam.RangeSet {
	if !s.Subnet.IsValid() {
		return s.Ranges
	}
	old := ipam.Range{Subnet: s.Subnet, Start: s.RangeStart, End: s.RangeEnd, Gateway: s.Gateway}
	return append([]ipam.RangeSet{{old}}, s.Ranges...)
}

// DefaultDataDir is where reservations are kept.
const DefaultDataDir = "/var/lib/cni/networks"

// Plugin is the definition of host-local.
var Plugin = plugin.Define[Config](plugin.Info{
	Name:         "host-local",
	About:        "manages addresses of ranges that belong to this host alone",
	Role:         plugin.RoleIPAM,
	Capabilities: []string{"ips", "ipRanges"},
	Args:         []string{"IP"},
	Doc:          doc,
}, allocator{})

type allocator struct{}

type call = plugin.Call[Config]

// Validate refuses requests that are no addresses, ranges from which nothing can be allocated, and
// answers of STATUS that do not exist.
func (allocator) Validate(c *call) error {
	if _, err := request(c); err != nil {
		return err
	}
	switch answer := c.Conf.IPAM.StatusWhenFull; answer {
	case "", WhenFullWarn, WhenFullError:
		return nil
	default:
		return cni.Errorf(cni.CodeInvalidConfig, "statusWhenFull: %q is neither %q nor %q", answer, WhenFullWarn, WhenFullError)
	}
}

// Add reserves an address of each range set.
func (allocator) Add(ctx context.Context, c *call) (*cni.Result, error) {
	request, err := request(c)
	if err != nil {
		return nil, err
	}
	r := &cni.Result{Routes: c.Conf.IPAM.Routes}
	if path := c.Conf.IPAM.ResolvConf; path != "" {
		if r.DNS, err = readResolvConf(path); err != nil {
			return nil, cni.Errorf(cni.CodeIOFailure, "resolvConf: %w", err)
		}
	}
	tx := kernel.Begin(ctx)
	s, err := open(ctx, c, tx)
	if err != nil {
		return nil, err
	}
	defer s.Abandon()
	allocations, err := ipam.Allocate(ctx, s, request)
	if err != nil {
		return nil, errors.Join(coded(err), tx.Rollback(), s.Close())
	}
	if err := s.Close(); err != nil {
		return nil, coded(err)
	}
	for _, a := range allocations {
		r.IPs = append(r.IPs, cni.IP{Address: a.Prefix(), Gateway: a.Range.Gateway})
	}
	return r, nil
}

// Del frees what the attachment holds. It needs no ranges.
func (allocator) Del(ctx context.Context, c *call) error {
	return with(ctx, c, func(s *file.Store) error { return s.Release(ctx, owner(c)) })
}

// Check looks whether the attachment holds an address.
func (allocator) Check(ctx context.Context, c *call) error {
	return with(ctx, c, func(s *file.Store) error {
		held, err := s.Held(ctx, owner(c))
		if err == nil && len(held) == 0 {
			err = cni.Errorf(cni.CodeInternal, "host-local: Failed to find address added by container %s", c.ContainerID)
		}
		return err
	})
}

// Status reports whether reservations can be written and whether every range set has a free address.
// It does not wait for an ADD that hangs.
func (allocator) Status(ctx context.Context, c *call) error {
	sets, err := sets(c)
	if err != nil {
		return err
	}
	if err = file.Writable(dataDir(c), c.Name); err != nil {
		err = cni.Errorf(cni.CodeNotAvailable, "dataDir: %w", err)
	} else {
		err = with(ctx, c, func(s *file.Store) error { return ipam.Available(ctx, s, sets) })
	}
	if err == nil {
		return nil
	}
	e := *cni.AsError(err)
	if full(err) && c.Conf.IPAM.StatusWhenFull != WhenFullError {
		c.Log.Warn("no address can be reserved until one is released", "err", e.Msg, "details", e.Details)
		return nil
	}
	e.Code = cni.CodeNotAvailable
	return &e
}

// full reports whether err goes away once containers are removed, without an operator.
func full(err error) bool {
	var exhausted *ipam.ExhaustedError
	return errors.As(err, &exhausted) || errors.Is(err, unix.ENOSPC)
}

// GC frees what attachments hold that are not in use any more.
func (allocator) GC(ctx context.Context, c *call) error {
	var keep []ipam.Owner
	for _, v := range c.Valid {
		keep = append(keep, ipam.Owner{Container: v.ContainerID, IfName: v.IfName})
	}
	return with(ctx, c, func(s *file.Store) error {
		freed, err := s.Collect(ctx, keep)
		for _, l := range freed {
			c.Log.Debug("freed", "lease", l.String())
		}
		return err
	})
}

// with calls fn with the reservations of the network, which need not exist.
func with(ctx context.Context, c *call, fn func(*file.Store) error) error {
	s, err := open(ctx, c, kernel.Begin(ctx))
	if err != nil {
		return err
	}
	defer s.Abandon()
	return coded(errors.Join(fn(s), s.Close()))
}

func open(ctx context.Context, c *call, tx *kernel.Tx) (*file.Store, error) {
	id, err := boot.ID()
	if err != nil {
		return nil, cni.Errorf(cni.CodeIOFailure, "%w", err)
	}
	s, err := file.Open(ctx, file.Options{
		Dir: dataDir(c), Network: c.Name, Create: c.Command == cni.Add, Peek: c.Command == cni.Status, BootID: id, Change: tx.Do, Log: c.Log,
	})
	if err != nil {
		return nil, cni.Errorf(cni.CodeIOFailure, "dataDir: %w", err)
	}
	return s, nil
}

func dataDir(c *call) string { return cmp.Or(c.Conf.IPAM.DataDir, DefaultDataDir) }

func owner(c *call) ipam.Owner { return ipam.Owner{Container: c.ContainerID, IfName: c.IfName} }

// coded gives an error of package ipam or of the store its code.
func coded(err error) error {
	var (
		full      *ipam.ExhaustedError
		taken     *ipam.TakenError
		gateway   *ipam.GatewayError
		duplicate *ipam.DuplicateError
		leftover  *ipam.LeftoverError
		known     *cni.Error
	)
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.As(err, &full):
		return cni.Errorf(cni.CodeTryAgainLater, "%w", err).WithDetails(full.Details())
	case errors.As(err, &taken):
		return cni.Errorf(cni.CodeTryAgainLater, "%w", err).WithDetails(taken.Details())
	case errors.As(err, &duplicate):
		return cni.Errorf(cni.CodeInvalidConfig, "%w", err).WithDetails(duplicate.Details())
	case errors.As(err, &gateway), errors.As(err, &leftover):
		return cni.Errorf(cni.CodeInvalidConfig, "%w", err)
	}
	return cni.Errorf(cni.CodeIOFailure, "%w", err)
}

func request(c *call) (ipam.Request, error) {
	r := ipam.Request{Owner: owner(c)}
	for _, text := range c.Asked.IPs {
		a, err := ipam.ParseRequested(text)
		if err != nil {
			return r, cni.Errorf(cni.CodeInvalidConfig, "%w", err)
		}
		r.Addrs = append(r.Addrs, a)
	}
	var err error
	r.Sets, err = sets(c)
	return r, err
}

// hasIPAM reports whether a configuration has an ipam section, whatever is in it.
func hasIPAM(config []byte) bool {
	var c struct {
		IPAM json.RawMessage `json:"ipam"`
	}
	return json.Unmarshal(config, &c) == nil && c.IPAM != nil
}

// sets collects the range sets: those of the capability ipRanges, the range in the old form, then ranges.
func sets(c *call) ([]ipam.RangeSet, error) {
	conf := &c.Conf.IPAM
	var sets []ipam.RangeSet
	if raw := c.RuntimeConfig.IPRanges; len(bytes.TrimSpace(raw)) > 0 {
		if err := json.Unmarshal(raw, &sets); err != nil {
			return nil, cni.DecodeFailure("runtimeConfig.ipRanges", err)
		}
	}
	sets = append(sets, conf.Sets()...)
	if len(sets) == 0 {
		if !hasIPAM(c.Stdin()) {
			return nil, cni.Errorf(cni.CodeInvalidConfig, "IPAM config missing 'ipam' key")
		}
		return nil, cni.Errorf(cni.CodeInvalidConfig, "no IP ranges specified")
	}
	if err := ipam.CanonicalizeSets(sets); err != nil {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "%w", err)
	}
	if c.Version < cni.V030 && !ipam.OnePerFamily(sets) {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "CNI version %v does not support more than 1 address per family", c.Version)
	}
	if err := ipam.CheckOverlap(sets); err != nil {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "%w", err)
	}
	return sets, nil
}
