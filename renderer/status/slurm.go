package status

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-hpc/berth/renderer/site"
)

// Ask runs a program in a container of the controller's pod and gives what it printed.
type Ask func(ctx context.Context, container string, argv ...string) (string, error)

// Advisor is the mode that the advisor is in. It makes live shadow by itself, and never the other way round.
type Advisor struct {
	Wanted    string `json:"wanted"`
	Effective string `json:"effective"`
	Why       string `json:"why,omitempty"` // where the two differ, or where it cannot advise
}

// Waiting are jobs that wait in one partition for one reason.
type Waiting struct {
	Partition string   `json:"partition"`
	Reason    string   `json:"reason"` // Slurm's word
	Jobs      int      `json:"jobs"`
	First     []string `json:"first"` // ids of the first ones
	Means     string   `json:"means"`
	Help      string   `json:"help,omitempty"` // what would let them start
}

// shown is how many jobs a line names.
const shown = 3

// AskSlurm adds what only Slurm and the advisor know. That they cannot be asked is part of the report.
func (r *Report) AskSlurm(ctx context.Context, s *site.Site, ask Ask) {
	if r.Slurm == nil {
		return
	}
	r.askAdvisor(ctx, s, ask)
	if err := r.askNodes(ctx, ask); err != nil {
		r.Unasked = oneLine(err.Error())
		return
	}
	out, err := ask(ctx, "slurmctld", "squeue", "--all", "--noheader", "--states=PENDING", "--format=%i|%P|%r")
	if err != nil {
		r.Unasked = oneLine(err.Error())
		return
	}
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		if len(fields) != 3 || fields[2] == "None" { // None: not looked at yet
			continue
		}
		i := slices.IndexFunc(r.Waiting, func(w Waiting) bool { return w.Partition == fields[1] && w.Reason == fields[2] })
		if i < 0 {
			r.Waiting = append(r.Waiting, Waiting{Partition: fields[1], Reason: fields[2]})
			i = len(r.Waiting) - 1
		}
		w := &r.Waiting[i]
		if w.Jobs++; len(w.First) < shown {
			w.First = append(w.First, fields[0])
		}
	}
	for i := range r.Waiting {
		r.Waiting[i].Means, r.Waiting[i].Help = r.explain(s, &r.Waiting[i])
	}
}

func (r *Report) askAdvisor(ctx context.Context, s *site.Site, ask Ask) {
	if s.Advisor.Mode == "off" || s.Advisor.Mode == "" {
		r.Advisor = &Advisor{Wanted: "off", Effective: "off"}
		return
	}
	r.Advisor = &Advisor{Wanted: s.Advisor.Mode, Effective: "unknown"}
	out, err := ask(ctx, "advisor", "/advisor", "serve", "health", "--socket=/run/advisor/advisor.sock")
	if err != nil {
		r.Advisor.Why = oneLine(err.Error())
		return
	}
	var health struct {
		Mode       string  `json:"mode"`
		WantedMode string  `json:"wanted_mode"`
		Demoted    string  `json:"demoted"`
		Refused    string  `json:"refused_checkpoint"`
		Age        float64 `json:"snapshot_age_seconds"`
		Share      float64 `json:"abstain_share"`
		Of         int     `json:"abstain_of"`
	}
	if err := json.Unmarshal([]byte(out), &health); err != nil {
		r.Advisor.Why = "its answer is not one: " + oneLine(out)
		return
	}
	r.Advisor.Effective = health.Mode
	switch {
	case health.Demoted != "":
		r.Advisor.Why = "it made itself shadow: " + oneLine(health.Demoted)
		r.stuck("advisor", r.Advisor.Why, "look at its advice in shadow; a change of the site's advisor settings that is pushed tries live again")
	case health.Refused != "":
		r.Advisor.Why = "the checkpoint is refused: " + oneLine(health.Refused)
		r.stuck("advisor", r.Advisor.Why, "name a checkpoint of this topology in advisor.checkpoint, or leave it out")
	case health.WantedMode != s.Advisor.Mode:
		r.Advisor.Why = "it runs with settings of before"
	case health.Age < 0:
		r.Advisor.Why = "it has no picture of the cluster yet, and abstains"
	case health.Of >= judged && health.Share >= s.Advisor.Guardrails.AbstainAlertShare:
		// Not stuck: what was pushed is in force.
		r.Advisor.Why = fmt.Sprintf("it gave no advice on %.0f %% of the last ten minutes' %d jobs; slurmctld's log says of each why (abstain=)", 100*health.Share, health.Of)
	}
}

// judged is how many jobs make a judgement on the advisor's abstentions, as in the alert on them.
const judged = 10

// meanings of Slurm's reasons (squeue's manual, "JOB REASON CODES"), and what would help. A key that ends in * is a prefix. %s in a
// help is the first job.
var meanings = []struct{ reason, means, help string }{
	{"Priority", "jobs of higher priority are before them", "sprio --jobs=%s shows what the priority is made of"},
	{"Dependency", "they wait for other jobs", ""},
	{"DependencyNeverSatisfied", "the job that they wait for did not end as they ask", "scancel %s"},
	{"BeginTime", "their begin time has not come", ""},
	{"JobHeldUser", "their users hold them", "scontrol release %s"},
	{"JobHeldAdmin", "an administrator holds them", "scontrol release %s"},
	{"Licenses", "all licenses are in use", "raise slurm.licenses if there are more"},
	{"JobArrayTaskLimit", "their array runs as many tasks at a time as it may", ""},
	{"PartitionTimeLimit", "they ask for more time than the partition allows", "scontrol update jobid=%s timelimit=…, or raise the partition's maxTime"},
	{"PartitionNodeLimit", "they ask for more nodes than the partition has or allows", "fewer nodes, or raise the pool's max"},
	{"PartitionDown", "the partition is down", "set its state to UP, or scontrol update partition"},
	{"PartitionInactive", "the partition is inactive", "set its state to UP"},
	{"ReqNodeNotAvail*", "nodes that they need are down, drained or reserved", "sinfo --list-reasons and scontrol show reservation say which"},
	{"Reservation", "their reservation has not begun", "scontrol show reservation"},
	{"NodeDown", "a node that they name is down", "sinfo --list-reasons"},
	{"InvalidAccount", "their account is not in Slurm's database", "add it to accounts"},
	{"InvalidQOS", "their QOS is not in Slurm's database, or not theirs", "add it to slurm.qos"},
	{"QOS*", "a limit of their QOS is reached", "wait for the QOS's other jobs, or raise the limit in slurm.qos"},
	{"MaxJobsPerAccount", "the account runs as many jobs as it may", "raise the account's maxJobs"},
	{"Assoc*", "a limit of their account or user is reached", "wait for its other jobs, or raise the limit in accounts or users"},
}

// explain says what a reason means, and what of the site would let the jobs start.
func (r *Report) explain(s *site.Site, w *Waiting) (means, help string) {
	if w.Reason == "Resources" {
		return r.explainResources(s, w.Partition)
	}
	for _, m := range meanings {
		prefix, some := strings.CutSuffix(m.reason, "*")
		if w.Reason == m.reason || some && strings.HasPrefix(w.Reason, prefix) {
			help := m.help
			if strings.Contains(help, "%s") {
				help = fmt.Sprintf(help, w.First[0])
			}
			return m.means, help
		}
	}
	return "Slurm's own word; squeue's manual explains it", fmt.Sprintf("scontrol show job %s", w.First[0])
}

// explainResources looks at the pools behind a partition.
func (r *Report) explainResources(s *site.Site, partition string) (means, help string) {
	names := []string{partition}
	if over, ok := s.Slurm.Partitions[partition]; ok {
		names = over.Pools
	}
	var full, starting, room []string
	for _, p := range r.Pools {
		switch {
		case !slices.Contains(names, p.Name):
		case p.Starting > 0:
			starting = append(starting, fmt.Sprintf("%s starts %d", p.Name, p.Starting))
		case p.Up >= p.Max:
			full = append(full, fmt.Sprintf("%s has its %d", p.Name, p.Max))
		default:
			room = append(room, p.Name)
		}
	}
	switch {
	case len(starting) > 0:
		return "workers are on their way: " + strings.Join(starting, ", "), ""
	case len(full) > 0 && len(room) == 0:
		return "every worker is there, and they do not fit beside what runs: " + strings.Join(full, ", "),
			"they start as jobs end; pools." + names[0] + ".max gives more workers where the hosts hold them"
	}
	return "no free node fits them now", "scontrol show job says what they ask for; pools whose nodes are smaller never take them"
}
