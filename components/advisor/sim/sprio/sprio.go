// Package sprio compares the job priorities that a slurmctld computed, as sprio prints them, with those that package fairshare
// computes from the same facts: it shows on any cluster whether the simulator's multifactor policy is that cluster's. It reads what
// Slurm's commands print and runs none of them.
package sprio

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-hpc/berth/components/advisor/sim/fairshare"
)

// Commands print what a Capture holds, in the order of its fields. They are to run within one period of PriorityCalcPeriod,
// because fair share and age are computed anew after each.
var Commands = []struct{ Name, Line string }{
	{"config", "scontrol show config"},
	{"nodes", "scontrol --oneliner show nodes"},
	{"partitions", "scontrol --oneliner show partitions"},
	{"qos", "sacctmgr --noheader --parsable2 show qos format=name,priority"},
	{"shares", "sshare --all --parsable2 --format=Account,User,RawShares,RawUsage,FairShare"},
	{"jobs", "SLURM_TIME_FORMAT=%s squeue --noheader --states=PENDING --format='%i|%u|%a|%P|%q|%C|%D|%V'"},
	{"priorities", "sprio --noheader --format='%i|%A|%B|%F|%J|%P|%Q|%S|%N|%Y'"},
	{"now", "date +%s"},
}

// Capture is the output of Commands by name.
type Capture map[string]string

// Row is one pending job: the weighted factors that slurmctld computed and ours.
type Row struct {
	Job          string
	Theirs, Ours Parts
	// Differs names the parts that differ by more than rounding.
	Differs []string
}

// Parts are weighted factors. Age lies between 0 and its value at the time of the capture, because slurmctld computes it once a
// period: it is compared as such, and theirs is taken for the sum.
type Parts struct {
	Age, Association, FairShare, JobSize, Partition, QOS, Site, Nice, Priority float64
}

// Report is what Check found.
type Report struct {
	Rows []Row
	// Shares counts users whose fair-share factor was compared, SharesDiffer those that differ by more than the printed digits.
	Shares       int
	SharesDiffer []string
	// Merged says that it was with accounts of equal level fair share ranked together that the factors were closer to slurmctld's
	// (see fairshare.Tree).
	Merged bool
}

// Agrees says that nothing differs.
func (r *Report) Agrees() bool {
	return len(r.SharesDiffer) == 0 && !slices.ContainsFunc(r.Rows, func(w Row) bool { return len(w.Differs) > 0 })
}

// Check computes the priority of every job in the capture.
func Check(c Capture) (*Report, error) {
	for _, k := range Commands {
		if strings.TrimSpace(c[k.Name]) == "" {
			return nil, fmt.Errorf("%s: nothing; it should hold the output of: %s", k.Name, k.Line)
		}
	}
	conf := keyed(c["config"], "=")
	s, err := readSettings(conf)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if s.nodes, s.cpus, err = readNodes(c["nodes"]); err != nil {
		return nil, fmt.Errorf("nodes: %w", err)
	}
	if s.partitions, err = readPartitions(c["partitions"]); err != nil {
		return nil, fmt.Errorf("partitions: %w", err)
	}
	if s.qos, err = readQOS(c["qos"]); err != nil {
		return nil, fmt.Errorf("qos: %w", err)
	}
	if s.now, err = strconv.ParseFloat(strings.TrimSpace(c["now"]), 64); err != nil {
		return nil, fmt.Errorf("now: %q is not a number of seconds", strings.TrimSpace(c["now"]))
	}
	r := &Report{}
	if s.shares, err = r.fairShares(c["shares"], s.classic); err != nil {
		return nil, fmt.Errorf("shares: %w", err)
	}
	jobs, err := rows(c["jobs"], 8)
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	theirs, err := rows(c["priorities"], 10)
	if err != nil {
		return nil, fmt.Errorf("priorities: %w", err)
	}
	byID := map[string][]string{}
	for _, f := range jobs {
		byID[f[0]] = f
	}
	for _, f := range theirs {
		job := byID[f[0]]
		if job == nil {
			return nil, fmt.Errorf("priorities: job %s is not among the pending jobs; capture both while nothing starts", f[0])
		}
		row, err := s.compare(job, f)
		if err != nil {
			return nil, fmt.Errorf("job %s: %w", f[0], err)
		}
		r.Rows = append(r.Rows, row)
	}
	return r, nil
}

// compare computes one job's priority. job is a line of jobs, f one of priorities.
func (s *settings) compare(job, f []string) (row Row, err error) {
	v := make([]float64, len(f))
	for i := 1; i < len(f); i++ {
		if v[i], err = strconv.ParseFloat(f[i], 64); err != nil {
			return row, fmt.Errorf("%q is not a number", f[i])
		}
	}
	facts := make([]float64, 3) // CPUs, nodes, submission
	for i, text := range job[5:] {
		if facts[i], err = strconv.ParseFloat(text, 64); err != nil {
			return row, fmt.Errorf("%q is not a number", text)
		}
	}
	user, account, partition, qos := job[1], job[2], job[3], job[4]
	share, known := s.shares[[2]string{account, user}]
	if !known {
		return row, fmt.Errorf("sshare shows no user %s in account %s", user, account)
	}
	factors := fairshare.Factors{FairShare: share, Partition: s.partitions[partition], QOS: s.qos[qos],
		Age:     fairshare.AgeFactor(s.now-facts[2], s.maxAge),
		JobSize: fairshare.SizeFactor(facts[1], facts[0], s.nodes, s.cpus, s.favorSmall)}
	w := s.weights
	row = Row{Job: f[0], Theirs: Parts{v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9]}}
	t := row.Theirs
	row.Ours = Parts{Age: w.Age * factors.Age, FairShare: w.FairShare * factors.FairShare, JobSize: w.JobSize * factors.JobSize, Partition: w.Partition * factors.Partition,
		QOS: w.QOS * factors.QOS, Association: t.Association, Site: t.Site, Nice: t.Nice}
	if w.Age > 0 {
		factors.Age = t.Age / w.Age
	}
	row.Ours.Priority = float64(fairshare.Priority(t.Site+t.Association, w, factors, int(t.Nice)))
	if t.Age < 0 || t.Age > math.Ceil(row.Ours.Age)+1 {
		row.Differs = append(row.Differs, "age")
	}
	for _, p := range []struct {
		name         string
		theirs, ours float64
	}{{"fair share", t.FairShare, row.Ours.FairShare}, {"job size", t.JobSize, row.Ours.JobSize}, {"partition", t.Partition, row.Ours.Partition},
		{"QOS", t.QOS, row.Ours.QOS}, {"priority", t.Priority, row.Ours.Priority}} {
		// sprio rounds to whole numbers; the priority is cut after its exact parts were added.
		if math.Abs(p.theirs-p.ours) > 1.000001 {
			row.Differs = append(row.Differs, p.name)
		}
	}
	return row, nil
}

// fairShares computes the factor of every user, compares it with the one printed, and gives ours by account and user.
func (r *Report) fairShares(text string, classic bool) (map[[2]string]float64, error) {
	lines, err := readShares(text)
	if err != nil {
		return nil, err
	}
	best, bestDiffer := map[[2]string]float64(nil), []string(nil)
	for _, merged := range []bool{false, true} {
		tree, users, err := buildTree(lines)
		if err != nil {
			return nil, err
		}
		tree.MergeTies = merged
		if classic {
			tree.Classic(1)
		} else {
			tree.FairTree()
		}
		ours, differ := map[[2]string]float64{}, []string(nil)
		for _, k := range slices.SortedFunc(maps.Keys(users), func(a, b [2]string) int { return strings.Compare(a[0]+"\x00"+a[1], b[0]+"\x00"+b[1]) }) {
			u := users[k]
			ours[k] = u.assoc.Factor
			if math.Abs(u.assoc.Factor-u.printed) > 1.5e-6 {
				differ = append(differ, fmt.Sprintf("%s in %s: slurmctld %.6f, ours %.6f", k[1], k[0], u.printed, u.assoc.Factor))
			}
		}
		if best == nil || len(differ) < len(bestDiffer) {
			best, bestDiffer, r.Merged = ours, differ, merged
		}
		r.Shares = len(users)
	}
	r.SharesDiffer = bestDiffer
	return best, nil
}
