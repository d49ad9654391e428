package cni

import (
	"runtime"
	"slices"
	"strings"
)

// Command is a verb of the protocol, the value of CNI_COMMAND.
type Command string

// The verbs.
const (
	Add            Command = "ADD"
	Del            Command = "DEL"
	Check          Command = "CHECK"
	Status         Command = "STATUS"
	GC             Command = "GC"
	VersionCommand Command = "VERSION"
)

// Valid reports whether c is a verb of any published version. Verbs are upper case.
func (c Command) Valid() bool {
	switch c {
	case Add, Del, Check, Status, GC, VersionCommand:
		return true
	}
	return false
}

// Env is the CNI_* environment of one call, as a value.
type Env struct {
	Command     Command // CNI_COMMAND
	ContainerID string  // CNI_CONTAINERID
	Netns       string  // CNI_NETNS: path of the network namespace; may be empty on DEL
	IfName      string  // CNI_IFNAME
	Args        string  // CNI_ARGS: see [ParseArgs]
	Path        string  // CNI_PATH: plugin directories separated by colons

	// NetnsOverride is CNI_NETNS_OVERRIDE: "1" or "true" allows CNI_NETNS to be the plugin's own
	// namespace (de facto).
	NetnsOverride string
}

// EnvFrom reads the environment with get, usually [os.Getenv].
func EnvFrom(get func(string) string) Env {
	return Env{
		Command:       Command(get("CNI_COMMAND")),
		ContainerID:   get("CNI_CONTAINERID"),
		Netns:         get("CNI_NETNS"),
		IfName:        get("CNI_IFNAME"),
		Args:          get("CNI_ARGS"),
		Path:          get("CNI_PATH"),
		NetnsOverride: get("CNI_NETNS_OVERRIDE"),
	}
}

// Environ returns the variables as KEY=VALUE strings. It includes all variables of the
// specification, even empty ones, so that the caller's own variables never leak into a plugin.
func (e Env) Environ() []string {
	vars := []string{
		"CNI_COMMAND=" + string(e.Command), "CNI_CONTAINERID=" + e.ContainerID,
		"CNI_NETNS=" + e.Netns,
		"CNI_IFNAME=" + e.IfName, "CNI_ARGS=" + e.Args, "CNI_PATH=" + e.Path,
	}
	if e.NetnsOverride != "" {
		vars = append(vars, "CNI_NETNS_OVERRIDE="+e.NetnsOverride)
	}
	return vars
}

// PathSeparator separates the directories of CNI_PATH: a colon, on Windows a semicolon.
func PathSeparator() string {
	if runtime.GOOS == "windows" {
		return ";"
	}
	return ":"
}

// Paths returns the directories of CNI_PATH in order, without empty entries.
func (e Env) Paths() []string {
	return slices.DeleteFunc(strings.Split(e.Path, PathSeparator()),
		func(s string) bool { return s == "" })
}

// OwnNetnsAllowed reports whether CNI_NETNS_OVERRIDE permits CNI_NETNS to be the plugin's own
// namespace.
func (e Env) OwnNetnsAllowed() bool {
	return e.NetnsOverride == "1" || strings.EqualFold(e.NetnsOverride, "true")
}

// Attachment returns the key of the attachment that the call concerns, in the given network.
func (e Env) Attachment(network string) Attachment {
	return Attachment{Network: network, Container: e.ContainerID, IfName: e.IfName}
}

// Validate checks that the verb is known, that its required variables are present, and that
// identifiers are well-formed. It does not require CNI_PATH, because only a plugin that delegates
// needs it. An invalid variable is reported first; otherwise one error names all missing variables.
// Verbs without an attachment require no variables, and Validate ignores theirs. The code is
// [CodeInvalidEnvironment].
func (e Env) Validate() error {
	if e.Command == "" {
		return missingError("CNI_COMMAND")
	}
	if !e.Command.Valid() {
		return Errorf(CodeInvalidEnvironment, "CNI_COMMAND %q is unknown", e.Command)
	}
	if !e.Command.attached() {
		return nil
	}
	var missing []string
	if e.ContainerID == "" {
		missing = append(missing, "CNI_CONTAINERID")
	} else if err := ValidateContainerID(e.ContainerID); err != nil {
		return err
	}
	if e.Netns == "" && e.Command != Del {
		missing = append(missing, "CNI_NETNS")
	} else if strings.Contains(e.Netns, "\x00") {
		return Errorf(CodeInvalidEnvironment, "CNI_NETNS %q is not a path", e.Netns)
	}
	if e.IfName == "" {
		missing = append(missing, "CNI_IFNAME")
	} else if err := ValidateIfName(e.IfName); err != nil {
		return err
	}
	if missing != nil {
		return missingError(missing...)
	}
	return nil
}

// attached reports whether the verb concerns one attachment.
func (c Command) attached() bool { return c == Add || c == Check || c == Del }

func missingError(names ...string) error {
	return Errorf(CodeInvalidEnvironment, "required environment variables are missing: %s",
		strings.Join(names, ", "))
}

// Arg is one pair of CNI_ARGS.
type Arg struct{ Key, Value string }

// Args are the pairs of CNI_ARGS in order.
type Args []Arg

// ParseArgs parses the text of CNI_ARGS: KEY=VALUE pairs separated by semicolons, each with exactly
// one equals sign. The empty text has no pairs. The code is [CodeInvalidEnvironment].
func ParseArgs(s string) (Args, error) {
	if s == "" {
		return nil, nil
	}
	var args Args
	for pair := range strings.SplitSeq(s, ";") {
		kv := strings.Split(pair, "=")
		if len(kv) != 2 {
			return nil, Errorf(CodeInvalidEnvironment,
				"CNI_ARGS pair %q is not of the form KEY=VALUE", pair)
		}
		args = append(args, Arg{kv[0], kv[1]})
	}
	return args, nil
}

// Get returns the value of the last pair with this key. Keys are case-sensitive.
func (a Args) Get(key string) (value string, ok bool) {
	for _, p := range slices.Backward(a) {
		if p.Key == key {
			return p.Value, true
		}
	}
	return "", false
}

// CheckKnown returns an error with [CodeInvalidEnvironment] for keys other than IgnoreUnknown and
// the known ones, unless IgnoreUnknown is 1 or true (in any case).
func (a Args) CheckKnown(known ...string) error {
	if v, ok := a.Get("IgnoreUnknown"); ok {
		switch strings.ToLower(v) {
		case "1", "true":
			return nil
		case "0", "false":
		default:
			return Errorf(CodeInvalidEnvironment, "CNI_ARGS: IgnoreUnknown=%q is not a boolean", v)
		}
	}
	var unknown []string
	for _, p := range a {
		if p.Key != "IgnoreUnknown" && !slices.Contains(known, p.Key) {
			unknown = append(unknown, p.Key)
		}
	}
	if unknown != nil {
		return Errorf(CodeInvalidEnvironment, "CNI_ARGS: unknown keys %q", unknown).
			WithDetails("add IgnoreUnknown=1 to ignore them")
	}
	return nil
}

// String returns the pairs as the text of CNI_ARGS. Keys and values must not contain '=' or ';',
// because these cannot be escaped; callers must check untrusted values first.
func (a Args) String() string {
	pairs := make([]string, len(a))
	for i, p := range a {
		pairs[i] = p.Key + "=" + p.Value
	}
	return strings.Join(pairs, ";")
}
