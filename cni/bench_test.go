package cni_test

import (
	"encoding/json"
	"testing"

	"github.com/tenon-cni/tenon/cni"
)

func BenchmarkDecodeResult(b *testing.B) {
	for _, v := range []cni.Version{cni.V020, cni.V040, cni.V110} {
		b.Run(v.String(), func(b *testing.B) {
			full := conversions["full"]
			encoded, err := full.Encode(v)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := cni.DecodeResult(encoded, v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, v := range []cni.Version{cni.V020, cni.V040, cni.V110} {
		b.Run(v.String(), func(b *testing.B) {
			full := conversions["full"]
			b.ReportAllocs()
			for b.Loop() {
				if _, err := full.Encode(v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParseList(b *testing.B) {
	file := vector(b, "conflist-1.1.0-valid-chain-of-three.json")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := cni.ParseList(file); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	l := parseList(b, string(vector(b, "conflist-1.1.0-valid-chain-of-three.json")))
	full := conversions["full"]
	data := cni.RequestData{
		PrevResult:   &full,
		Capabilities: map[string]json.RawMessage{"portMappings": json.RawMessage(`[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]`)},
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Request(cni.Add, len(l.Plugins)-1, data); err != nil {
			b.Fatal(err)
		}
	}
}
