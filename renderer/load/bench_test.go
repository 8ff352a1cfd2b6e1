package load

import "testing"

// BenchmarkLoad is what `berth vet` costs on the shipped sites.
func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := Load("../../clusters"); err != nil {
			b.Fatal(err)
		}
	}
}
func BenchmarkRead(b *testing.B) {
	for b.Loop() {
		if _, err := read("../../clusters"); err != nil {
			b.Fatal(err)
		}
	}
}
