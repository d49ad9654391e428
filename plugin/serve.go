package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/cni"
	"github.com/tenon-cni/tenon/invoke"
)

// undoBudget limits the time of a rollback after a call has been cancelled.
const undoBudget = 10 * time.Second

// input is a call before the request is decoded.
type input struct {
	env     cni.Env
	stdin   []byte
	version cni.Version
	caller  invoke.Caller // for delegates
	log     *slog.Logger  // nil is [slog.Default]
	linked  bool          // linked into another program
	files   []*os.File    // inherited by delegates; see [invoke.Call.Files]
}

func (in input) logger() *slog.Logger {
	if in.log == nil {
		return slog.Default()
	}
	return in.log
}

// Serve handles one call with the whole protocol. It returns the output of a successful call, or an
// error that the caller prints as an error object. It runs delegates through caller.
func (d Definition) Serve(
	ctx context.Context, env cni.Env, stdin []byte, caller invoke.Caller,
) (stdout []byte, err error) {
	return d.serve(ctx, input{env: env, stdin: stdin, caller: caller})
}

func (d Definition) serve(ctx context.Context, in input) (stdout []byte, err error) {
	stdout, err = d.answer(ctx, in)
	return stdout, coded(ctx, in.env.Command, err)
}

func (d Definition) answer(ctx context.Context, in input) (stdout []byte, err error) {
	defer d.catch(in.logger(), &err)
	env := in.env
	if err := validateEnv(env); err != nil {
		return nil, err
	}
	if env.Command == cni.VersionCommand {
		return d.versionReply(in.stdin), nil
	}
	in.stdin = exactKeys(in.stdin, d.configType())
	if in.version, err = d.header(in.stdin, env.Command); err != nil {
		return nil, err
	}
	if env.Command == cni.Add || env.Command == cni.Del {
		if err := refuseOwnNamespace(env); err != nil {
			return nil, err
		}
	}
	c, p, err := d.decode(ctx, in)
	if err != nil {
		return nil, err
	}
	return dispatch(ctx, p, c)
}

// catch turns a panic into an error. It must be deferred directly.
func (d Definition) catch(log *slog.Logger, err *error) {
	if p := recover(); p != nil {
		log.Error("panic", "plugin", d.Name, "panic", p, "stack", string(debug.Stack()))
		*err = cni.Errorf(cni.CodeInternal, "%s: panic: %v", d.Name, p).
			WithDetails("this is a bug; the plugin's log, by default its standard error, has the stack")
	}
}

// Validate checks a request as ADD does before it starts: header, JSON types, and the [Validator]
// of the plugin. It changes nothing and does not depend on an attachment.
func (d Definition) Validate(request []byte) error {
	_, _, err := d.validated(context.Background(), request)
	return err
}

// Advise returns the advice of the plugin's [Advisor] for a request. It changes nothing.
func (d Definition) Advise(ctx context.Context, request []byte) ([]string, error) {
	c, p, err := d.validated(ctx, request)
	if err != nil {
		return nil, err
	}
	if a, ok := as[Advisor](p, c); ok {
		return a.Advise(ctx, c)
	}
	return nil, nil
}

// validated decodes and validates a request for an attachment that does not exist.
func (d Definition) validated(ctx context.Context, request []byte) (*Call, Plugin, error) {
	env := cni.Env{Command: cni.Add, ContainerID: "container", Netns: "/", IfName: "eth0"}
	return d.open(ctx, env, request, cni.Add)
}

// open decodes and validates a request. The version of the request must support verb.
func (d Definition) open(
	ctx context.Context, env cni.Env, stdin []byte, verb cni.Command,
) (*Call, Plugin, error) {
	stdin = exactKeys(stdin, d.configType())
	v, err := d.header(stdin, verb)
	if err != nil {
		return nil, nil, err
	}
	c, p, err := d.decode(ctx, input{env: env, stdin: stdin, version: v})
	if err != nil {
		return nil, nil, err
	}
	return c, p, validate(p, c)
}

func validate(p Plugin, c *Call) error {
	if v, ok := as[Validator](p, c); ok {
		return v.Validate(c)
	}
	return nil
}

// as returns the plugin of a call as a T or, if it does not implement T, the configuration of the
// call.
func as[T any](p Plugin, c *Call) (t T, ok bool) {
	if t, ok = p.(T); !ok {
		t, ok = c.conf.(T)
	}
	return t, ok
}

// With decodes a request as CHECK does, in any version of the protocol, and calls use with the call
// and the plugin. A panic of use becomes an error with code 999. Programs use With for operations
// on an attachment that are not a verb of the protocol.
func (d Definition) With(
	ctx context.Context, env cni.Env, stdin []byte, use func(*Call, Plugin) error,
) (err error) {
	defer d.catch(slog.Default(), &err)
	env.Command = cni.Check
	if err := validateEnv(env); err != nil {
		return err
	}
	c, p, err := d.open(ctx, env, stdin, cni.VersionCommand)
	if err != nil {
		return err
	}
	return use(c, p)
}

// Handler returns d in the form that package invoke calls in this process. It runs delegates
// through caller.
func (d Definition) Handler(caller invoke.Caller) invoke.Handler {
	return d.handler(input{caller: caller})
}

func (d Definition) handler(in input) invoke.Handler {
	return func(ctx context.Context, c invoke.Call) ([]byte, bool) {
		in := in
		in.env, in.stdin, in.files = c.Env, c.Stdin, c.Files
		out, err := d.serve(ctx, in)
		if err != nil {
			return cni.AsError(err).Encode(errorVersion(c.Stdin)), false
		}
		return out, true
	}
}

func (d Definition) versionReply(stdin []byte) []byte {
	r := cni.VersionReply{CNIVersion: cni.Newest.String()}
	var asked struct {
		CNIVersion string `json:"cniVersion"`
	}
	if json.Unmarshal(stdin, &asked) == nil {
		if v, err := cni.ParseVersion(asked.CNIVersion); err == nil && asked.CNIVersion != "" {
			r.CNIVersion = v.String()
		}
	}
	for _, v := range d.Versions {
		r.Supported = append(r.Supported, v.String())
	}
	return append(r.Encode(), '\n')
}

// header checks the name of the network, and that the plugin supports the verb and the version of
// the configuration. Messages about versions equal upstream's.
func (d Definition) header(stdin []byte, verb cni.Command) (cni.Version, error) {
	_, version, err := decodeHeader(stdin)
	if err != nil {
		return 0, err
	}
	v, err := cni.ParseVersion(version)
	if err != nil && cni.CodeOf(err) != cni.CodeIncompatibleVersion {
		return 0, err
	}
	if err == nil && !v.Has(verb) {
		return 0, cni.Errorf(cni.CodeIncompatibleVersion, "config version does not allow %s", verb).
			WithDetails(fmt.Sprintf("CNI version %v has no %s", v, verb))
	}
	if err != nil || !slices.Contains(d.Versions, v) {
		supported := make([]string, len(d.Versions))
		for i, s := range d.Versions {
			supported[i] = s.String()
		}
		return 0, cni.Errorf(cni.CodeIncompatibleVersion, "incompatible CNI versions").
			WithDetails(fmt.Sprintf("config is %q, plugin supports %q",
				cmp.Or(version, cni.V010.String()), supported))
	}
	return v, nil
}

// errorVersion returns the version of an error object: the version of the request or, if it is
// unknown, the newest.
func errorVersion(stdin []byte) cni.Version {
	if _, version, err := cni.DecodeHeader(stdin); err == nil {
		if v, err := cni.ParseVersion(version); err == nil {
			return v
		}
	}
	return cni.Newest
}

// refuseOwnNamespace prevents a faulty runtime from reconfiguring the host. A path that cannot be
// read is not the host namespace.
func refuseOwnNamespace(env cni.Env) error {
	if env.Netns == "" || env.OwnNetnsAllowed() {
		return nil
	}
	own, err := os.Stat("/proc/thread-self/ns/net")
	if err != nil {
		return cni.Errorf(cni.CodeOwnNamespace, "own network namespace: %w", err)
	}
	if asked, err := os.Stat(env.Netns); err == nil && os.SameFile(own, asked) {
		return cni.Errorf(cni.CodeOwnNamespace,
			"plugin's netns and netns from CNI_NETNS should not be the same").
			WithDetails(fmt.Sprintf("CNI_NETNS %q is the network namespace of the host; "+
				"create a namespace for the container, or set CNI_NETNS_OVERRIDE=1 to allow this one", env.Netns))
	}
	return nil
}

func (d Definition) decode(ctx context.Context, in input) (*Call, Plugin, error) {
	i, env, v := d.Info, in.env, in.version
	strict := env.Command != cni.Del && env.Command != cni.GC
	conf, p := d.new()
	common := conf.common()
	if strict {
		if err := json.Unmarshal(in.stdin, conf); err != nil {
			return nil, nil, cni.DecodeFailure("network configuration", inKeys(err, d.configType()))
		}
	} else {
		decodeLeniently(in.stdin, conf)
	}
	if typ := common.IPAM.Type; strict && typ != "" && (typ == i.Name || typ == d.file) {
		return nil, nil, cni.Errorf(cni.CodeInvalidConfig,
			"ipam.type: %s cannot be its own IPAM plugin", typ)
	}
	c := &Call{
		Common: common, Env: env, Version: v, conf: conf, stdin: in.stdin,
		Delegate: Delegator{input: in, plugin: i.Name, file: d.file}, Linked: in.linked, Watch: d.watch,
	}
	trace, _ := invoke.TraceFrom(ctx)
	c.Log = slog.New(&logHandler{in.logger().Handler(), c, trace.ID()})
	c.Delegate.log = c.Log
	var err error
	if c.Prev, err = decodePrevResult(common.PrevResult, v, c.Log); err != nil && strict {
		if i.Role != RoleIPAM || env.Command != cni.Add { // addresses do not depend on it
			return nil, nil, err
		}
		c.Log.Warn("ignoring an invalid prevResult", "error", err)
	}
	if c.Asked, err = request(i, env, common); err != nil && strict {
		return nil, nil, err
	}
	if env.Command == cni.GC {
		if c.Valid, err = cni.DecodeValidAttachments(in.stdin); err != nil {
			return nil, nil, err
		}
	}
	return c, p, nil
}

// decodePrevResult decodes the previous result. It refuses a result in the form of another version
// than the call's, which the runtime should have converted.
func decodePrevResult(raw json.RawMessage, v cni.Version, log *slog.Logger) (*cni.Result, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	own, err := cni.ResultVersion(raw, v)
	if err != nil {
		return nil, fmt.Errorf("prevResult: %w", err)
	}
	if !own.SameForm(v) {
		return nil, cni.Errorf(cni.CodeInvalidConfig,
			"prevResult has CNI version %v, but the call has %v", own, v)
	}
	r, repairs, err := cni.RepairResult(raw, v)
	if err != nil {
		return nil, fmt.Errorf("prevResult: %w", err)
	}
	for _, repair := range repairs {
		log.Warn("repaired prevResult", "repair", repair)
	}
	return r, nil
}

func request(i Info, env cni.Env, common *Common) (Request, error) {
	var r Request
	var args cni.Args
	if i.Args != nil {
		var err error
		if args, err = parseArgs(env.Args, i.Args); err != nil {
			return r, err
		}
	}
	mac, _ := args.Get("MAC")
	r.MAC = cmp.Or(common.RuntimeConfig.MAC, common.ConfArgs.CNI.MAC, mac)
	if ip, _ := args.Get("IP"); ip != "" {
		r.IPs = append(r.IPs, ip)
	}
	r.IPs = append(r.IPs, common.ConfArgs.CNI.IPs...)
	r.IPs = append(r.IPs, common.RuntimeConfig.IPs...)
	return r, nil
}

func dispatch(ctx context.Context, p Plugin, c *Call) ([]byte, error) {
	if c.Command == cni.Add || c.Command == cni.Check || c.Command == cni.Status {
		if err := validate(p, c); err != nil {
			return nil, err
		}
	}
	switch c.Command {
	case cni.Add:
		r, err := p.Add(ctx, c)
		if err != nil {
			return nil, err
		}
		if r == nil {
			err = cni.Errorf(cni.CodeInternal, "plugin %s returned neither a result nor an error",
				c.Type)
		}
		var out []byte
		if err == nil {
			out, err = encodeResult(c, onlyAddresses(r, c.Prev, c.Log))
		}
		if err != nil {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBudget)
			defer cancel()
			return nil, errors.Join(err, p.Del(undo, c))
		}
		return out, nil
	case cni.Del:
		return nil, p.Del(ctx, c)
	case cni.Check:
		return nil, p.Check(ctx, c)
	case cni.Status:
		if s, ok := as[Statuser](p, c); ok {
			return nil, s.Status(ctx, c)
		}
		return nil, nil
	case cni.GC:
		if g, ok := p.(Collector); ok {
			return nil, g.GC(ctx, c)
		}
		return nil, nil
	}
	return nil, cni.Errorf(cni.CodeInvalidEnvironment, "unknown CNI_COMMAND: %s", c.Command)
}

// encodeResult encodes the result of ADD. It logs each part that matters for routing and that the
// version of the call cannot represent.
func encodeResult(c *Call, r *cni.Result) ([]byte, error) {
	out, lost, err := r.Relay(c.Version, c.Prev)
	for _, text := range lost {
		c.Log.Warn("CNI version cannot represent a part of the result; omitting it",
			"cniVersion", c.Version.String(), "lost", text)
	}
	return out, err
}

// onlyAddresses returns r without the nameservers that are not addresses, because resolvers cannot
// use them, and without those that have a zone, which is an interface of the host. Nameservers from
// prev stay.
func onlyAddresses(r, prev *cni.Result, log *slog.Logger) *cni.Result {
	r = r.Clone()
	r.DNS.Nameservers = slices.DeleteFunc(r.DNS.Nameservers, func(server string) bool {
		addr, err := netip.ParseAddr(server)
		if err == nil && addr.Zone() == "" || prev != nil &&
			slices.Contains(prev.DNS.Nameservers, server) {
			return false
		}
		log.Warn("omitting a nameserver that is not an address, or that has a zone of this host",
			"nameserver", server)
		return true
	})
	return r
}
