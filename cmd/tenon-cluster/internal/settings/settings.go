// Package settings reads the settings of the agent and of the commands of tenon-cluster, and
// connects to etcd with them. It reads files; the environment comes from the caller.
package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// DefaultFile is the file with the settings of a node.
const DefaultFile = "/etc/tenon/cluster.json"

// prefix begins the names of environment variables: "password-file" is TENON_CLUSTER_PASSWORD_FILE.
const prefix = "TENON_CLUSTER_"

// Settings are the settings of the agent and the commands. The file is a JSON object with these
// keys. An environment variable overrides a key of the file, and a flag overrides both.
type Settings struct {
	// Cluster is the name of the cluster. All keys in etcd begin with /tenon/NAME/.
	Cluster string `json:"cluster"`
	// Endpoints are the URLs of etcd's members.
	Endpoints []string `json:"endpoints"`
	// CA, Cert and Key are PEM files: the authority that signed etcd's certificates, and the
	// certificate of the client with its key. Cert and Key are read again for each connection.
	CA   string `json:"ca,omitempty"`
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
	// Username and PasswordFile authenticate without a client certificate.
	Username     string `json:"username,omitempty"`
	PasswordFile string `json:"passwordFile,omitempty"`
	// Node is the name of this node, the host name by default.
	Node string `json:"node,omitempty"`
	// Dir holds the node's state, and Socket is the agent's socket.
	Dir    string `json:"dir,omitempty"`
	Socket string `json:"socket,omitempty"`
	// Routes are the routes to the blocks of other nodes.
	Routes Routes `json:"routes,omitzero"`
	// Labels of the node, for pools that select nodes.
	Labels map[string]string `json:"labels,omitempty"`
	// FenceHook is a program that the agent runs with the name of a node that etcd has not heard
	// from. Exit status 0 is evidence that the node is off: its blocks are then given to others.
	FenceHook string `json:"fenceHook,omitempty"`
}

// Routes are the settings of routes between nodes.
type Routes struct {
	// Mode is "host-gw", "vxlan", "auto" or "off"; "auto" by default.
	Mode string `json:"mode,omitempty"`
	// VNI and Port of the VXLAN devices.
	VNI  int `json:"vni,omitempty"`
	Port int `json:"port,omitempty"`
	// MTU of the underlay in bytes; 0 means the MTU of the interface with the node's address.
	MTU int `json:"mtu,omitempty"`
	// Addresses of the node in the underlay, at most one per family. Empty means the source
	// addresses of the default routes.
	Addresses []string `json:"addresses,omitempty"`
	// DisableChecksumOffload works around kernels that send wrong checksums through VXLAN.
	DisableChecksumOffload bool `json:"disableChecksumOffload,omitempty"`
}

// key is a setting that a flag and an environment variable can override.
type key struct {
	name string
	help string // with the name of the flag's value in backquotes
	set  func(s *Settings, text string) error
}

func text(field func(*Settings) *string) func(*Settings, string) error {
	return func(s *Settings, text string) error {
		*field(s) = text
		return nil
	}
}

func number(field func(*Settings) *int) func(*Settings, string) error {
	return func(s *Settings, text string) (err error) {
		*field(s), err = strconv.Atoi(text)
		return err
	}
}

func list(field func(*Settings) *[]string) func(*Settings, string) error {
	return func(s *Settings, text string) error {
		*field(s) = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
		return nil
	}
}

// keys returns all settings, in the order of help texts. The first group concerns every command,
// and the group of the routes the agent alone.
func keys() (common, routes []key) {
	common = []key{
		{"cluster", "`NAME` of the cluster", text(func(s *Settings) *string { return &s.Cluster })},
		{"endpoints", "`URLS` of etcd's members, separated by commas",
			list(func(s *Settings) *[]string { return &s.Endpoints })},
		{"ca", "`FILE` with the certificates that sign etcd's",
			text(func(s *Settings) *string { return &s.CA })},
		{"cert", "`FILE` with the client certificate",
			text(func(s *Settings) *string { return &s.Cert })},
		{"key", "`FILE` with the key of the client certificate",
			text(func(s *Settings) *string { return &s.Key })},
		{"username", "`NAME` of the user of etcd",
			text(func(s *Settings) *string { return &s.Username })},
		{"password-file", "`FILE` with the password of the user",
			text(func(s *Settings) *string { return &s.PasswordFile })},
		{"this-node", "`NAME` of this node, the host name by default",
			text(func(s *Settings) *string { return &s.Node })},
		{"dir", "`DIR` with the state of this node",
			text(func(s *Settings) *string { return &s.Dir })},
		{"socket", "`PATH` of the socket of this node's agent",
			text(func(s *Settings) *string { return &s.Socket })},
	}
	routes = []key{
		{"routes", "`MODE` of routes between nodes: host-gw, vxlan, auto or off",
			text(func(s *Settings) *string { return &s.Routes.Mode })},
		{"vni", "`ID` of the VXLAN network", number(func(s *Settings) *int { return &s.Routes.VNI })},
		{"port", "UDP `PORT` of VXLAN", number(func(s *Settings) *int { return &s.Routes.Port })},
		{"mtu", "MTU of the underlay in `BYTES`",
			number(func(s *Settings) *int { return &s.Routes.MTU })},
		{"addresses", "`ADDRESSES` of this node in the underlay, one per family",
			list(func(s *Settings) *[]string { return &s.Routes.Addresses })},
		{"labels", "labels of this node, `KEY=VALUE` separated by commas", setLabels},
	}
	return common, routes
}

func setLabels(s *Settings, text string) error {
	s.Labels = map[string]string{}
	for word := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(word, "=")
		if !ok || name == "" {
			return fmt.Errorf("label %q has not the form KEY=VALUE", word)
		}
		s.Labels[name] = value
	}
	return nil
}

// variable returns the environment variable of a flag.
func variable(flag string) string {
	if flag == "this-node" {
		flag = "node"
	}
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// AddFlags adds flags for the settings of every command to a set.
func AddFlags(set *pflag.FlagSet) {
	set.String("config", "", "read settings from `FILE` [TENON_CLUSTER_CONFIG]")
	common, _ := keys()
	addFlags(set, common)
}

// AddAgentFlags adds flags for the settings of the agent alone to a set.
func AddAgentFlags(set *pflag.FlagSet) {
	_, routes := keys()
	addFlags(set, routes)
}

func addFlags(set *pflag.FlagSet, keys []key) {
	for _, k := range keys {
		set.String(k.name, "", fmt.Sprintf("%s [%s]", k.help, variable(k.name)))
	}
}

// Load reads the file, then the environment, then the flags of a command, and checks the result.
// lookup reads the environment, as [os.LookupEnv] does. The default file may be missing. Errors
// name the source.
func Load(flags *pflag.FlagSet, lookup func(string) (string, bool)) (Settings, error) {
	s := Settings{Dir: local.DefaultDir, Socket: local.DefaultSocket}
	path, required := DefaultFile, false
	if value, ok := lookup(prefix + "CONFIG"); ok {
		path, required = value, true
	}
	if value, ok := changed(flags, "config"); ok {
		path, required = value, true
	}
	if err := s.read(path); err != nil && (required || !errors.Is(err, fs.ErrNotExist)) {
		return s, err
	}
	for _, k := range slices.Concat(keys()) {
		source := variable(k.name)
		value, ok := lookup(source)
		if given, isSet := changed(flags, k.name); isSet {
			source, value, ok = "--"+k.name, given, true
		}
		if !ok {
			continue
		}
		if err := k.set(&s, value); err != nil {
			return s, fmt.Errorf("%s: %w", source, err)
		}
	}
	return s, s.complete()
}

func changed(flags *pflag.FlagSet, name string) (string, bool) {
	if f := flags.Lookup(name); f != nil && f.Changed {
		return f.Value.String(), true
	}
	return "", false
}

// read reads the file. An unknown key is an error: it would be a mistake without effect.
func (s *Settings) read(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// complete sets defaults and checks names.
func (s *Settings) complete() error {
	if s.Node == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("name of this node: %w", err)
		}
		s.Node = strings.ToLower(name)
	}
	if s.Cluster == "" {
		s.Cluster = "default"
	}
	for kind, name := range map[string]string{"cluster": s.Cluster, "node": s.Node} {
		if err := cluster.ValidateName(name); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	if (s.Cert == "") != (s.Key == "") {
		return errors.New("a client certificate needs both cert and key")
	}
	if s.Routes.Port < 0 || s.Routes.Port > math.MaxUint16 {
		return fmt.Errorf("port %d is not a UDP port", s.Routes.Port)
	}
	if s.Username != "" && s.PasswordFile == "" {
		return errors.New("username needs passwordFile")
	}
	return nil
}
