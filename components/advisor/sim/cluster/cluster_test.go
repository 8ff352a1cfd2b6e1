package cluster

import (
	"math"
	"testing"
)

// The matrix lets ranks reverse: a model may be slower on the card that is faster for others, and a batch that does not fit is cut.
func TestMatrix(t *testing.T) {
	m := NewMatrix(&Spec{Pools: []Pool{{Name: "v", GPUType: "v100", Speed: 1.7}, {Name: "p", GPUType: "p100", Speed: 1}},
		Speeds: []Speed{{"resnet", "v100", 64, 4.39}, {"resnet", "p100", 64, 2.62}, {"recommendation", "v100", 0, 7.47}, {"recommendation", "p100", 0, 16.6},
			{"yolo", "v100", 8, 10}, {"yolo", "v100", 16, 18}, {"yolo", "p100", 8, 9}}})
	if v, p := m.Relative("resnet", "v100", 64), m.Relative("resnet", "p100", 64); math.Abs(v/p-4.39/2.62) > 1e-12 {
		t.Errorf("resnet: %g and %g", v, p)
	}
	if v, p := m.Relative("recommendation", "v100", 0), m.Relative("recommendation", "p100", 0); v >= p {
		t.Errorf("recommendation is as fast on v100 (%g) as on p100 (%g)", v, p)
	}
	if v, p := m.Relative("yolo", "v100", 16), m.Relative("yolo", "p100", 16); math.Abs(v/p-2) > 1e-12 {
		t.Errorf("yolo at batch 16: %g and %g; the p100 has memory for 8 only", v, p)
	}
	if v := m.Relative("unknown", "v100", 0); v != 1.7 {
		t.Errorf("a model without measurements runs at %g, want the site's 1.7", v)
	}
}

// Draws follow the measured table: the mean over many pairs is the table's, and a pair is the same in either order and again.
func TestInterferenceFollowsTheTable(t *testing.T) {
	in := NewInterference(7, false)
	for _, c := range []struct {
		util int32
		want float64
	}{{25, 1.02}, {45, .970}, {65, .868}, {95, .675}} {
		sum := 0.0
		const pairs = 4000
		for i := range int64(pairs) {
			a, b := Tenant{2 * i, c.util, 1000}, Tenant{2*i + 1, c.util, 1000}
			x, y := in.Factor(a, []Tenant{b}), in.Factor(b, []Tenant{a})
			if x != in.Factor(a, []Tenant{b}) {
				t.Fatal("a pair's draw changes")
			}
			sum += (x + y) / 2
		}
		if mean := sum / pairs; math.Abs(mean-c.want) > .02 {
			t.Errorf("two jobs of %d %%: mean speed %.3f, measured %.3f", c.util, mean, c.want)
		}
	}
	if in.Factor(Tenant{1, 50, 1000}, nil) != 1 {
		t.Error("a job alone is slowed down")
	}
}

func TestSpecErrors(t *testing.T) {
	for want, s := range map[string]*Spec{
		"pools: a cluster needs at least one":        {},
		"pools[0] (a): nodes is 0; use 1 to 1000000": {Pools: []Pool{{Name: "a", CPUs: 1}}},
		"pools[0] (a): gpuType is missing":           {Pools: []Pool{{Name: "a", Nodes: 1, CPUs: 1, GPUs: 1}}},
		"pools[0] (a): nodes that fail every 1µs and are repaired in 1µs finish nothing; use an mtbf of at least 10m and an mttr of at least 1s": {
			Pools: []Pool{{Name: "a", Nodes: 1, CPUs: 1, MTBF: 1, MTTR: 1}}},
		"pools[0] (a): price is -4; an hour of a node costs 0 to 1000000000": {Pools: []Pool{{Name: "a", Nodes: 1, CPUs: 1, Price: -4}}},
		"pools[0] (a): a node has 1 to 1048576 CPUs and 0 to 64 GPUs; got 1099511627776 and 0": {
			Pools: []Pool{{Name: "a", Nodes: 1, CPUs: 1 << 40}}},
		"maintenance[0]: nodes is how many of a pool's nodes are drained; it goes with drain and a pool": {
			Pools: []Pool{{Name: "a", Nodes: 2, CPUs: 1}}, Maintenance: []Window{{End: 5, Nodes: 1, Drain: true}}},
		"pools[0] (a): mtbf needs an mttr": {Pools: []Pool{{Name: "a", Nodes: 1, CPUs: 1, MTBF: 5}}},
	} {
		if err := s.Validate(); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
