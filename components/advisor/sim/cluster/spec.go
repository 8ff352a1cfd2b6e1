package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Duration is a length of time written as "90s", "5m" or "1h30m" in a spec.
type Duration workload.Time

// UnmarshalJSON reads a Go duration string.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("a length of time is a string like \"90s\" or \"1h30m\"")
	}
	t, err := time.ParseDuration(s)
	if err != nil || t < 0 {
		return fmt.Errorf("%q is not a length of time like \"90s\" or \"1h30m\"", s)
	}
	*d = Duration(t.Microseconds())
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal((time.Duration(d) * time.Microsecond).String())
}

// Memory is an amount of memory in MiB, written as "64Gi" or "512Mi".
type Memory int64

// UnmarshalJSON reads a quantity with the suffix Mi, Gi or Ti.
func (m *Memory) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("an amount of memory is a string like \"64Gi\"")
	}
	for suffix, mult := range map[string]float64{"Mi": 1, "Gi": 1024, "Ti": 1 << 20} {
		if v, err := strconv.ParseFloat(strings.TrimSuffix(s, suffix), 64); err == nil && strings.HasSuffix(s, suffix) && v >= 0 && v < 1e9 {
			*m = Memory(v * mult)
			return nil
		}
	}
	return fmt.Errorf("%q is not an amount of memory like \"64Gi\" or \"512Mi\"", s)
}

// MarshalJSON writes MiB.
func (m Memory) MarshalJSON() ([]byte, error) { return json.Marshal(fmt.Sprintf("%dMi", m)) }

// Pool is a number of equal nodes.
type Pool struct {
	Name  string `json:"name"`
	Nodes int    `json:"nodes"`
	// CPUs and Memory are of one node; no memory is no bound.
	CPUs      int    `json:"cpus"`
	Memory    Memory `json:"memory,omitempty"`
	GPUs      int    `json:"gpus,omitempty"`
	GPUType   string `json:"gpuType,omitempty"`
	GPUMemory Memory `json:"gpuMemory,omitempty"`
	// Speed is the cards' (or, without cards, the processors') speed relative to 1, where no speed matrix says better.
	Speed float64 `json:"speed,omitempty"`
	// Elastic pools have at least Min nodes up; the others start when a job is placed on them, which takes Startup, and stop after
	// Idle without work.
	Elastic bool     `json:"elastic,omitempty"`
	Min     int      `json:"min,omitempty"`
	Startup Duration `json:"startup,omitempty"`
	Idle    Duration `json:"idle,omitempty"`
	// Price of an hour that a node is up or starting, in any currency.
	Price float64 `json:"price,omitempty"`
	// MTBF is the mean time between failures of one node (0: never fails), MTTR the mean time to repair.
	MTBF Duration `json:"mtbf,omitempty"`
	MTTR Duration `json:"mttr,omitempty"`
}

// Window is planned maintenance: no job may be running on the pool's nodes (all nodes if Pool is empty) between Start and End,
// counted from the first submission. With Drain it is a drain instead, which nobody planned for: the pool's first Nodes nodes (0: all)
// start no job in that time, and those that run on them go on.
type Window struct {
	Pool  string   `json:"pool,omitempty"`
	Start Duration `json:"start"`
	End   Duration `json:"end"`
	Drain bool     `json:"drain,omitempty"`
	Nodes int      `json:"nodes,omitempty"`
}

// Spec describes a cluster.
type Spec struct {
	Name        string   `json:"name"`
	Pools       []Pool   `json:"pools"`
	Maintenance []Window `json:"maintenance,omitempty"`
	// Spread is the relative speed of a gang that spans more nodes than it has to; 0 keeps gangs together and lets them wait.
	Spread float64 `json:"spread,omitempty"`
	// Checkpoint is how often jobs save what they have done, which bounds what a failed node loses; 0 loses all of it.
	Checkpoint Duration `json:"checkpoint,omitempty"`
	// Restart is what a job pays that goes on after a preemption or a lost node; not stated, it is what Helios (SC'21) measured: 7, 30
	// or 60 s on 1, up to 8, or more cards.
	Restart *Duration `json:"restart,omitempty"`
	// Speeds is the speed matrix.
	Speeds []Speed `json:"speeds,omitempty"`
}

// Speed is a measured rate of a model on a type of card at a batch size, in any unit that is the same for all rows of a model.
type Speed struct {
	Model string  `json:"model"`
	Type  string  `json:"type"`
	Batch int32   `json:"batch,omitempty"`
	Rate  float64 `json:"rate"`
}

// LoadSpec reads a spec in JSON and checks it.
func LoadSpec(path string) (*Spec, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the cluster: %w", err)
	}
	s := &Spec{}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err = d.Decode(s)
	if err == nil && len(bytes.TrimSpace(b[d.InputOffset():])) > 0 {
		err = fmt.Errorf("there is more behind the cluster's closing brace; a file describes one cluster")
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("the description ends before its closing brace; complete it")
	}
	if err != nil {
		line := 1 + bytes.Count(b[:min(int(d.InputOffset()), len(b))], []byte("\n"))
		return nil, fmt.Errorf("%s:%d: %w", path, line, err)
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// leastMTBF is the shortest time between failures in which jobs still get on.
const leastMTBF = 10 * workload.Minute

// Validate says what could not work.
func (s *Spec) Validate() error {
	if len(s.Pools) == 0 {
		return fmt.Errorf("pools: a cluster needs at least one")
	}
	names := map[string]bool{}
	for i := range s.Pools {
		p := &s.Pools[i]
		where := fmt.Sprintf("pools[%d] (%s)", i, p.Name)
		switch {
		case p.Name == "" || names[p.Name]:
			return fmt.Errorf("%s: every pool needs a name of its own", where)
		case p.Nodes < 1 || p.Nodes > 1_000_000:
			return fmt.Errorf("%s: nodes is %d; use 1 to 1000000", where, p.Nodes)
		case p.CPUs < 1 || p.CPUs > 1<<20 || p.GPUs < 0 || p.GPUs > 64:
			return fmt.Errorf("%s: a node has 1 to 1048576 CPUs and 0 to 64 GPUs; got %d and %d", where, p.CPUs, p.GPUs)
		case p.GPUMemory > 1<<24:
			return fmt.Errorf("%s: gpuMemory is %d MiB; a card has at most 16Ti", where, p.GPUMemory)
		case !(p.Price >= 0 && p.Price <= 1e9):
			return fmt.Errorf("%s: price is %g; an hour of a node costs 0 to 1000000000", where, p.Price)
		case p.GPUs > 0 && p.GPUType == "":
			return fmt.Errorf("%s: gpuType is missing", where)
		case p.Speed < 0 || p.Speed > 1000:
			return fmt.Errorf("%s: speed is %g; it is relative to 1", where, p.Speed)
		case p.Min < 0 || p.Min > p.Nodes:
			return fmt.Errorf("%s: min is %d of %d nodes", where, p.Min, p.Nodes)
		case p.MTBF > 0 && p.MTTR == 0:
			return fmt.Errorf("%s: mtbf needs an mttr", where)
		case p.MTBF > 0 && (p.MTBF < Duration(leastMTBF) || p.MTTR < Duration(workload.Second)):
			return fmt.Errorf("%s: nodes that fail every %s and are repaired in %s finish nothing; use an mtbf of at least 10m and an mttr of at least 1s", where,
				time.Duration(p.MTBF)*time.Microsecond, time.Duration(p.MTTR)*time.Microsecond)
		}
		names[p.Name] = true
	}
	for i, w := range s.Maintenance {
		if w.Start >= w.End || w.Pool != "" && !names[w.Pool] {
			return fmt.Errorf("maintenance[%d]: the window must end after it starts and name a pool that exists", i)
		}
		if w.Nodes < 0 || w.Nodes > 0 && (!w.Drain || w.Pool == "") {
			return fmt.Errorf("maintenance[%d]: nodes is how many of a pool's nodes are drained; it goes with drain and a pool", i)
		}
	}
	if s.Spread < 0 || s.Spread > 1 {
		return fmt.Errorf("spread is %g; use 0 (gangs stay together) to 1 (no penalty)", s.Spread)
	}
	for i, v := range s.Speeds {
		if v.Model == "" || v.Type == "" || !(v.Rate > 0) || v.Batch < 0 {
			return fmt.Errorf("speeds[%d]: a model, a type, a rate above zero and no negative batch are needed", i)
		}
	}
	return nil
}

// Add enlarges a pool by so many nodes.
func (s *Spec) Add(pool string, nodes int) error {
	var names []string
	for i := range s.Pools {
		if s.Pools[i].Name == pool {
			s.Pools[i].Nodes += nodes
			return s.Validate()
		}
		names = append(names, s.Pools[i].Name)
	}
	return fmt.Errorf("no pool is called %q; there are %s", pool, strings.Join(names, ", "))
}

// Homogeneous is a spec of equal nodes.
func Homogeneous(nodes, cpus, gpus int, gpuType string) *Spec {
	return &Spec{Name: "homogeneous", Pools: []Pool{{Name: "all", Nodes: nodes, CPUs: cpus, GPUs: gpus, GPUType: gpuType}}}
}

// Cards is the number of cards, or of processors where there is none.
func (s *Spec) Cards() (n int, processors bool) {
	cpus := 0
	for _, p := range s.Pools {
		n += p.Nodes * p.GPUs
		cpus += p.Nodes * p.CPUs
	}
	if n == 0 {
		return cpus, true
	}
	return n, false
}

// Build makes the nodes, in order of pools.
func (s *Spec) Build() []*Node {
	const unbounded = 1 << 50
	var nodes []*Node
	for i := range s.Pools {
		p := &s.Pools[i]
		mem := int64(p.Memory)
		if mem == 0 {
			mem = unbounded
		}
		for k := range p.Nodes {
			n := NewNode(fmt.Sprintf("%s-%d", p.Name, k), p.GPUType, int64(p.CPUs)*1000, mem, p.GPUs, int32(p.GPUMemory))
			n.Pool = p.Name
			nodes = append(nodes, n)
		}
	}
	return nodes
}
