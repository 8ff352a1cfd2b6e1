package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strings"

	simpolicy "github.com/berth-hpc/berth/components/advisor/sim/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Schema is the version of a checkpoint file that this program reads.
const Schema = 1

// Checkpoint is a policy as a file holds it, with what it was made for and how it was calibrated.
type Checkpoint struct {
	Schema int `json:"schema"`
	// Kind is which policy the parameters are of: "order" or "fixed".
	Kind       string          `json:"kind"`
	Parameters json.RawMessage `json:"parameters"`
	// Topology is the site's that it was made on; "": it does not depend on one.
	Topology string `json:"topology,omitempty"`
	// ValueQuantiles of the policy's values on the jobs that it was evaluated with, in steps of equal probability from 0
	// to 1. The first of them is where the advisor abstains if the site does not say where.
	ValueQuantiles []float64 `json:"value_quantiles,omitempty"`
	// Range are the least and the largest value of a feature seen in training, by the feature's name.
	Range map[string][2]float64 `json:"range,omitempty"`
}

// Loaded is a checkpoint that can advise.
type Loaded struct {
	Policy     Policy
	Digest     string // "sha256:…" of the file
	Checkpoint Checkpoint
	ranges     []featureRange
}

type featureRange struct {
	feature  int
	low, top float64
}

// kinds make a policy of a checkpoint's parameters.
var kinds = map[string]func(json.RawMessage) (Policy, error){
	"order": func(raw json.RawMessage) (Policy, error) {
		var p struct {
			Order string `json:"order"`
		}
		if err := strict(raw, &p); err != nil {
			return nil, err
		}
		order, err := simpolicy.OrderByName(p.Order)
		if err != nil {
			return nil, err
		}
		return Order{order}, nil
	},
	"fixed": func(raw json.RawMessage) (Policy, error) {
		var p struct {
			Score float64 `json:"score"`
			Value float64 `json:"value"`
		}
		if err := strict(raw, &p); err != nil {
			return nil, err
		}
		if p.Score < 0 || p.Score > 1 {
			return nil, fmt.Errorf("score %g is not between 0 and 1", p.Score)
		}
		return Fixed{Advice{Score: p.Score, Value: p.Value}}, nil
	},
}

// Digest names a checkpoint file's content.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Open makes a policy of a checkpoint file.
func Open(data []byte) (*Loaded, error) {
	var c Checkpoint
	if err := strict(data, &c); err != nil {
		return nil, fmt.Errorf("the checkpoint can't be read: %w", err)
	}
	if c.Schema != Schema {
		return nil, fmt.Errorf("the checkpoint is of schema %d, this program reads %d", c.Schema, Schema)
	}
	open, known := kinds[c.Kind]
	if !known {
		var names []string
		for name := range kinds {
			names = append(names, name)
		}
		sort.Strings(names)
		return nil, fmt.Errorf("a checkpoint of kind %q is not known; known: %s", c.Kind, strings.Join(names, ", "))
	}
	policy, err := open(c.Parameters)
	if err != nil {
		return nil, fmt.Errorf("checkpoint of kind %s: %w", c.Kind, err)
	}
	l := &Loaded{Policy: policy, Digest: Digest(data), Checkpoint: c}
	for name, r := range c.Range {
		i := featureNamed(name)
		if i < 0 {
			return nil, fmt.Errorf("the checkpoint gives a range of %q, which is no feature; features: %s", name, strings.Join(featureNames[:], ", "))
		}
		if !(r[0] <= r[1]) {
			return nil, fmt.Errorf("the checkpoint's range of %s is %g to %g", name, r[0], r[1])
		}
		l.ranges = append(l.ranges, featureRange{i, r[0], r[1]})
	}
	return l, nil
}

// Builtin is the policy of a site that names no checkpoint: smallest area first.
func Builtin() *Loaded {
	return &Loaded{Policy: Order{simpolicy.SAF}, Digest: "builtin:saf", Checkpoint: Checkpoint{Schema: Schema, Kind: "order"}}
}

// AbstainBelow is the value under which the checkpoint's own calibration says to abstain; −Inf where it has none.
func (l *Loaded) AbstainBelow() float64 {
	if len(l.Checkpoint.ValueQuantiles) == 0 {
		return math.Inf(-1)
	}
	return l.Checkpoint.ValueQuantiles[0]
}

// InRange says whether a job, with so many waiting, is like those that the checkpoint was trained on.
func (l *Loaded) InRange(r *workload.Request, waiting int) bool {
	for _, f := range l.ranges {
		if x := feature(f.feature, r, waiting); x < f.low || x > f.top {
			return false
		}
	}
	return true
}

var featureNames = [...]string{"limit_seconds", "cpus", "gpus", "gpu_milli", "mem_mib", "waiting"}

func featureNamed(name string) int {
	for i, n := range featureNames {
		if n == name {
			return i
		}
	}
	return -1
}

func feature(i int, r *workload.Request, waiting int) float64 {
	switch i {
	case 0:
		return workload.InSeconds(r.Limit)
	case 1:
		return float64(r.CPUMilli) / 1000
	case 2:
		return float64(r.GPUs)
	case 3:
		return float64(r.GPUMilli)
	case 4:
		return float64(r.MemMiB)
	default:
		return float64(waiting)
	}
}

// strict reads one JSON value without unknown fields.
func strict(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if decoder.More() {
		return fmt.Errorf("there is more after the value")
	}
	return nil
}
