package plugins_test

import "github.com/tenon-cni/tenon/internal/judge/planted"

// variants differ from the plugins of testdata/base in ways that the specification allows. Their
// Rows are the cases that could notice it.
var variants = []defect{
	{lan, planted.Defect{Name: "older versions only", Rows: []string{"version", "unsupported-version", "life"}, Edits: []planted.Edit{{File: "main.go",
		Old: `"0.3.1", "0.4.0", "1.0.0", "1.1.0"}`, New: `"0.3.1", "0.4.0"}`}, {File: "main.go",
		Old: `answer.CNIVersion = "1.1.0"`, New: `answer.CNIVersion = "0.4.0"`}}}},
	one(lan, "newer versions only", []string{"version", "unsupported-version", "life"}, "main.go",
		`"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}`, `"1.0.0", "1.1.0"}`),
	one(lan, "other order of the members of an error", []string{"errors", "malformed"}, "main.go",
		"	CNIVersion string `json:\"cniVersion\"`\n	Code       int    `json:\"code\"`\n	Msg        string `json:\"msg\"`\n	Details    string `json:\"details,omitempty\"`\n",
		"	Details    string `json:\"details,omitempty\"`\n	Msg        string `json:\"msg\"`\n	Code       int    `json:\"code\"`\n	CNIVersion string `json:\"cniVersion\"`\n"),
	one(lan, "details in errors", []string{"errors", "malformed"}, "main.go", "	answer := *f\n", "	answer := *f\n	answer.Details = \"see the log\"\n"),
	one(lan, "exit status 3", []string{"errors", "malformed", "unsupported-version"}, "main.go", "	fmt.Println(string(text))\n	os.Exit(1)", "	fmt.Println(string(text))\n	os.Exit(3)"),
	one(lan, "output in several lines", []string{"life", "result", "delegate"}, "main.go", "	return r.encode(c)\n", `	out, err := r.encode(c)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = json.Indent(&b, out, " ", "\t")
	return append(b.Bytes(), '\n', '\n'), err
`),
	one(lan, "an unknown member in the result", []string{"life", "result"}, "result.go",
		"type result struct {\n", "type result struct {\n	Comment string `json:\"lan.example/comment\"`\n"),
	one(lan, "log on standard error", []string{"errors", "life", "delegate", "status"}, "main.go", "	if err := c.variables(p); err != nil {",
		"	fmt.Fprintf(os.Stderr, \"{\\\"verb\\\": %q}\\n\", c.verb)\n	if err := c.variables(p); err != nil {"),
	one(lan, "releases addresses before it deletes the link", []string{"life", "delegate-error", "del-netns-gone", "add-ipam-unusable"}, "lan.go",
		"	err := c.disconnect()\n	if c.hasIPAM() {\n		_, released := c.delegate(\"DEL\")\n		err = errors.Join(err, released)\n	}\n	return err",
		"	var released error\n	if c.hasIPAM() {\n		_, released = c.delegate(\"DEL\")\n	}\n	return errors.Join(released, c.disconnect())"),
	one(lan, "ignores GC without a list", []string{"gc", "gc-delegate", "gc-host"}, "lan.go", "	valid, err := c.conf.valid()\n	if err != nil {\n		return err\n	}\n	keep",
		"	valid, err := c.conf.valid()\n	if err != nil {\n		return nil\n	}\n	keep"),
	one(lan, "mtu in the result of 1.1.0", []string{"life", "result"}, "result.go", "	out.IPs = nil\n", `	out.IPs = nil
	for n := range out.Interfaces {
		if out.Interfaces[n].Sandbox != "" && c.since("1.1.0") {
			out.Interfaces[n].MTU = 1500
		}
	}
`).also("result.go", "	Sandbox string `json:\"sandbox,omitempty\"`\n", "	Sandbox string `json:\"sandbox,omitempty\"`\n	MTU     int    `json:\"mtu,omitempty\"`\n"),
	one(lan, "an empty member dns", []string{"life", "result", "delegate"}, "result.go", "	out.IPs = nil\n",
		"	out.IPs = nil\n	if out.DNS == nil {\n		out.DNS = json.RawMessage(\"{}\")\n	}\n"),
	one(pool, "second ADD returns the same address", []string{"life", "ipam", "ipam-pool", "ipam-state"}, "pool.go",
		`				return fail(codeOther, "container %s has the address %s", c.id, a)
`, `				gateway := subnet.Addr().Next()
				r = &result{IPs: []ip{{Address: netip.PrefixFrom(netip.MustParseAddr(a), subnet.Bits()), Gateway: &gateway}},
					Routes: []route{{Dst: netip.MustParsePrefix("0.0.0.0/0")}}}
				return nil
`),
	one(pool, "no routes", []string{"life", "ipam", "ipam-pool"}, "pool.go",
		",\n				Routes: []route{{Dst: netip.MustParsePrefix(\"0.0.0.0/0\")}}}", "}"),
	one(pool, "STATUS warns of a full pool", []string{"status", "status-full"}, "pool.go",
		`		return fail(codeUnavailable, "all %d addresses are in use", len(all))`,
		`		fmt.Fprintf(os.Stderr, "all %d addresses are in use\n", len(all))
		return nil`),
	one(pool, "ignores the namespace", []string{"life", "ipam", "errors", "gc-pool"}, "main.go",
		"	if err := c.foreignNetns(); err != nil {\n		return nil, err\n	}\n", ""),
	one(mark, "unknown code of an error", []string{"errors", "life", "add-no-interface"}, "main.go", "	codeOther       = 100", "	codeOther       = 117"),
	one(mark, "no handlers of GC and STATUS", []string{"gc", "status", "errors", "life"}, "main.go", "gc: nothing, status: nothing, needs", "needs").also(
		"main.go", `	case c.verb == "GC":
		return nil, p.gc(c)
	case c.verb == "STATUS":
		return nil, p.status(c)
`, `	case c.verb == "GC" && p.gc != nil:
		return nil, p.gc(c)
	case c.verb == "STATUS" && p.status != nil:
		return nil, p.status(c)
	case c.verb == "GC", c.verb == "STATUS":
		return nil, nil
`).also("main.go", "func nothing(*call) error { return nil }\n", ""),
}
