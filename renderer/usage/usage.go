// Package usage adds up what jobs had of a cluster, by account and user, from Slurm's accounting. It asks for records of jobs and not
// for slurmdbd's hourly roll-ups, so that the last hour and jobs that run now count, and a share of a card counts as that share.
package usage

import (
	"context"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/berth-hpc/berth/renderer/compile/slurmconf"
	"github.com/berth-hpc/berth/renderer/site"
)

// Ask runs a Slurm client beside slurmctld and gives what it printed.
type Ask func(ctx context.Context, argv ...string) (string, error)

// Query says which jobs count.
type Query struct {
	// Start and End bound the time that counts: of a job that began before or ends after, the part within.
	Start, End time.Time
	// Accounts and Users: only these; none: all.
	Accounts, Users []string
	// ByAccount adds an account's users up.
	ByAccount bool
}

// Report is what was used.
type Report struct {
	Site  string    `json:"site"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	Rows  []Row     `json:"rows"` // by account, then user
	Total Row       `json:"total"`
	// Uncounted are jobs with shards of a pool that the site does not have, or not with shards: nobody knows how much of a card they had.
	Uncounted int `json:"uncounted,omitempty"`
}

// Row is what one user had in one account, or one account.
type Row struct {
	Account string `json:"account,omitempty"`
	User    string `json:"user,omitempty"` // empty where an account's users are added up
	// Jobs counts allocations: each task of an array is one, and each run of a job that was requeued.
	Jobs     int     `json:"jobs"`
	CPUHours float64 `json:"cpuHours"`
	GPUHours float64 `json:"gpuHours"` // of whole cards; 25 % of one for an hour is 0.25
}

func (r *Row) add(other Row) {
	r.Jobs += other.Jobs
	r.CPUHours += other.CPUHours
	r.GPUHours += other.GPUHours
}

// fields are what is asked of sacct for each allocation.
const fields = "account,user,elapsedraw,nodelist,alloctres"

// Read asks the cluster of the site.
func Read(ctx context.Context, s *site.Site, q Query, ask Ask) (*Report, error) {
	argv := []string{
		"sacct", "--allusers", "--allocations", "--duplicates", "--truncate", "--noheader", "--parsable2", "--format=" + fields,
		// In seconds since 1970: the pod's time zone does not matter.
		fmt.Sprintf("--starttime=uts%d", q.Start.Unix()), fmt.Sprintf("--endtime=uts%d", q.End.Unix()),
	}
	if len(q.Accounts) > 0 {
		argv = append(argv, "--accounts="+strings.Join(q.Accounts, ","))
	}
	if len(q.Users) > 0 {
		argv = append(argv, "--uid="+strings.Join(q.Users, ","))
	}
	out, err := ask(ctx, argv...)
	if err != nil {
		return nil, err
	}
	r := &Report{Site: s.Name, Start: q.Start, End: q.End, Rows: []Row{}}
	rows := map[[2]string]*Row{}
	for line := range strings.Lines(out) {
		job, counted, err := parse(s, strings.TrimRight(line, "\n"))
		if err != nil {
			return nil, err
		}
		if job.Jobs == 0 {
			continue // had nothing within the time
		}
		if !counted {
			r.Uncounted++
		}
		if q.ByAccount {
			job.User = ""
		}
		row := rows[[2]string{job.Account, job.User}]
		if row == nil {
			row = &Row{Account: job.Account, User: job.User}
			rows[[2]string{job.Account, job.User}] = row
		}
		row.add(job)
		r.Total.add(job)
	}
	for _, row := range rows {
		r.Rows = append(r.Rows, *row)
	}
	sort.Slice(r.Rows, func(i, j int) bool {
		a, b := r.Rows[i], r.Rows[j]
		return a.Account < b.Account || a.Account == b.Account && a.User < b.User
	})
	return r, nil
}

// parse reads one allocation; counted is false where its part of a card is not known.
func parse(s *site.Site, line string) (job Row, counted bool, err error) {
	words := strings.Split(line, "|")
	if len(words) != strings.Count(fields, ",")+1 {
		return Row{}, false, fmt.Errorf("sacct printed %q, which is no job", line)
	}
	seconds, err := strconv.ParseInt(words[2], 10, 64)
	if err != nil {
		return Row{}, false, fmt.Errorf("sacct printed %q: its time is not in seconds", line)
	}
	if seconds <= 0 || words[4] == "" {
		return Row{}, true, nil // waits, or was cancelled before it began
	}
	cpus, gpus, counted, err := resources(s, words[4], words[3])
	if err != nil {
		return Row{}, false, fmt.Errorf("sacct printed %q: %w", line, err)
	}
	hours := float64(seconds) / 3600
	return Row{Account: words[0], User: words[1], Jobs: 1, CPUHours: cpus * hours, GPUHours: gpus * hours}, counted, nil
}

// resources reads an allocation's TRES, such as "billing=2,cpu=2,gres/gpu:rtx4070=1,gres/gpu=1,mem=1G,node=1". Counts by model
// repeat what the counts without say.
func resources(s *site.Site, tres, nodes string) (cpus, gpus float64, counted bool, err error) {
	counted = true
	for _, part := range strings.Split(tres, ",") {
		name, text, _ := strings.Cut(part, "=")
		if name != "cpu" && name != "gres/gpu" && name != "gres/mps" && name != "gres/shard" {
			continue
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, 0, false, fmt.Errorf("%s is no count", part)
		}
		switch name {
		case "cpu":
			cpus = n
		case "gres/gpu":
			gpus += n
		case "gres/mps":
			gpus += n / slurmconf.MPSPerCard
		case "gres/shard":
			perCard := shardsPerCard(s, nodes)
			if counted = perCard > 0; counted {
				gpus += n / float64(perCard)
			}
		}
	}
	return cpus, gpus, counted, nil
}

// shardsPerCard is into how many a card of these nodes is divided; 0: not known.
func shardsPerCard(s *site.Site, nodes string) int {
	for name, pool := range s.Pools {
		rest, mine := strings.CutPrefix(nodes, slurmconf.NodePrefix+"-"+name+"-")
		// A pool's name may begin with another's and a dash; what follows it is a number, or several in brackets.
		if mine && rest != "" && strings.Trim(rest, "0123456789[],-") == "" && pool.Sharing.Shard != nil {
			return pool.Sharing.Shard.Count
		}
	}
	return 0
}
