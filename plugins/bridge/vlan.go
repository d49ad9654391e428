package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/internal/attach"
	"github.com/tenon-cni/tenon/internal/kernel"
)

const (
	maxVLAN     = 4094
	defaultVLAN = 1 // native VLAN of a trunk without VLAN
)

// Trunk is an element of vlanTrunk: a single VLAN, a range, or both.
type Trunk struct {
	// ID is a single VLAN ID.
	ID *int `json:"id,omitempty" min:"1" max:"4094"`
	// MinID is the first VLAN ID of a range. It requires MaxID.
	MinID *int `json:"minID,omitempty" min:"1" max:"4094"`
	// MaxID is the last VLAN ID of a range. It requires MinID.
	MaxID *int `json:"maxID,omitempty" min:"1" max:"4094"`
}

// filtering reports whether a new bridge must filter VLANs.
func (c *Config) filtering() bool { return c.VLAN != 0 || c.VLANTrunk != nil }

// validateVLANs checks VLAN IDs and ranges. The messages are upstream's; values and limits are in
// the details.
func (c *Config) validateVLANs() error {
	if c.VLAN < 0 || c.VLAN > maxVLAN {
		return cni.Errorf(cni.CodeInvalidConfig, "invalid VLAN ID %d (must be between 0 and %d)",
			c.VLAN, maxVLAN)
	}
	for i, t := range c.VLANTrunk {
		if message := t.validate(); message != "" {
			return cni.Errorf(cni.CodeInvalidConfig, "%s", message).
				WithDetails(fmt.Sprintf("vlanTrunk: element %d is %s; use IDs from 1 to %d", i,
					t, maxVLAN))
		}
	}
	if name := c.vlanGateway(); c.gateway() && c.VLAN != 0 && cni.ValidateIfName(name) != nil {
		return cni.Errorf(cni.CodeInvalidConfig,
			"bridge: name %q of the VLAN's gateway interface is not valid", name).
			WithDetails(fmt.Sprintf("the name has %d bytes, but Linux allows 15; "+
				"choose a shorter name for the bridge", len(name)))
	}
	return nil
}

func (t Trunk) validate() string {
	bad := func(id *int) bool { return id != nil && (*id < 1 || *id > maxVLAN) }
	switch {
	case t.MinID == nil && t.MaxID != nil:
		return "minID and maxID should be configured simultaneously, minID is missing"
	case t.MinID != nil && t.MaxID == nil:
		return "minID and maxID should be configured simultaneously, maxID is missing"
	case bad(t.MinID):
		return "incorrect trunk minID parameter"
	case bad(t.MaxID):
		return "incorrect trunk maxID parameter"
	case t.MinID != nil && *t.MinID > *t.MaxID:
		return "minID is greater than maxID in trunk parameter"
	case bad(t.ID):
		return "incorrect trunk id parameter"
	}
	return ""
}

// String returns the element as JSON.
func (t Trunk) String() string {
	out, err := json.Marshal(t)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// needFiltering returns an error that names the unsupported key if the kernel has no VLAN
// filtering.
func (c *Config) needFiltering() error {
	if !c.filtering() {
		return nil
	}
	missing, err := kernel.Missing(kernel.FeatureVLANFiltering)
	if err != nil || len(missing) == 0 {
		return err
	}
	key, value := "vlan", any(c.VLAN)
	if c.VLAN == 0 {
		key, value = "vlanTrunk", c.VLANTrunk
	}
	return cni.Errorf(cni.CodeUnsupportedField, "%s: %v is not supported here: %s", key, value,
		missing[0].Help())
}

// vlans returns the VLANs of the port, ordered by ID: the native VLAN, which has the untagged
// frames, and the tagged VLANs. The native VLAN stays untagged if the trunk contains it as well.
func (c *Config) vlans() []kernel.VLAN {
	var tagged [maxVLAN + 1]bool
	for _, t := range c.VLANTrunk {
		if t.ID != nil {
			tagged[*t.ID] = true
		}
		if t.MinID != nil {
			for id := *t.MinID; id <= *t.MaxID; id++ {
				tagged[id] = true
			}
		}
	}
	native := c.VLAN
	if native == 0 && slices.Contains(tagged[:], true) {
		native = defaultVLAN
	}
	var list []kernel.VLAN
	for id := 1; id <= maxVLAN; id++ {
		switch {
		case id == native:
			list = append(list, untagged(id))
		case tagged[id]:
			list = append(list, kernel.VLAN{ID: uint16(id)})
		}
	}
	return list
}

func untagged(id int) kernel.VLAN { return kernel.VLAN{ID: uint16(id), PVID: true, Untagged: true} }

// setVLANs adds a port to VLANs and removes it from the VLANs that the bridge gave it.
func (c *Config) setVLANs(host *kernel.Space, port kernel.Link, want []kernel.VLAN) error {
	if len(want) == 0 {
		return nil
	}
	if !c.PreserveDefaultVLAN {
		have, err := host.Links.VLANs(port)
		if err != nil {
			return err
		}
		if other := slices.DeleteFunc(have, in(want)); len(other) > 0 {
			if err := host.Links.DeleteVLANs(port, other); err != nil {
				return err
			}
		}
	}
	return host.Links.AddVLANs(port, want)
}

// in returns a function that reports whether a list contains a VLAN with the same ID.
func in(list []kernel.VLAN) func(kernel.VLAN) bool {
	return func(v kernel.VLAN) bool {
		return slices.ContainsFunc(list, func(w kernel.VLAN) bool { return w.ID == v.ID })
	}
}

// notFiltering explains that VLANs separate no containers on an existing bridge without VLAN
// filtering.
func notFiltering(br kernel.Link) string {
	return fmt.Sprintf("bridge %s: VLAN filtering is off, so VLANs separate no containers; "+
		"run: ip link set %s type bridge vlan_filtering 1", br.Name, br.Name)
}

// checkVLANs compares the VLANs of the container's port with the configuration. Ports of the
// upstream plugin can be in the default VLAN as well, because upstream removes them from it only
// since 2025.
func (c *Config) checkVLANs(s *attach.Session, br, port kernel.Link, ours bool) error {
	if c.filtering() && !br.VLANFiltering {
		return errors.New(notFiltering(br))
	}
	want := c.vlans()
	if len(want) == 0 {
		return nil
	}
	have, err := s.Host.Links.VLANs(port)
	if err != nil {
		return err
	}
	relevant := have
	if c.PreserveDefaultVLAN || !ours {
		wanted := in(want)
		relevant = slices.DeleteFunc(slices.Clone(have), func(v kernel.VLAN) bool {
			return !wanted(v)
		})
	}
	if !slices.Equal(relevant, want) {
		return fmt.Errorf("interface %s: expected VLANs %s, found %s", port.Name,
			kernel.FormatVLANs(want), kernel.FormatVLANs(have))
	}
	return nil
}
