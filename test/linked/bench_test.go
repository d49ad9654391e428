package linked

import "testing"

// What ADD of a chain costs in one process; DEL is not counted. test/bench compares it with its system calls.
func BenchmarkAdd(b *testing.B) {
	h := newHost(b)
	h.used()
	q := h.request("c")
	b.ReportAllocs()
	for b.Loop() {
		_, err := h.add(b.Context(), q)
		b.StopTimer()
		must(b, err)
		must(b, h.del(b.Context(), q))
		b.StartTimer()
	}
}
