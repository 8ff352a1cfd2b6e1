package slurmconf

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/berth-hpc/berth/renderer/site"
)

// preemptTypes are the site's words and Slurm's.
var preemptTypes = map[string]string{"none": "preempt/none", "qos": "preempt/qos", "partition": "preempt/partition_prio"}

// scheduling is how jobs are placed. SchedulerType and PriorityType are the profile's, which the chart appends.
func scheduling(s *site.Site) (section, error) {
	memory, err := Mebibytes(s.Slurm.DefMemPerCPU)
	if err != nil {
		return section{}, fmt.Errorf("slurm.defMemPerCPU: %w", err)
	}
	preempt, ok := preemptTypes[s.Slurm.Preemption.Type]
	if !ok {
		return section{}, fmt.Errorf("slurm.preemption.type: %q is not a kind of preemption; use none, qos or partition", s.Slurm.Preemption.Type)
	}
	mode := strings.ToUpper(s.Slurm.Preemption.Mode)
	if mode == "SUSPEND" {
		mode = "SUSPEND,GANG" // Slurm resumes suspended jobs only through its gang scheduler.
	}
	parameters := []parameter{
		{"SelectType", "select/cons_tres"},
		{"SelectTypeParameters", "CR_Core_Memory"},
		// Without it every job takes a node's whole memory, and jobs that share a card go to different nodes.
		{"DefMemPerCPU", strconv.FormatInt(memory, 10)},
		{"PreemptType", preempt},
		{"PreemptMode", mode},
	}
	options, err := schedulerParameters(s.Slurm.Backfill)
	if err != nil {
		return section{}, err
	}
	return section{"Placement.", append(parameters, parameter{"SchedulerParameters", joinComma(options)})}, nil
}

func schedulerParameters(b site.Backfill) ([]string, error) {
	// The default depth of 100 holds large arrays back while nodes are free.
	// Users may put one of their own jobs before their others.
	// A node that has powered down takes jobs again, and nothing but the next look at the queue notices: every 10 s, not every minute.
	options := []string{"default_queue_depth=1000", "enable_user_top", "sched_interval=10"}
	if !b.Enabled {
		// The profile names sched/backfill; an interval of -1 keeps its loop from running, and leaves the main one.
		return append(options, "bf_interval=-1"), nil
	}
	var times [3]Time
	for i, field := range []struct{ name, value string }{
		{"interval", b.Interval}, {"window", b.Window}, {"resolution", b.Resolution},
	} {
		t, err := ParseTime(field.value)
		if err != nil {
			return nil, fmt.Errorf("slurm.backfill.%s: %w", field.name, err)
		}
		if t.unlimited {
			return nil, fmt.Errorf("slurm.backfill.%s: backfill needs a bounded time; write for example 30s, or 1d for the window", field.name)
		}
		times[i] = t
	}
	return append(options,
		"bf_continue",
		"bf_interval="+times[0].SecondsText(),
		"bf_max_job_test="+strconv.Itoa(b.MaxJobs),
		"bf_resolution="+times[2].SecondsText(),
		"bf_window="+times[1].MinutesText(), // in minutes, unlike the others
	), nil
}

func priority(s *site.Site) (section, error) {
	decay, err := ParseTime(s.Slurm.Priority.DecayHalf)
	if err != nil {
		return section{}, fmt.Errorf("slurm.priority.decayHalfLife: %w", err)
	}
	age, err := ParseTime(s.Slurm.Priority.MaxAge)
	if err != nil {
		return section{}, fmt.Errorf("slurm.priority.maxAge: %w", err)
	}
	w := s.Slurm.Priority.Weights
	parameters := []parameter{
		{"PriorityDecayHalfLife", decay.String()},
		{"PriorityMaxAge", age.String()},
		{"PriorityFavorSmall", map[bool]string{true: "NO", false: "YES"}[s.Slurm.Priority.FavorWide]},
		{"PriorityWeightAge", strconv.Itoa(w.Age)},
		{"PriorityWeightFairshare", strconv.Itoa(w.FairShare)},
		{"PriorityWeightJobSize", strconv.Itoa(w.JobSize)},
		{"PriorityWeightPartition", strconv.Itoa(w.Partition)},
		{"PriorityWeightQOS", strconv.Itoa(w.QOS)},
		{"PriorityWeightAssoc", strconv.Itoa(w.Assoc)},
	}
	if len(w.TRES) > 0 {
		parameters = append(parameters, parameter{"PriorityWeightTRES", tresInts(w.TRES)})
	}
	if !s.Slurm.Priority.FairTree {
		parameters = append(parameters, parameter{"PriorityFlags", "NO_FAIR_TREE"})
	}
	return section{"Priority of waiting jobs.", parameters}, nil
}
