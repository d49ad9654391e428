// Package conformance contains test vectors for the documents of CNI: configurations, requests,
// results, error objects, version replies, stored attachments, and tables of values, each with the
// verdict that the specification requires. Implementations in any language can use them: the files
// are in the directory examples, listed in its INDEX.tsv.
//
// [Rows] is the catalog of requirements. Each has an identifier that never changes, with a prefix
// for its area: CFG configurations, DSC and DRP their discovery, VER versions, ENV variables, EXE
// processes, LIF the lifecycle of an attachment, REQ requests, RT-VERB and PL-VERB duties of a
// runtime and a plugin for a verb, CACHE records, DLG delegation, IPAM, RES results, CNV
// conversion, ERR errors, CONV conventions, DNS, TRC tracing, SEC hardening, TOOL command lines,
// DIS contradictions, R regressions.
//
// Package judge judges plugins by the catalog.
package conformance

import (
	"embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-cni/tenon/cni"
)

//go:embed examples
var examples embed.FS

const directory = "examples/"

// Kind is the kind of document that a vector contains.
type Kind string

// The kinds of vectors other than requests, for which see [Kind.Verb].
const (
	KindConflist Kind = "conflist" // network configuration list
	KindConf     Kind = "conf"     // configuration of a single plugin
	KindDropin   Kind = "dropin"   // configuration of one plugin in a drop-in directory
	KindNetdir   Kind = "netdir"   // configuration directory: see [Netdirs]
	KindResult   Kind = "result"   // output of a plugin on ADD
	KindError    Kind = "error"    // output of a failing plugin
	KindVersion  Kind = "version"  // output of a plugin on VERSION
	KindCache    Kind = "cache"    // stored attachment in the format of libcni
	KindTable    Kind = "vectors"  // table of values, returned by a separate function
)

const requestPrefix = "request-"

// Verb returns the verb of a vector that is the standard input of a plugin; ok is false for other
// kinds.
func (k Kind) Verb() (verb cni.Command, ok bool) {
	name, ok := strings.CutPrefix(string(k), requestPrefix)
	return cni.Command(name), ok
}

func (k Kind) known() bool {
	if verb, ok := k.Verb(); ok {
		return verb.Valid()
	}
	return slices.Contains([]Kind{
		KindConflist, KindConf, KindDropin, KindNetdir, KindResult, KindError, KindVersion,
		KindCache, KindTable,
	}, k)
}

// Verdict is the required judgment of a vector.
type Verdict string

// The verdicts.
const (
	Valid   Verdict = "valid"
	Invalid Verdict = "invalid"
)

// Vector is one example.
type Vector struct {
	File    string     // name in the directory examples; a directory's name ends in a slash
	Kind    Kind       // kind of document
	Version string     // versions to which it applies: "1.1.0", "0.4.0+", "any"
	Verdict Verdict    // required judgment
	Codes   []cni.Code // valid codes for an invalid vector, the preferred first; may be empty
	Reason  string     // why
	Note    string     // further explanation; may be empty
	Data    []byte     // content; nil for a directory
}

// Vectors returns all vectors in the order of the index. An error means that the embedded files are
// inconsistent.
func Vectors() ([]Vector, error) {
	index, err := examples.ReadFile(directory + "INDEX.tsv")
	if err != nil {
		return nil, err
	}
	_, rows, _ := strings.Cut(strings.TrimSuffix(string(index), "\n"), "\n")
	var vectors []Vector
	for row := range strings.SplitSeq(rows, "\n") {
		v, err := parseRow(row)
		if err != nil {
			return nil, fmt.Errorf("index row %q: %w", row, err)
		}
		vectors = append(vectors, v)
	}
	return vectors, nil
}

// parseRow parses a row of the index: file, kind, version, verdict, codes, reason, two columns on
// libcni, note.
func parseRow(row string) (Vector, error) {
	columns := strings.Split(row, "\t")
	if len(columns) != 9 {
		return Vector{}, fmt.Errorf("%d columns", len(columns))
	}
	codes, err := parseCodes(columns[4])
	if err != nil {
		return Vector{}, err
	}
	v := Vector{
		File: columns[0], Kind: Kind(columns[1]), Version: columns[2], Verdict: Verdict(columns[3]),
		Codes:  codes,
		Reason: columns[5], Note: columns[8],
	}
	if !v.Kind.known() {
		return Vector{}, fmt.Errorf("unknown kind %q", v.Kind)
	}
	if v.Verdict != Valid && v.Verdict != Invalid {
		return Vector{}, fmt.Errorf("unknown verdict %q", v.Verdict)
	}
	if v.Kind != KindNetdir {
		if v.Data, err = examples.ReadFile(directory + v.File); err != nil {
			return Vector{}, err
		}
	}
	return v, nil
}

// parseCodes parses codes separated by bars, such as "7|6".
func parseCodes(s string) ([]cni.Code, error) {
	if s == "" {
		return nil, nil
	}
	var codes []cni.Code
	for field := range strings.SplitSeq(s, "|") {
		n, err := strconv.ParseUint(field, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("code: %w", err)
		}
		codes = append(codes, cni.Code(n))
	}
	return codes, nil
}
