// Package conformance holds test vectors for everything that CNI writes down: configurations, requests, results, error
// objects, version replies, stored attachments, and tables of values, each with the verdict that the specification asks
// for. They are data of any implementation, in whatever language: the files are in the folder examples, listed in its
// INDEX.tsv.
//
// [Rows] is the catalogue of requirements, each with an identifier that never changes: CFG configurations, DSC and DRP
// where they are found, VER versions, ENV variables, EXE processes, LIF the life of an attachment, REQ requests, RT-VERB
// and PL-VERB what a runtime and a plugin owe on a verb, CACHE records, DLG delegation, IPAM, RES results, CNV conversion,
// ERR errors, CONV conventions, DNS, TRC tracing, SEC hardening, TOOL command lines, DIS contradictions, R regressions.
//
// The judge that runs executables against them is not part of it yet.
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

// Kind says what a vector is an example of.
type Kind string

// The kinds of vectors, beside the requests: see [Kind.Verb].
const (
	KindConflist Kind = "conflist" // network configuration list
	KindConf     Kind = "conf"     // configuration of a single plugin
	KindDropin   Kind = "dropin"   // configuration of one plugin in a drop-in folder
	KindNetdir   Kind = "netdir"   // configuration folder: see [Netdirs]
	KindResult   Kind = "result"   // what a plugin prints on ADD
	KindError    Kind = "error"    // what a failing plugin prints
	KindVersion  Kind = "version"  // what a plugin prints on VERSION
	KindCache    Kind = "cache"    // stored attachment, as the reference library keeps it
	KindTable    Kind = "vectors"  // table of values, with a function of its own in this package
)

const requestPrefix = "request-"

// Verb returns the verb of a vector that is the standard input of a plugin; ok is false for other kinds.
func (k Kind) Verb() (verb cni.Command, ok bool) {
	name, ok := strings.CutPrefix(string(k), requestPrefix)
	return cni.Command(name), ok
}

func (k Kind) known() bool {
	if verb, ok := k.Verb(); ok {
		return verb.Valid()
	}
	return slices.Contains([]Kind{
		KindConflist, KindConf, KindDropin, KindNetdir, KindResult, KindError, KindVersion, KindCache, KindTable,
	}, k)
}

// Verdict is what an implementation has to think of a vector.
type Verdict string

// The verdicts.
const (
	Valid   Verdict = "valid"
	Invalid Verdict = "invalid"
)

// Vector is one example.
type Vector struct {
	File    string     // name below the folder examples; that of a folder ends in a slash
	Kind    Kind       // what it is an example of
	Version string     // the versions it holds for: "1.1.0", "0.4.0+", "any"; for people
	Verdict Verdict    // what to think of it
	Codes   []cni.Code // codes an invalid one may be refused with, the preferred first; none if no code applies
	Reason  string     // why
	Note    string     // what else there is to know; may be empty
	Data    []byte     // content; nil for a folder
}

// Vectors returns all vectors in the order of the index. An error means that the embedded files are inconsistent.
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

// parseRow reads a row of the index: file, kind, version, verdict, codes, reason, two columns on the reference library,
// note.
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
		File: columns[0], Kind: Kind(columns[1]), Version: columns[2], Verdict: Verdict(columns[3]), Codes: codes,
		Reason: columns[5], Note: columns[8],
	}
	if !v.Kind.known() {
		return Vector{}, fmt.Errorf("kind %q is unknown", v.Kind)
	}
	if v.Verdict != Valid && v.Verdict != Invalid {
		return Vector{}, fmt.Errorf("verdict %q is unknown", v.Verdict)
	}
	if v.Kind != KindNetdir {
		if v.Data, err = examples.ReadFile(directory + v.File); err != nil {
			return Vector{}, err
		}
	}
	return v, nil
}

// parseCodes reads codes separated by bars, "7|6".
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
