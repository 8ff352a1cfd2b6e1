package anchor

import (
	"os"
	"path/filepath"
	"testing"
)

// shared finds the folder of traces and golden values beside the repository, or skips.
func shared(t testing.TB) string {
	dir, err := filepath.Abs("../../../../../shared")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "traces")); err != nil {
		t.Skipf("no traces at %s", dir)
	}
	return dir
}

// Every published cell comes out to its printed digits.
func TestAnchors(t *testing.T) {
	dir := shared(t)
	for _, g := range Groups() {
		t.Run(g.Name, func(t *testing.T) {
			if err := g.Run(dir, func(c Cell) {
				if c.OK {
					t.Log(c)
				} else {
					t.Error(c)
				}
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
}
