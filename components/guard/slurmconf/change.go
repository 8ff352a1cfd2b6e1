package slurmconf

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Danger is a part of a change that kills or loses jobs when slurmctld takes it up while they live. slurmctld itself
// warns of none of them: each was tried on Slurm 24.11 with a running and a held job.
type Danger struct {
	// What is said to people: "the CPUs of slurm-worker-cpu-0 change".
	What string
	// Nodes whose running jobs are killed.
	Nodes []string
	// Named says that pending jobs that name one of Nodes are lost too.
	Named bool
	// Partition whose running and pending jobs are lost; with Nodes, only its jobs there.
	Partition string
	// All says that every running job is killed.
	All bool
	// Never says that no waiting helps: slurmctld would not start, or would start with another state.
	Never bool
}

// fixed are the settings that a living cluster cannot change by a push, with why.
var fixed = map[string]string{
	"clustername":       "slurmctld does not start on the state of another cluster",
	"statesavelocation": "slurmctld would start without its jobs",
	"slurmuser":         "slurmctld could not read its own state",
	"authtype":          "no client and no node could talk with slurmctld until all are restarted together",
	"credtype":          "no client and no node could talk with slurmctld until all are restarted together",
	"slurmctldport":     "no client and no node would find slurmctld",
	"slurmdport":        "slurmctld would not find its nodes",
}

// sizes are the node attributes whose change kills the node's jobs.
var sizes = []string{"cpus", "procs", "boards", "sockets", "socketsperboard", "corespersocket", "threadspercore", "gres", "nodehostname", "nodeaddr", "port"}

// Dangers says what of a change from one configuration to another would kill or lose jobs. The order is stable.
func Dangers(from, to *Config) ([]Danger, error) {
	var dangers []Danger
	for _, key := range slices.Sorted(maps.Keys(fixed)) {
		if before, after := from.Settings[key], to.Settings[key]; !strings.EqualFold(before, after) {
			dangers = append(dangers, Danger{What: fmt.Sprintf("%s changes from %q to %q: %s", key, before, after, fixed[key]), Never: true})
		}
	}
	for _, key := range []string{"selecttype", "selecttypeparameters"} {
		if before, after := from.Settings[key], to.Settings[key]; !strings.EqualFold(before, after) {
			dangers = append(dangers, Danger{What: fmt.Sprintf("%s changes from %q to %q, and slurmctld kills every running job", key, before, after), All: true})
		}
	}
	dangers = append(dangers, nodeDangers(from, to)...)
	dangers = append(dangers, gresDanger(from, to)...)
	partitions, err := partitionDangers(from, to)
	return append(dangers, partitions...), err
}

func nodeDangers(from, to *Config) []Danger {
	var removed []string
	changed := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(from.Nodes)) {
		after, stays := to.Nodes[name]
		if !stays {
			removed = append(removed, name)
			continue
		}
		for _, key := range sizes {
			if !strings.EqualFold(from.Nodes[name][key], after[key]) {
				what := fmt.Sprintf("%s changes from %q to %q", key, from.Nodes[name][key], after[key])
				changed[what] = append(changed[what], name)
			}
		}
	}
	var dangers []Danger
	if len(removed) > 0 {
		dangers = append(dangers, Danger{What: "nodes leave the cluster", Nodes: removed, Named: true})
	}
	for _, what := range slices.Sorted(maps.Keys(changed)) {
		dangers = append(dangers, Danger{What: what, Nodes: changed[what]})
	}
	return dangers
}

func partitionDangers(from, to *Config) ([]Danger, error) {
	var dangers []Danger
	for _, name := range slices.Sorted(maps.Keys(from.Partitions)) {
		if _, stays := to.Partitions[name]; !stays {
			dangers = append(dangers, Danger{What: fmt.Sprintf("partition %s is removed or renamed", name), Partition: name})
			continue
		}
		before, err := from.PartitionNodes(name)
		if err != nil {
			return nil, err
		}
		after, err := to.PartitionNodes(name)
		if err != nil {
			return nil, err
		}
		gone := slices.DeleteFunc(slices.Clone(before), func(node string) bool {
			return slices.Contains(after, node) || to.Nodes[node] == nil // a node that is removed is a danger of its own
		})
		if len(gone) > 0 {
			dangers = append(dangers, Danger{What: fmt.Sprintf("partition %s loses nodes", name), Partition: name, Nodes: gone, Named: true})
		}
	}
	return dangers, nil
}

// Job is what is needed of a job to know whether a change would hurt it.
type Job struct {
	ID      string
	Name    string
	User    string
	Running bool // has an allocation: running, configuring, completing or suspended
	// Partitions it runs in or may start in.
	Partitions []string
	// Nodes it has, or, while pending, names.
	Nodes []string
}

// Hurt returns the jobs that a danger would kill or lose.
func (d *Danger) Hurt(jobs []Job) []Job {
	var hurt []Job
	for _, job := range jobs {
		onNodes := slices.ContainsFunc(job.Nodes, func(node string) bool { return slices.Contains(d.Nodes, node) })
		inPartition := d.Partition == "" || slices.Contains(job.Partitions, d.Partition)
		switch {
		case d.All && job.Running,
			d.Partition != "" && len(d.Nodes) == 0 && inPartition,
			len(d.Nodes) > 0 && onNodes && inPartition && (job.Running || d.Named):
			hurt = append(hurt, job)
		}
	}
	slices.SortFunc(hurt, func(a, b Job) int { return cmp.Compare(a.ID, b.ID) })
	return hurt
}
