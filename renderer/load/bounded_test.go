package load

import (
	"testing"
	"time"

	"github.com/berth-hpc/berth/renderer/site"
)

func TestCUEThatPanicsOrHangs(t *testing.T) {
	_, err := bounded("clusters", time.Minute, func() ([]*site.Site, error) { panic("unreachable\nstack") })
	if want := "clusters: CUE failed while it evaluated the sites (unreachable); `cue vet -c clusters` may say more"; err == nil || err.Error() != want {
		t.Errorf("a panic gives %v", err)
	}
	hang := make(chan struct{})
	defer close(hang)
	_, err = bounded("clusters", time.Millisecond, func() ([]*site.Site, error) { <-hang; return nil, nil })
	if want := "clusters: CUE did not finish evaluating the sites within 1ms; is a field defined by itself?"; err == nil || err.Error() != want {
		t.Errorf("an evaluation without end gives %v", err)
	}
}

// BenchmarkLoad is what berth vet costs on the shipped sites.
func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := Load("../../clusters"); err != nil {
			b.Fatal(err)
		}
	}
}
