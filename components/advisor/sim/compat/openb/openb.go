// Package openb reproduces the evaluation of fragmentation gradient descent (ATC'23) on Alibaba's 2023 GPU trace: pods are
// shuffled, resampled to 130 % of the cluster's cards, and placed one after the other without ever leaving.
package openb

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/placement"
)

// Inflation is the demand for cards, over capacity, that arrives.
const Inflation = 1.3

// informerDraws is how many numbers the original's ten resource watchers draw from the shared generator (for their time-outs)
// between resampling the pods and renaming the nodes. Found by trying: with ten, every decision of the recorded run comes out.
const informerDraws = 10

// Pod is a line of the pod list.
type Pod struct {
	Name   string
	Demand cluster.Demand
}

// Arrival is what happened when a pod arrived.
type Arrival struct {
	Pod       string
	Scheduled bool
	Node      string
	Cards     []int
	// UsedMilli and ArrivedMilli are card thousandths in use and asked for so far.
	UsedMilli, ArrivedMilli int64
}

// Run is the outcome of one seed.
type Run struct {
	Arrivals   []Arrival
	TotalMilli int64
	nodes      []*cluster.Node
}

// Nodes gives the nodes as the run left them.
func (r *Run) Nodes() []*cluster.Node { return r.nodes }

// Simulate shuffles and inflates pods with the original's generator (Go's first math/rand source, which seeds as it always did)
// and places them. Nodes are visited in the order of the random prefixes that the original gives their names.
func Simulate(nodes []*cluster.Node, pods []Pod, policy string, seed int64) (*Run, error) {
	if len(nodes) == 0 || len(pods) == 0 {
		return nil, fmt.Errorf("an openb run needs nodes and pods; there are %d and %d", len(nodes), len(pods))
	}
	rng := rand.New(rand.NewSource(seed))
	rng.Int() // the original prints one number
	byName := slices.Clone(pods)
	slices.SortFunc(byName, func(a, b Pod) int { return strings.Compare(a.Name, b.Name) })
	queue := slices.Clone(byName)
	rng.Shuffle(len(queue), func(i, j int) { queue[i], queue[j] = queue[j], queue[i] })
	run := &Run{}
	for _, n := range nodes {
		run.TotalMilli += int64(len(n.CardLeft)) * cluster.WholeCard
	}
	queue = inflate(queue, byName, run.TotalMilli, rng)
	sorted := slices.Clone(nodes)
	slices.SortFunc(sorted, func(a, b *cluster.Node) int { return strings.Compare(a.Name, b.Name) })
	run.nodes = make([]*cluster.Node, len(sorted))
	for range informerDraws {
		rng.Float64()
	}
	for i, rank := range rng.Perm(len(sorted)) {
		run.nodes[rank] = sorted[i]
	}
	var ds []cluster.Demand
	for i := range byName {
		ds = append(ds, byName[i].Demand)
	}
	p, err := placement.ByName(policy, placement.TypicalDemands(ds), uint64(seed))
	if err != nil {
		return nil, err
	}
	run.place(queue, placement.NewChooser(p, run.nodes))
	return run, nil
}

// inflate appends pods drawn with replacement until the demand for cards would pass 130 % of capacity, with the original's
// test: the next pod's thousandths a card, not its total.
func inflate(queue, from []Pod, capacity int64, rng *rand.Rand) []Pod {
	asked := int64(0)
	for i := range queue {
		asked += queue[i].Demand.CardTotal()
	}
	target := Inflation * float64(capacity)
	if float64(asked) > target {
		for float64(asked) > target {
			i := rng.Intn(len(queue))
			asked -= queue[i].Demand.CardTotal()
			queue = slices.Delete(queue, i, i+1)
		}
		return queue
	}
	for i := 0; ; i++ {
		p := from[rng.Intn(len(from))]
		if float64(asked+int64(p.Demand.Milli)) > target {
			return queue
		}
		asked += p.Demand.CardTotal()
		p.Name = fmt.Sprintf("%s-tuned-%d", p.Name, i)
		queue = append(queue, p)
	}
}

func (r *Run) place(queue []Pod, c *placement.Chooser) {
	var used, arrived int64
	for i := range queue {
		d := &queue[i].Demand
		arrived += d.CardTotal()
		a := Arrival{Pod: queue[i].Name, ArrivedMilli: arrived}
		if at, ok := c.Best(d); ok {
			n := r.nodes[at]
			a.Cards = c.Policy().Cards(n, d, nil)
			n.Take(d, a.Cards)
			used += d.CardTotal()
			a.Scheduled, a.Node = true, n.Name
		}
		a.UsedMilli = used
		r.Arrivals = append(r.Arrivals, a)
	}
}

// Replay places pods in a given order, without drawing anything; it is how a recorded sequence is checked.
func Replay(nodes []*cluster.Node, queue []Pod, typical []placement.Typical, policy string, seed int64) (*Run, error) {
	p, err := placement.ByName(policy, typical, uint64(seed))
	if err != nil {
		return nil, err
	}
	r := &Run{nodes: nodes}
	for _, n := range nodes {
		r.TotalMilli += int64(len(n.CardLeft)) * cluster.WholeCard
	}
	r.place(queue, placement.NewChooser(p, nodes))
	return r, nil
}

// AllocationAt is the mean allocation ratio, in percent, over the arrivals at which the demand so far rounds to so many percent
// of capacity; each ratio is rounded to two decimals first, as the published table does.
func (r *Run) AllocationAt(percent float64) float64 {
	var sum float64
	n := 0
	total := float64(r.TotalMilli) / 1000
	for i := range r.Arrivals {
		a := &r.Arrivals[i]
		if math.RoundToEven(float64(a.ArrivedMilli)/total/10) == percent {
			sum += math.RoundToEven(float64(a.UsedMilli)/total/10*100) / 100
			n++
		}
	}
	if n == 0 {
		return math.NaN()
	}
	return sum / float64(n)
}
