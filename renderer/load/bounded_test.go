package load

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berth-hpc/berth/renderer/site"
)

func TestCUEThatPanicsOrHangs(t *testing.T) {
	_, err := bounded("clusters", func() ([]*site.Site, error) { panic("unreachable\nstack") })
	if want := "clusters: CUE failed while it evaluated the sites (unreachable); `cue vet -c clusters` may say more"; err == nil || err.Error() != want {
		t.Errorf("a panic gives %v", err)
	}
	hang := make(chan struct{})
	defer close(hang)
	t.Setenv("BERTH_CUE_TIMEOUT", "1ms")
	_, err = bounded("clusters", func() ([]*site.Site, error) { <-hang; return nil, nil })
	if want := "clusters: CUE did not finish evaluating the sites within 1ms; look for "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("an evaluation without end gives %v", err)
	}
	for _, wrong := range []string{"5", "soon", "-1m", "0s"} {
		t.Setenv("BERTH_CUE_TIMEOUT", wrong)
		_, err = bounded("clusters", func() ([]*site.Site, error) { return nil, nil })
		if want := fmt.Sprintf("BERTH_CUE_TIMEOUT is %q, which is no time; write one such as 90s", wrong); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("a limit of %s gives %v", wrong, err)
		}
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
