package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"

	"github.com/tenon-cni/tenon/cni"
)

// Field is the kind of value that an identifier belongs to.
type Field string

// The fields with a restricted set of characters.
const (
	FieldContainerID Field = "containerID"
	FieldNetworkName Field = "networkName"
	FieldIfName      Field = "ifName"
)

// Identifier is a valid or invalid value of a field.
type Identifier struct {
	Field   Field
	Value   string
	Verdict Verdict
	Codes   []cni.Code // none if valid
	Reason  string     // may be empty
}

// Identifiers returns the table of container IDs, network names and interface names.
func Identifiers() ([]Identifier, error) {
	type row struct {
		Field   Field   `json:"field"`
		Value   string  `json:"value"`
		Verdict Verdict `json:"verdict"`
		Code    codes   `json:"code"`
		Why     string  `json:"why"`
	}
	return table("vectors-identifiers.json", func(r row) (Identifier, error) {
		return Identifier{Field: r.Field, Value: r.Value, Verdict: r.Verdict, Codes: r.Code,
			Reason: r.Why}, nil
	})
}

// VersionSelection is a pair of version members of a list with the version in which an
// implementation that supports all published versions runs the list.
type VersionSelection struct {
	CNIVersion  json.RawMessage // member cniVersion; nil if absent
	CNIVersions json.RawMessage // member cniVersions; nil if absent
	Want        string          // expected version; empty if the members are invalid
	Codes       []cni.Code      // none if the members are valid
	Reason      string          // may be empty
}

// VersionSelections returns the table of version members.
func VersionSelections() ([]VersionSelection, error) {
	type row struct {
		CNIVersion  json.RawMessage `json:"cniVersion"`
		CNIVersions json.RawMessage `json:"cniVersions"`
		Expect      string          `json:"expect"`
		Upstream    string          `json:"upstream"`
		Why         string          `json:"why"`
	}
	return table("vectors-version-selection.json", func(r row) (VersionSelection, error) {
		s := VersionSelection{CNIVersion: r.CNIVersion, CNIVersions: r.CNIVersions, Want: r.Expect,
			Reason: r.Why}
		var err error
		if code, refuse := strings.CutPrefix(r.Expect, "error:"); refuse {
			s.Want = ""
			s.Codes, err = parseCodes(code)
		}
		return s, err
	})
}

// Arguments is a value of CNI_ARGS with the expected verdict of a plugin that checks it.
type Arguments struct {
	Args    string   // value of CNI_ARGS
	Known   []string // keys that the plugin supports
	Verdict Verdict
	Reason  string // may be empty
}

// CNIArgs returns the table of CNI_ARGS.
func CNIArgs() ([]Arguments, error) {
	type row struct {
		Args    string   `json:"args"`
		Known   []string `json:"known"`
		Verdict Verdict  `json:"verdict"`
		Why     string   `json:"why"`
	}
	return table("vectors-cni-args.json", func(r row) (Arguments, error) {
		return Arguments{Args: r.Args, Known: r.Known, Verdict: r.Verdict, Reason: r.Why}, nil
	})
}

// DerivedRequest is a plugin of a list with its expected standard input.
type DerivedRequest struct {
	ID           string
	Verb         cni.Command
	List         json.RawMessage            // the list without its plugins
	Plugin       json.RawMessage            // the plugin's object in the list
	Capabilities map[string]json.RawMessage // capability arguments of the attachment
	PrevResult   json.RawMessage            // nil if there is none
	Valid        []cni.ValidAttachment      // GC: the attachments that are still in use
	Want         json.RawMessage            // the request
	Upstream     []string                   // additional keys that libcni sends
	Reason       string
}

// DerivedRequests returns the table of requests.
func DerivedRequests() ([]DerivedRequest, error) {
	type row struct {
		ID               string                     `json:"id"`
		Verb             cni.Command                `json:"verb"`
		List             json.RawMessage            `json:"list"`
		Plugin           json.RawMessage            `json:"plugin"`
		CapabilityArgs   map[string]json.RawMessage `json:"capabilityArgs"`
		PrevResult       *json.RawMessage           `json:"prevResult"`
		ValidAttachments []cni.ValidAttachment      `json:"validAttachments"`
		Expect           json.RawMessage            `json:"expect"`
		UpstreamExtra    []string                   `json:"upstreamExtra"`
		Why              string                     `json:"why"`
	}
	return table("vectors-derive-request.json", func(r row) (DerivedRequest, error) {
		d := DerivedRequest{
			ID: r.ID, Verb: r.Verb, List: r.List, Plugin: r.Plugin, Capabilities: r.CapabilityArgs,
			Valid: r.ValidAttachments, Want: r.Expect, Upstream: r.UpstreamExtra, Reason: r.Why,
		}
		if r.PrevResult != nil {
			d.PrevResult = *r.PrevResult
		}
		return d, nil
	})
}

// Netdir is a configuration directory with the expected result of the look-up of a network.
type Netdir struct {
	Folder  string
	Files   fs.FS  // its content
	Lookup  string // name of the network
	Verdict Verdict
	Plugins []string   // types of the network's plugins in order, if valid
	Codes   []cni.Code // none if no code applies
}

// Netdirs returns the table of configuration directories.
func Netdirs() ([]Netdir, error) {
	type row struct {
		Folder  string   `json:"folder"`
		Lookup  string   `json:"lookup"`
		Verdict Verdict  `json:"verdict"`
		Plugins []string `json:"plugins"`
		Code    codes    `json:"code"`
	}
	return table("vectors-netdirs.json", func(r row) (Netdir, error) {
		files, err := fs.Sub(examples, directory+r.Folder)
		return Netdir{
			Folder: r.Folder, Files: files, Lookup: r.Lookup, Verdict: r.Verdict,
			Plugins: r.Plugins, Codes: r.Code,
		}, err
	})
}

// codes is a string member that contains codes.
type codes []cni.Code

func (c *codes) UnmarshalText(text []byte) error {
	parsed, err := parseCodes(string(text))
	*c = parsed
	return err
}

// table decodes an array of rows. An unknown member is an error.
func table[R, T any](file string, convert func(R) (T, error)) ([]T, error) {
	b, err := examples.ReadFile(directory + file)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var rows []R
	if err := d.Decode(&rows); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	all := make([]T, len(rows))
	for i, r := range rows {
		if all[i], err = convert(r); err != nil {
			return nil, fmt.Errorf("%s: row %d: %w", file, i, err)
		}
	}
	return all, nil
}
