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
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/ipam/filestore"
	"github.com/tenon-cni/tenon/internal/kernel"
	"github.com/tenon-cni/tenon/internal/session"
	"github.com/tenon-cni/tenon/internal/statefile"
	"github.com/tenon-cni/tenon/plugin"
)

// Config is the configuration of an interface plugin with the ipam section of host-local.
type Config struct {
	plugin.Common
	// IPAM is the section that names this plugin.
	IPAM Settings `json:"ipam"`

	request ipam.Request // derived from the call by [Config.Validate]
}

// Settings is the ipam section.
type Settings struct {
	// A range in the old form, which comes before Ranges. It is used if Subnet is set.
	Subnet     netip.Prefix `json:"subnet"`     // subnet of a single range, which precedes ranges
	RangeStart netip.Addr   `json:"rangeStart"` // first address of the single range
	RangeEnd   netip.Addr   `json:"rangeEnd"`   // last address of the single range
	Gateway    netip.Addr   `json:"gateway"`    // gateway of the single range
	// Ranges are the range sets. ADD reserves one address of each set.
	Ranges []ipam.RangeSet `json:"ranges"`
	// Routes are copied into the result unchanged.
	Routes []cni.Route `json:"routes"`
	// ResolvConf is the path of a resolv.conf(5) file. Its content becomes the dns of the result.
	ResolvConf string `json:"resolvConf"`
	// DataDir is the directory of the reservations, with a subdirectory for each network.
	DataDir string `json:"dataDir" default:"/var/lib/cni/networks"`
	// StatusWhenFull determines the answer of STATUS while a pool or the file system of dataDir is
	// full: "warn" succeeds with a warning, "error" fails with code 50.
	StatusWhenFull WhenFull `json:"statusWhenFull" enum:"warn,error" default:"warn"`
}

// WhenFull determines the answer of STATUS while no address can be reserved until one is released.
// If STATUS fails, runtimes treat the node as a node without network and stop restarting
// containers, even in running pods. So by default a state that ends by itself does not fail STATUS.
type WhenFull string

// Values of WhenFull.
const (
	WhenFullWarn  WhenFull = "warn"  // success and a warning
	WhenFullError WhenFull = "error" // code 50
)

// Sets returns the range sets as written, the old form first; see [ipam.CanonicalizeSets].
func (s *Settings) Sets() []ipam.RangeSet {
	if !s.Subnet.IsValid() {
		return s.Ranges
	}
	old := ipam.Range{Subnet: s.Subnet, Start: s.RangeStart, End: s.RangeEnd, Gateway: s.Gateway}
	return append([]ipam.RangeSet{{old}}, s.Ranges...)
}

// DefaultDataDir is the default directory of reservations.
const DefaultDataDir = "/var/lib/cni/networks"

// Plugin is the definition of host-local.
var Plugin = plugin.Define(plugin.Info{
	Name:         "host-local",
	About:        "allocates addresses from ranges that belong to this host alone",
	Role:         plugin.RoleIPAM,
	Capabilities: []string{"ips", "ipRanges"},
	Args:         []string{"IP"},
	Doc:          doc,
}, func() plugin.Plugin { return new(Config) })

// Validate refuses invalid requested addresses, ranges without addresses to allocate, and unknown
// values of statusWhenFull.
func (c *Config) Validate(call *plugin.Call) (err error) {
	if c.request, err = c.requestOf(call); err != nil {
		return err
	}
	switch answer := c.IPAM.StatusWhenFull; answer {
	case "", WhenFullWarn, WhenFullError:
		return nil
	default:
		return cni.Errorf(cni.CodeInvalidConfig, "statusWhenFull: %q is neither %q nor %q", answer,
			WhenFullWarn, WhenFullError)
	}
}

// Add reserves an address of each range set.
func (c *Config) Add(ctx context.Context, call *plugin.Call) (*cni.Result, error) {
	r := &cni.Result{Routes: c.IPAM.Routes}
	if path := c.IPAM.ResolvConf; path != "" {
		var err error
		if r.DNS, err = readResolvConf(path); err != nil {
			return nil, cni.Errorf(cni.CodeIOFailure, "resolvConf: %w", err)
		}
	}
	tx := session.Begin(ctx, call)
	s, err := c.open(ctx, call, tx)
	if err != nil {
		return nil, err
	}
	defer s.Abandon()
	allocations, err := ipam.Allocate(ctx, s, c.request)
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

// Del frees the addresses of the attachment. It needs no ranges.
func (c *Config) Del(ctx context.Context, call *plugin.Call) error {
	return c.with(ctx, call, func(s *filestore.Store) error { return s.Release(ctx, owner(call)) })
}

// Check requires that the attachment holds an address.
func (c *Config) Check(ctx context.Context, call *plugin.Call) error {
	return c.with(ctx, call, func(s *filestore.Store) error {
		held, err := s.Held(ctx, owner(call))
		if err == nil && len(held) == 0 {
			err = cni.Errorf(cni.CodeInternal,
				"host-local: Failed to find address added by container %s", call.ContainerID)
		}
		return err
	})
}

// Status reports whether reservations can be written and whether every range set has a free
// address. It does not wait for an ADD that hangs.
func (c *Config) Status(ctx context.Context, call *plugin.Call) error {
	err := filestore.Writable(c.dataDir(), call.Name)
	if err != nil {
		err = cni.Errorf(cni.CodeNotAvailable, "dataDir: %w", err)
	} else {
		err = c.with(ctx, call, func(s *filestore.Store) error {
			return ipam.Available(ctx, s, c.request.Sets)
		})
	}
	if err == nil {
		return nil
	}
	e := *cni.AsError(err)
	if full(err) && c.IPAM.StatusWhenFull != WhenFullError {
		call.Log.Warn("no address can be reserved until one is released", "err", e.Msg,
			"details", e.Details)
		return nil
	}
	e.Code = cni.CodeNotAvailable
	return &e
}

// full reports whether err disappears without an operator once containers are removed.
func full(err error) bool {
	var exhausted *ipam.ExhaustedError
	return errors.As(err, &exhausted) || errors.Is(err, unix.ENOSPC)
}

// GC frees the addresses of attachments that are no longer in use.
func (c *Config) GC(ctx context.Context, call *plugin.Call) error {
	var keep []ipam.Owner
	for _, v := range call.Valid {
		keep = append(keep, ipam.Owner{Container: v.ContainerID, IfName: v.IfName})
	}
	return c.with(ctx, call, func(s *filestore.Store) error {
		freed, err := s.Collect(ctx, keep)
		for _, l := range freed {
			call.Log.Debug("freed", "lease", l.String())
		}
		return err
	})
}

// with calls fn with the reservations of the network, which may not exist.
func (c *Config) with(
	ctx context.Context, call *plugin.Call, fn func(*filestore.Store) error,
) error {
	s, err := c.open(ctx, call, session.Begin(ctx, call))
	if err != nil {
		return err
	}
	defer s.Abandon()
	return coded(errors.Join(fn(s), s.Close()))
}

func (c *Config) open(
	ctx context.Context, call *plugin.Call, tx *kernel.Tx,
) (*filestore.Store, error) {
	id, err := statefile.BootID()
	if err != nil {
		return nil, cni.Errorf(cni.CodeIOFailure, "%w", err)
	}
	s, err := filestore.Open(ctx, filestore.Options{
		Dir: c.dataDir(), Network: call.Name, BootID: id, Change: tx.Do, Log: call.Log,
		Create: call.Command == cni.Add, Peek: call.Command == cni.Status,
	})
	if errors.Is(err, unix.ENAMETOOLONG) && len(call.Name) > unix.NAME_MAX {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "dataDir: %w", err).
			WithDetails("the directory has the name of the network: use a name of at most 255 bytes")
	}
	if err != nil {
		return nil, cni.Errorf(cni.CodeIOFailure, "dataDir: %w", err)
	}
	return s, nil
}

func (c *Config) dataDir() string { return cmp.Or(c.IPAM.DataDir, DefaultDataDir) }

func owner(c *plugin.Call) ipam.Owner {
	return ipam.Owner{Container: c.ContainerID, IfName: c.IfName}
}

// coded returns err with the error code for errors of package ipam or of the store.
func coded(err error) error {
	var (
		full      *ipam.ExhaustedError
		taken     *ipam.InUseError
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

func (c *Config) requestOf(call *plugin.Call) (ipam.Request, error) {
	r := ipam.Request{Owner: owner(call)}
	for _, text := range call.Asked.IPs {
		a, err := ipam.ParseRequested(text)
		if err != nil {
			return r, cni.Errorf(cni.CodeInvalidConfig, "%w", err)
		}
		r.Addrs = append(r.Addrs, a)
	}
	var err error
	r.Sets, err = c.sets(call)
	return r, err
}

// hasIPAM reports whether a configuration has an ipam section.
func hasIPAM(config []byte) bool {
	var c struct {
		IPAM json.RawMessage `json:"ipam"`
	}
	return json.Unmarshal(config, &c) == nil && c.IPAM != nil
}

// sets collects the range sets: of the capability ipRanges, the range in the old form, then ranges.
func (c *Config) sets(call *plugin.Call) ([]ipam.RangeSet, error) {
	conf := &c.IPAM
	var sets []ipam.RangeSet
	if raw := call.RuntimeConfig.IPRanges; len(bytes.TrimSpace(raw)) > 0 {
		if err := plugin.Decode(raw, &sets); err != nil {
			return nil, cni.DecodeFailure("runtimeConfig.ipRanges", err)
		}
	}
	sets = append(sets, conf.Sets()...)
	if len(sets) == 0 {
		if !hasIPAM(call.Stdin()) {
			return nil, cni.Errorf(cni.CodeInvalidConfig, "IPAM config missing 'ipam' key")
		}
		return nil, cni.Errorf(cni.CodeInvalidConfig, "no IP ranges specified")
	}
	if err := ipam.CanonicalizeSets(sets); err != nil {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "%w", err)
	}
	if call.Version < cni.V030 && !ipam.OnePerFamily(sets) {
		return nil, cni.Errorf(cni.CodeInvalidConfig,
			"CNI version %v does not support more than 1 address per family", call.Version)
	}
	if err := ipam.CheckOverlap(sets); err != nil {
		return nil, cni.Errorf(cni.CodeInvalidConfig, "%w", err)
	}
	return sets, nil
}
