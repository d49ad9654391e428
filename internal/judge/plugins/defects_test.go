package plugins_test

import (
	"strconv"

	"github.com/tenon-cni/tenon/internal/judge/planted"
)

// program is a plugin of testdata/base and the configuration with which it is judged.
type program string

const (
	lan  program = "lan"
	pool program = "pool"
	mark program = "mark"
)

// defect is a planted defect of one of the plugins.
type defect struct {
	program
	planted.Defect
}

// one returns a defect that changes one text of a file.
func one(p program, name string, rows []string, file, old, now string) defect {
	return defect{p, planted.Defect{Name: name, Rows: rows, Edits: []planted.Edit{{File: file, Old: old, New: now}}}}
}

// importing returns the defect with an additional import after another one in its file.
func (d defect) importing(after, name string) defect {
	d.Edits = append(d.Edits, planted.Edit{File: d.Edits[0].File, Old: strconv.Quote(after) + "\n",
		New: strconv.Quote(after) + "\n\t" + strconv.Quote(name) + "\n"})
	return d
}

// also returns the defect with another edit.
func (d defect) also(file, old, now string) defect {
	d.Edits = append(d.Edits, planted.Edit{File: file, Old: old, New: now})
	return d
}

var defects = []defect{
	one(lan, "answers in its newest version", []string{"VER-02", "RES-01", "PL-ADD-04"},
		"result.go", "out.CNIVersion = c.version", `out.CNIVersion = "1.1.0"`),
	one(lan, "gives code 7 for an unknown version", []string{"VER-03", "ERR-12"},
		"main.go", `fail(codeVersion, "version %s of the`, `fail(codeConfig, "version %s of the`),
	{lan, planted.Defect{Name: "makes a link before it refuses the version", Rows: []string{"VER-03"}, Edits: []planted.Edit{
		{File: "main.go", Old: "	if !slices.Contains(versions, c.version) {",
			New: "	_, _ = command(\"ip\", \"link\", \"add\", \"early0\", \"type\", \"bridge\")\n	if !slices.Contains(versions, c.version) {"}}}},
	one(lan, "refuses an empty version", []string{"VER-04"},
		"main.go", `v != nil && *v != ""`, `v != nil`),
	one(lan, "takes verbs in lower case", []string{"ENV-01"},
		"main.go", `verb: os.Getenv("CNI_COMMAND")`, `verb: strings.ToUpper(os.Getenv("CNI_COMMAND"))`),
	one(lan, "succeeds for an unknown verb", []string{"ENV-01", "PL-CHK-10", "ERR-01"},
		"main.go", `return nil, fail(codeVariables, "CNI_COMMAND: unknown command %q", c.verb)`, "return nil, nil"),
	{lan, planted.Defect{Name: "reads the input before the verb", Rows: []string{"ENV-02", "ENV-01", "ERR-09"}, Edits: []planted.Edit{
		{File: "main.go", Old: `return nil, fail(codeVariables, "CNI_COMMAND: unknown command %q", c.verb)`,
			New: `if err := c.read(); err != nil {
			return nil, err
		}
		return nil, fail(codeVariables, "CNI_COMMAND: unknown command %q", c.verb)`}}}},
	one(lan, "takes any container ID", []string{"ENV-05"},
		"main.go", "!identifier.MatchString(c.id)", "false"),
	one(lan, "takes an interface name with a colon", []string{"ENV-06"},
		"main.go", `strings.ContainsAny(n, "/:")`, `strings.ContainsAny(n, "/")`),
	one(lan, "does not name the missing variable", []string{"ENV-07", "ENV-03", "ERR-04"},
		"main.go", `missing = append(missing, name)`, `missing = append(missing, "container ID")`),
	one(lan, "validates the container ID of GC", []string{"ENV-08", "PL-STA-07"},
		"main.go", "	if !attached {\n		return nil\n	}\n	if !identifier", "	if !attached && c.id == \"\" {\n		return nil\n	}\n	if !identifier"),
	one(mark, "needs CNI_PATH", []string{"ENV-10"},
		"main.go", "attached && p.needsPath", "attached"),
	one(lan, "ignores CNI_NETNS_OVERRIDE", []string{"ENV-16"},
		"main.go", `v != "1" && !strings.EqualFold(v, "true")`, `v != "ignored"`),
	one(lan, "takes a configuration without name", []string{"CFG-02", "CFG-03"},
		"main.go", "!identifier.MatchString(c.conf.Name)", `c.conf.Name != "" && !identifier.MatchString(c.conf.Name)`),
	one(pool, "takes a name with a slash", []string{"CFG-03", "CFG-05"},
		"main.go", "!identifier.MatchString(c.conf.Name)", `c.conf.Name == ""`),
	one(lan, "passes numbers through floating point", []string{"CFG-34", "DLG-04"},
		"lan.go", "cmd.Stdin, cmd.Stderr = bytes.NewReader(c.stdin), os.Stderr",
		`var loose map[string]any
	_ = json.Unmarshal(c.stdin, &loose)
	text, _ := json.Marshal(loose)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), os.Stderr`),
	{lan, planted.Defect{Name: "ignores ipam if it is a string", Rows: []string{"CFG-36", "ERR-12"}, Edits: []planted.Edit{
		{File: "main.go", Old: "if err := json.Unmarshal(c.stdin, &c.conf); err != nil {",
			New: `var e *json.UnmarshalTypeError
	if err := json.Unmarshal(c.stdin, &c.conf); err != nil && !(errors.As(err, &e) && e.Field == "ipam") {`}}}},
	{lan, planted.Defect{Name: "refuses unknown args", Rows: []string{"CFG-40"}, Edits: []planted.Edit{
		{File: "main.go", Old: `	PrevResult json.RawMessage`, New: "	Args map[string]any `json:\"args\"`\n	PrevResult json.RawMessage"},
		{File: "main.go", Old: `	c.version = "0.1.0"`, New: `	if len(c.conf.Args) > 0 {
		return fail(codeConfig, "args")
	}
	c.version = "0.1.0"`}}}},
	one(lan, "prints errors to standard error", []string{"EXE-06", "ERR-01", "PL-ADD-05"},
		"main.go", "fmt.Println(string(text))", "fmt.Fprintln(os.Stderr, string(text))"),
	one(lan, "prints an object on DEL", []string{"PL-DEL-07", "EXE-16"},
		"main.go", "return nil, p.del(c)", `return []byte("{}"), p.del(c)`),
	one(lan, "prints a line before the result", []string{"EXE-16", "RES-01", "PL-ADD-04", "ERR-01"},
		"main.go", "	r, err := p.add(c)\n", "	fmt.Println(\"adding\")\n	r, err := p.add(c)\n"),
	{lan, planted.Defect{Name: "always makes eth0", Rows: []string{"PL-ADD-02", "PL-ADD-01", "RES-02"}, Edits: []planted.Edit{
		{File: "main.go", Old: `ifname: os.Getenv("CNI_IFNAME")`, New: `ifname: ethernet(os.Getenv("CNI_IFNAME"))`},
		{File: "main.go", Old: "func versionReply() []byte {", New: `func ethernet(name string) string {
	if identifier.MatchString(name) && len(name) < 16 {
		return "eth0"
	}
	return name
}

func versionReply() []byte {`}}}},
	{lan, planted.Defect{Name: "takes another name if the name is in use", Rows: []string{"PL-ADD-02", "PL-ADD-03"}, Edits: []planted.Edit{
		{File: "lan.go", Old: `		return nil, fail(codeVariables, "CNI_IFNAME: interface %s exists in the container", c.ifname)`,
			New: `		c.ifname += "x"`}}}},
	one(lan, "adds its address to an existing interface", []string{"PL-ADD-03"},
		"lan.go", `		return nil, fail(codeVariables, "CNI_IFNAME: interface %s exists in the container", c.ifname)`,
		`		out, err := c.delegate("ADD")
		if err != nil {
			return nil, err
		}
		own, err := c.decode(out)
		if err != nil {
			return nil, err
		}
		for _, i := range own.IPs {
			_, _ = c.inside("address", "add", i.Address.String(), "dev", c.ifname)
		}
		return own, nil`),
	one(lan, "prints text instead of an error object", []string{"PL-ADD-05", "EXE-06", "ERR-01"},
		"main.go", "fmt.Println(string(text))", "fmt.Println(f.Msg, len(text) > 0)"),
	one(lan, "ignores prevResult", []string{"PL-ADD-06"},
		"lan.go", "	r, err := c.previous()\n	if err != nil {\n		return nil, err\n	}\n	if _, err := c.inside(\"link\", \"show\"",
		"	r, err := &result{}, error(nil)\n	if _, err := c.inside(\"link\", \"show\""),
	one(mark, "keeps the label without prevResult", []string{"PL-DEL-01"},
		"mark.go", "	if c.foreignNetns() != nil {\n		return nil // the", "	if c.conf.PrevResult == nil || c.foreignNetns() != nil {\n		return nil // the"),
	one(mark, "changes the order of interfaces", []string{"PL-ADD-06"},
		"mark.go", "	return r, nil\n", "	slices.Reverse(r.Interfaces)\n	return r, nil\n"),
	one(mark, "refuses a prevResult without version", []string{"PL-ADD-07"},
		"result.go", `v != "" && family(v) != family(c.version)`, `family(v) != family(c.version)`),
	one(lan, "keeps the address if it cannot make the link", []string{"PL-ADD-10", "PL-ADD-09"},
		"lan.go", "		if c.hasIPAM() {\n			_, released := c.delegate(\"DEL\")\n			err = errors.Join(err, released)\n		}\n		return nil, err\n	}\n	hostMAC",
		"		return nil, err\n	}\n	hostMAC"),
	{lan, planted.Defect{Name: "refuses its own namespace after the work", Rows: []string{"PL-ADD-11", "EXE-16", "ERR-01"}, Edits: []planted.Edit{
		{File: "main.go", Old: "	if err := c.foreignNetns(); err != nil {\n		return nil, err\n	}\n", New: ""},
		{File: "main.go", Old: "	return r.encode(c)\n", New: `	out, err := r.encode(c)
	if own := c.foreignNetns(); own != nil {
		_, _ = os.Stdout.Write(out)
		return nil, own
	}
	return out, err
`}}}},
	one(lan, "omits the sandbox", []string{"PL-ADD-12", "RES-02"},
		"lan.go", "iface{Name: c.ifname, MAC: containerMAC, Sandbox: c.netns}", "iface{Name: c.ifname, MAC: containerMAC}"),
	one(lan, "fails if a default route exists", []string{"PL-ADD-13"},
		"lan.go", `err != nil && !strings.Contains(err.Error(), "File exists")`, "err != nil"),
	one(lan, "confuses the versions of ips", []string{"RES-01", "RES-18"},
		"result.go", `if !c.since("1.0.0") {`, `if c.since("1.0.0") {`),
	one(lan, "omits its host interface", []string{"RES-02"},
		"lan.go", ", iface{Name: c.host(), MAC: hostMAC})", ")\n	_ = hostMAC"),
	one(lan, "gives an index out of range", []string{"RES-03"},
		"lan.go", "	at := len(r.Interfaces)\n", "	at := len(r.Interfaces) + 1\n"),
	{lan, planted.Defect{Name: "prints a gateway with a prefix length", Rows: []string{"RES-09", "RES-01", "PL-ADD-04"}, Edits: []planted.Edit{
		{File: "main.go", Old: "	return r.encode(c)\n", New: `	out, err := r.encode(c)
	return gateway.ReplaceAll(out, []byte("$1/24\"")), err
`},
		{File: "main.go", Old: "// foreignNetns", New: `var gateway = regexp.MustCompile("(\"gateway\":\"[^\"]*)\"")` + "\n\n// foreignNetns"}}}},
	one(lan, "lists a route that it did not add", []string{"RES-17", "RES-15"},
		"lan.go", "	r.Routes = append(r.Routes, own.Routes...)\n",
		"	r.Routes = append(r.Routes, own.Routes...)\n	if len(own.IPs) > 0 {\n		r.Routes = append(r.Routes, route{Dst: netip.MustParsePrefix(\"198.51.100.0/24\"), GW: own.IPs[0].Gateway})\n	}\n"),
	one(lan, "fails the second DEL", []string{"PL-DEL-02", "PL-DEL-03", "names", "identifiers"},
		"lan.go", "	if _, err := os.Stat(\"/sys/class/net/\" + host); err == nil {\n		if _, err := command(\"ip\", \"link\", \"del\", host); err != nil && !strings.Contains(err.Error(), \"Cannot find device\") {\n			errs = append(errs, err)\n		}\n	}\n",
		"	if _, err := command(\"ip\", \"link\", \"del\", host); err != nil {\n		errs = append(errs, err)\n	}\n"),
	one(pool, "fails DEL without ADD", []string{"PL-DEL-02", "PL-DEL-03", "names", "identifiers"},
		"pool.go", "		errs := []error{err}\n		for a, holder := range taken {\n			if holder == (attachment{c.id, c.ifname}) {\n				errs",
		"		errs := []error{err}\n		if len(taken) == 0 {\n			return fail(codeOther, \"no reservation\")\n		}\n		for a, holder := range taken {\n			if holder == (attachment{c.id, c.ifname}) {\n				errs"),
	one(lan, "fails DEL if the namespace is gone", []string{"PL-DEL-03", "PL-DEL-04", "PL-DEL-02"},
		"lan.go", "func lanDel(c *call) error {\n",
		"func lanDel(c *call) error {\n	if _, err := os.Stat(c.netns); c.netns != \"\" && err != nil {\n		return err\n	}\n"),
	one(lan, "keeps the address without namespace", []string{"PL-DEL-03", "PL-DEL-04", "PL-DEL-05", "PL-DEL-01", "DLG-06", "PL-DEL-06"},
		"lan.go", "func lanDel(c *call) error {\n",
		"func lanDel(c *call) error {\n	if _, err := os.Stat(c.netns); err != nil {\n		return c.disconnect()\n	}\n"),
	one(lan, "needs prevResult for DEL", []string{"PL-DEL-04", "PL-DEL-08"},
		"lan.go", "func lanDel(c *call) error {\n",
		"func lanDel(c *call) error {\n	if c.conf.PrevResult == nil && c.since(\"0.4.0\") {\n		return fail(codeConfig, \"prevResult is missing\")\n	}\n"),
	one(lan, "needs CNI_NETNS for DEL", []string{"PL-DEL-04"},
		"main.go", `c.verb == "ADD" || c.verb == "CHECK" {
		need`, `attached {
		need`),
	one(pool, "releases only the addresses of prevResult", []string{"PL-DEL-05", "PL-DEL-04", "PL-DEL-01", "IPAM-06"},
		"pool.go", "			if holder == (attachment{c.id, c.ifname}) {\n				errs = append",
		"			if holder == (attachment{c.id, c.ifname}) && strings.Contains(string(c.conf.PrevResult), a) {\n				errs = append").importing("slices", "strings"),
	one(lan, "hides errors of the IPAM plugin on DEL", []string{"PL-DEL-06", "DLG-06"},
		"lan.go", "	err := c.disconnect()\n	if c.hasIPAM() {\n		_, released := c.delegate(\"DEL\")\n		err = errors.Join(err, released)\n	}\n	return err",
		"	err := c.disconnect()\n	if c.hasIPAM() {\n		_, _ = c.delegate(\"DEL\")\n	}\n	return err"),
	one(lan, "leaves the rule without namespace", []string{"PL-DEL-01", "PL-DEL-04", "PL-DEL-05", "PL-DEL-03"},
		"lan.go", `	if _, err := command("nft", "delete", "table", "inet", host); err != nil`,
		`	if os.Getenv("CNI_NETNS") == "" {
		return errors.Join(errs...)
	}
	if _, err := command("nft", "delete", "table", "inet", host); err != nil`),
	one(lan, "executes CHECK of 0.3.1", []string{"PL-CHK-01"},
		"main.go", `c.verb == "CHECK" && !c.since("0.4.0"), `, ""),
	{lan, planted.Defect{Name: "executes CHECK without prevResult", Rows: []string{"PL-CHK-02"}, Edits: []planted.Edit{
		{File: "main.go", Old: `(c.verb == "CHECK" || p.needsPrevResults)`, New: `p.needsPrevResults`},
		{File: "lan.go", Old: "	at := slices.IndexFunc(r.Interfaces", New: "	if c.conf.PrevResult == nil {\n		return nil\n	}\n	at := slices.IndexFunc(r.Interfaces"}}}},
	{lan, planted.Defect{Name: "compares the MAC address with its own memory", Rows: []string{"PL-CHK-03", "PL-CHK-02"}, Edits: []planted.Edit{
		{File: "lan.go", Old: "	hostMAC, containerMAC, err := c.macs()\n", New: "	hostMAC, containerMAC, err := c.macs()\n	_ = os.WriteFile(\"/run/\"+c.host(), []byte(containerMAC), 0o644)\n"},
		{File: "lan.go", Old: `mac := r.Interfaces[at].MAC; mac != "" && mac != own[0].Address`, New: `mac, _ := os.ReadFile("/run/" + c.host()); string(mac) != own[0].Address`}}}},
	one(lan, "CHECK always succeeds", []string{"PL-CHK-04", "PL-CHK-05", "PL-CHK-08", "PL-CHK-02", "DLG-06"},
		"lan.go", "func lanCheck(c *call) error {\n", "func lanCheck(c *call) error {\n	if c.since(\"0.4.0\") {\n		return nil\n	}\n"),
	one(lan, "CHECK always fails", []string{"PL-CHK-07", "concurrent-2"},
		"lan.go", "func lanCheck(c *call) error {\n", "func lanCheck(c *call) error {\n	if c.since(\"0.4.0\") {\n		return fail(codeOther, \"not today\")\n	}\n"),
	{lan, planted.Defect{Name: "CHECK fails on a tentative address", Rows: []string{"PL-CHK-07"}, Edits: []planted.Edit{
		{File: "lan.go", Old: `c.inside("address", "add", i.Address.String(), "dev", c.ifname, "nodad")`, New: `c.inside("address", "add", i.Address.String(), "dev", c.ifname)`},
		{File: "lan.go", Old: `	addresses, err := c.inside("-o", "address", "show", "dev", c.ifname)
`, New: `	addresses, err := c.inside("-o", "address", "show", "dev", c.ifname)
	if strings.Contains(addresses, "tentative") {
		return fail(codeOther, "an address is tentative")
	}
`}}}},
	one(lan, "CHECK does not call the IPAM plugin", []string{"PL-CHK-08", "DLG-06"},
		"lan.go", `	if c.hasIPAM() {
		if _, err := c.delegate("CHECK"); err != nil {
			return err
		}
	}
`, ""),
	one(lan, "lists its versions as a string", []string{"PL-VRS-01"},
		"main.go", `"supportedVersions": versions})`, `"supportedVersions": strings.Join(versions, ",")})`),
	one(lan, "refuses 0.4.0 although it announces it", []string{"PL-VRS-04", "VER-03"},
		"main.go", "	if !slices.Contains(versions, c.version) {", "	if !slices.Contains(versions, c.version) || c.version == \"0.4.0\" {"),
	one(pool, "STATUS of a full pool has code 1", []string{"PL-STA-02", "PL-STA-03"},
		"pool.go", "fail(codeUnavailable,", "fail(codeVersion,"),
	one(lan, "executes STATUS of 1.0.0", []string{"PL-STA-06"},
		"main.go", `(c.verb == "GC" || c.verb == "STATUS") && !c.since("1.1.0")`, `c.verb == "GC" && !c.since("1.1.0")`),
	one(pool, "GC compares IDs in lower case", []string{"PL-GC-02"},
		"pool.go", "if !slices.Contains(valid, holder) {", "if lower := (attachment{strings.ToLower(holder.ContainerID), holder.IfName}); !slices.Contains(valid, lower) {").importing("slices", "strings"),
	one(pool, "GC stops at the first error", []string{"PL-GC-04", "PL-GC-01"},
		"pool.go", `errs = append(errs, fmt.Errorf("release %s: %w", a, err))`, `return fmt.Errorf("release %s: %w", a, err)`),
	one(pool, "GC without list removes everything", []string{"PL-GC-06"},
		"main.go", `		return nil, fail(codeConfig, "cni.dev/valid-attachments is missing")`, `		return nil, nil`),
	one(lan, "gives the IPAM plugin only its section", []string{"DLG-04", "CFG-34"},
		"lan.go", "cmd.Stdin, cmd.Stderr = bytes.NewReader(c.stdin), os.Stderr",
		`text, _ := json.Marshal(map[string]any{"cniVersion": c.version, "name": c.conf.Name, "ipam": c.conf.IPAM})
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), os.Stderr`),
	one(lan, "the first ADDs race for the bridge", []string{"LIF-07", "R-65"},
		"lan.go", "			if _, now := command(\"ip\", \"link\", \"show\", \"dev\", bridge); now != nil { // not by another process\n				return err\n			}\n",
		"			return err\n").also(
		"lan.go", "		if _, err := command(\"ip\", \"link\", \"add\", bridge,", "		time.Sleep(time.Second)\n		if _, err := command(\"ip\", \"link\", \"add\", bridge,").importing("strings", "time"),
	one(lan, "CHECK ignores the bridge", []string{"PL-CHK-05"},
		"lan.go", " || host[0].Master != c.bridge()", ""),
	one(lan, "CHECK looks at the host alone", []string{"PL-CHK-04"},
		"lan.go", "	own, err := decodeLinks(c.inside(\"-j\", \"link\", \"show\", \"dev\", c.ifname))\n	if err != nil || !slices",
		"	own, err := decodeLinks(c.inside(\"-j\", \"link\", \"show\", \"dev\", c.ifname))\n	if err != nil {\n		return nil\n	}\n	if !slices"),
	one(lan, "DEL finds the interface by the bridge", []string{"PL-DEL-05", "PL-DEL-03"},
		"lan.go", "func lanDel(c *call) error {\n", `func lanDel(c *call) error {
	if l, err := decodeLinks(command("ip", "-j", "link", "show", "dev", c.host())); err == nil && l[0].Master != c.bridge() {
		return nil
	}
`),
	one(lan, "refuses a dot in the name of the interface", []string{"R-81", "ENV-06"},
		"main.go", `strings.ContainsAny(n, "/:")`, `strings.ContainsAny(n, "/:.")`),
	one(lan, "returns with a tentative address", []string{"R-75"},
		"lan.go", `c.inside("address", "add", i.Address.String(), "dev", c.ifname, "nodad")`,
		`command("nsenter", "--net="+c.netns, "sh", "-c", // detection takes minutes, so that a slow host sees it
			"echo 250 >/proc/sys/net/ipv6/conf/"+c.ifname+"/dad_transmits && ip address add "+i.Address.String()+" dev "+c.ifname)`),
	one(lan, "appends hops to default routes", []string{"R-77"},
		"lan.go", `args := []string{"route", "add",`, `args := []string{"route", "append",`),
	one(lan, "needs a type of ipam on DEL", []string{"R-33"},
		"lan.go", `c.conf.IPAM != nil && c.conf.IPAM.Type != ""`, `c.conf.IPAM != nil`),
	one(lan, "does not name the existing interface", []string{"R-72"},
		"lan.go", `interface %s exists in the container", c.ifname)`, `it exists in the container")`),
}

// gate has the defects that the gate plants, each with the scenario that finds it.
var gate = map[string]string{
	"gives code 7 for an unknown version":          "unsupported-version",
	"takes verbs in lower case":                    "command",
	"does not name the missing variable":           "variables",
	"takes a configuration without name":           "malformed",
	"passes numbers through floating point":        "delegate",
	"prints a line before the result":              "errors",
	"takes another name if the name is in use":     "add-name-taken",
	"refuses a prevResult without version":         "chain-version",
	"keeps the address if it cannot make the link": "delegate-release",
	"refuses its own namespace after the work":     "own-namespace",
	"omits the sandbox":                            "result",
	"fails the second DEL":                         "life",
	"fails DEL if the namespace is gone":           "del-netns-gone",
	"leaves the rule without namespace":            "del-empty-netns",
	"executes CHECK without prevResult":            "check-required",
	"CHECK always succeeds":                        "check-address-removed",
	"STATUS of a full pool has code 1":             "status-full",
	"GC stops at the first error":                  "gc-errors",
	"GC without list removes everything":           "gc-pool",
	"DEL finds the interface by the bridge":        "del-changed",
}
