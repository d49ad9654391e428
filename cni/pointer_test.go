package cni_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tenon-cni/tenon/cni"
)

// Errors identify a value, so that readers of files can report its position.
func TestPointer(t *testing.T) {
	t.Parallel()
	single := func(b []byte) (*cni.List, error) { return cni.ParseSingle(b) }
	for in, row := range map[string]struct {
		parse func([]byte) (*cni.List, error)
		want  string
	}{
		`[]`:              {cni.ParseList, ""},
		`{"name":`:        {cni.ParseList, ""},
		`{}`:              {cni.ParseList, "/name"},
		`{"name":5}`:      {cni.ParseList, "/name"},
		`{"name":"../x"}`: {cni.ParseList, "/name"},
		`{"name":"n","cniVersion":1,"plugins":[]}`:                                                {cni.ParseList, "/cniVersion"},
		`{"name":"n","cniVersion":null}`:                                                          {cni.ParseList, "/cniVersion"},
		`{"name":"n","cniVersion":"9.9.9"}`:                                                       {cni.ParseList, "/cniVersion"},
		`{"name":"n","cniVersions":["1.0.0","x"]}`:                                                {cni.ParseList, "/cniVersions/1"},
		`{"name":"n","cniVersions":["1.0.0"],"cniVersion":"x"}`:                                   {cni.ParseList, "/cniVersion"},
		`{"name":"n","cniVersions":["9.9.9"]}`:                                                    {cni.ParseList, "/cniVersions"},
		`{"name":"n","cniVersions":null}`:                                                         {cni.ParseList, "/cniVersions"},
		`{"name":"n","cniVersions":[1]}`:                                                          {cni.ParseList, "/cniVersions"},
		`{"name":"n","disableGC":1}`:                                                              {cni.ParseList, "/disableGC"},
		`{"name":"n","plugins":{}}`:                                                               {cni.ParseList, "/plugins"},
		`{"name":"n","plugins":null}`:                                                             {cni.ParseList, "/plugins"},
		`{"name":"n","plugins":[]}`:                                                               {cni.ParseList, "/plugins"},
		`{"name":"n","plugins":[{"type":"p"},5]}`:                                                 {cni.ParseList, "/plugins/1"},
		`{"name":"n","plugins":[{"type":"p"},{}]}`:                                                {cni.ParseList, "/plugins/1/type"},
		`{"name":"n","plugins":[{"type":"p","ipam":{"type":"a/b"}}]}`:                             {cni.ParseList, "/plugins/0/ipam/type"},
		`{"name":"n","plugins":[{"type":"p","ipam":[]}]}`:                                         {cni.ParseList, "/plugins/0/ipam"},
		`{"name":"n","plugins":[{"type":"p","dns":{"search":[1]}}]}`:                              {cni.ParseList, "/plugins/0/dns/search"},
		`{"name":"n","plugins":[{"type":"p","dns":5}]}`:                                           {cni.ParseList, "/plugins/0/dns"},
		`{"name":"n","plugins":[{"type":"p","capabilities":[]}]}`:                                 {cni.ParseList, "/plugins/0/capabilities"},
		`{"name":"n","plugins":[{"type":"p","capabilities":{"a":true,"b/c~":"yes","d":"last"}}]}`: {cni.ParseList, "/plugins/0/capabilities/b~1c~0"},
		`{"name":"n","type":5}`:                                                                   {single, "/type"},
		`{"name":"n","type":"p","ipam":"x"}`:                                                      {single, "/ipam"},
	} {
		_, err := row.parse([]byte(in))
		if got := cni.Pointer(fmt.Errorf("file: %w", err)); got != row.want || err == nil {
			t.Errorf("%s: got %q, want %q (%v)", in, got, row.want, err)
		}
	}
	if got := cni.Pointer(errors.New("other")); got != "" {
		t.Errorf("other error: %q", got)
	}
}
