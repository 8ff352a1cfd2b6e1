package rl

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"slices"

	"github.com/berth-hpc/berth/components/advisor/sim/generate"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Splits of a trace.
const (
	Train      = "train"
	Validation = "validation"
	Test       = "test"
)

// Data says what a policy was trained on, or is to be evaluated on. Synthetic data have no digest: they are drawn anew.
type Data struct {
	// Source names it: a trace's file name, or the generator.
	Source string `json:"source"`
	// Digest is the sha256 of the jobs, before splitting.
	Digest string `json:"digest,omitempty"`
	Split  string `json:"split,omitempty"`
	// From and To bound the submissions used, in microseconds.
	From workload.Time `json:"from,omitempty"`
	To   workload.Time `json:"to,omitempty"`
	// Seeds of a generator: episode numbers from First up to, not including, Last.
	First uint64 `json:"first,omitempty"`
	Last  uint64 `json:"last,omitempty"`
}

// Overlap says how two sets of data share jobs, or nothing.
func (d Data) Overlap(o Data) error {
	if d.Digest != o.Digest {
		return nil
	}
	if d.Digest == "" {
		if d.Source == o.Source && d.First < o.Last && o.First < d.Last {
			return fmt.Errorf("both use episodes %d to %d of %s; evaluate on others", max(d.First, o.First), min(d.Last, o.Last)-1, d.Source)
		}
		return nil
	}
	if d.From < o.To && o.From < d.To {
		return fmt.Errorf("both use jobs of %s submitted between %d and %d s; evaluate on another split", d.Source, max(d.From, o.From)/workload.Second, min(d.To, o.To)/workload.Second)
	}
	return nil
}

// Episodes give the jobs of an episode, the same for the same number.
type Episodes func(episode uint64) ([]workload.Job, error)

// Curriculum makes episodes longer and loads heavier over the first Episodes: from the first numbers to the second, lengths
// geometrically. Half of the episodes are of lighter loads already seen.
type Curriculum struct {
	JobsFrom int     `json:"jobsFrom"`
	JobsTo   int     `json:"jobsTo"`
	LoadFrom float64 `json:"loadFrom"`
	LoadTo   float64 `json:"loadTo"`
	Episodes uint64  `json:"episodes"`
}

// At gives the length and the load of an episode.
func (c *Curriculum) At(episode uint64) (jobs int, load float64) {
	p := 1.0
	if episode < c.Episodes {
		p = float64(episode) / float64(c.Episodes)
	}
	n := math.Round(float64(c.JobsFrom) * math.Pow(float64(c.JobsTo)/float64(c.JobsFrom), p))
	load = c.LoadFrom + float64((c.LoadTo-c.LoadFrom)*p)
	if episode%2 == 1 {
		load = c.LoadFrom + float64((load-c.LoadFrom)*NewSource(episode, purposeTrain).Float64())
	}
	return int(max(n, 2)), load
}

// FromMix draws episodes from a generated mix. Episode e of a base seed is the mix's seed base+e.
func FromMix(mix generate.Mix, c Curriculum, base uint64) Episodes {
	return func(episode uint64) ([]workload.Job, error) {
		m := mix
		m.Seed = base + episode
		m.Jobs, m.Load = c.At(episode)
		src, err := m.Source()
		if err != nil {
			return nil, err
		}
		return workload.Collect(src)
	}
}

// Digest is the sha256 of jobs.
func Digest(jobs []workload.Job) (string, error) {
	h := sha256.New()
	e := json.NewEncoder(h)
	for i := range jobs {
		if err := e.Encode(&jobs[i]); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// SplitJobs takes one split of a trace, by time: the first 70 % of the submissions are for training, the next 15 % for validation,
// the last for testing. Of a trace with accounts (virtual clusters), those whose name hashes to 0 of 5 are kept out of training and
// validation, and are in the test, so that it also sees communities that were never trained on.
func SplitJobs(jobs []workload.Job, split string) ([]workload.Job, error) {
	sorted := slices.Clone(jobs)
	slices.SortStableFunc(sorted, func(a, b workload.Job) int {
		switch {
		case a.Submit < b.Submit:
			return -1
		case a.Submit > b.Submit:
			return 1
		}
		return 0
	})
	bounds := map[string][2]float64{Train: {0, .7}, Validation: {.7, .85}, Test: {.85, 1}}
	b, ok := bounds[split]
	if !ok {
		return nil, fmt.Errorf("there is no split %q; use %s, %s or %s", split, Train, Validation, Test)
	}
	n := float64(len(sorted))
	part := sorted[int(b[0]*n):int(b[1]*n)]
	// Jobs of one moment stay together: those at the border go with the earlier split.
	for lo := int(b[0] * n); lo > 0 && len(part) > 0 && part[0].Submit == sorted[lo-1].Submit; {
		part = part[1:]
	}
	if hi := int(b[1] * n); hi < len(sorted) && len(part) > 0 {
		for _, j := range sorted[hi:] {
			if j.Submit != part[len(part)-1].Submit {
				break
			}
			part = append(part[:len(part):len(part)], j)
		}
	}
	if split == Test {
		return part, nil
	}
	return slices.DeleteFunc(slices.Clone(part), func(j workload.Job) bool { return heldOut(j.Account) }), nil
}

func heldOut(account string) bool {
	if account == "" {
		return false
	}
	h := fnv.New32a()
	h.Write([]byte(account))
	return h.Sum32()%5 == 0
}

// FromJobs draws windows of consecutive jobs. Windows where order cannot matter are for the caller to filter.
func FromJobs(jobs []workload.Job, c Curriculum, base uint64) Episodes {
	return func(episode uint64) ([]workload.Job, error) {
		n, _ := c.At(episode)
		if n > len(jobs) {
			return nil, fmt.Errorf("an episode has %d jobs, the data only %d; shorten the episodes", n, len(jobs))
		}
		first := NewSource(base+episode, purposeTrain).IntN(len(jobs) - n + 1)
		out := slices.Clone(jobs[first : first+n])
		start := out[0].Submit
		for i := range out {
			out[i].ID = int64(i + 1)
			out[i].Submit -= start
			if out[i].Deadline != 0 {
				out[i].Deadline -= start
			}
			out[i].After, out[i].CancelAt = nil, 0
		}
		return out, nil
	}
}
