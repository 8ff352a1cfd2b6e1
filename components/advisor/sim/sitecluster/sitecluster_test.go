package sitecluster

import (
	"testing"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// The lab's site becomes a cluster whose fastest cards come first, with the site's own weights, times and shares.
func TestLab(t *testing.T) {
	spec, s, err := Load("../../../../clusters/lab.cue")
	if err != nil {
		t.Fatal(err)
	}
	speed := 1e9
	for _, p := range spec.Pools {
		own := p.Speed
		if p.GPUs == 0 {
			own = -1
		}
		if own > speed || p.Nodes != s.Pools[p.Name].Max || p.Min != s.Pools[p.Name].Min || p.GPUType != s.Pools[p.Name].Model {
			t.Errorf("pool %+v, of the site's %+v", p, s.Pools[p.Name])
		}
		speed = own
	}
	m, err := Multifactor(s)
	if err != nil {
		t.Fatal(err)
	}
	w := s.Slurm.Priority.Weights
	if m.Weights.FairShare != float64(w.FairShare) || m.Weights.QOS != float64(w.QOS) || m.Weights.Partition != float64(w.Partition) || m.MaxAge != 7*workload.Day ||
		m.Classic == s.Slurm.Priority.FairTree || m.FavorSmall == s.Slurm.Priority.FavorWide {
		t.Errorf("%+v from %+v", m, s.Slurm.Priority)
	}
	for name, u := range s.Users {
		if a := m.Tree.Find(u.Account, name); a.Shares != float64(max(u.Shares, 1)) {
			t.Errorf("user %s has %g shares, the site says %d", name, a.Shares, u.Shares)
		}
	}
	if _, _, err := Load("../../../../clusters/nobody.cue"); err == nil {
		t.Error("a site that does not exist is read")
	}
}

func TestDurations(t *testing.T) {
	for in, want := range map[string]int64{"90s": 90, "30": 1800, "5:30": 330, "1:00:00": 3600, "7-00:00:00": 604800, "1-12": 129600, "1-2:30": 95400} {
		if got, err := duration(in); err != nil || got != want*workload.Second {
			t.Errorf("%s is %d µs, want %d s: %v", in, got, want, err)
		}
	}
	for _, in := range []string{"", "soon", "-1:00", "1:x"} {
		if _, err := duration(in); err == nil {
			t.Errorf("%q is a length of time", in)
		}
	}
}
