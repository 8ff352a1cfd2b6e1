// Package placement gives held jobs a node. It takes the jobs that their users hold for it (package custody says which), asks the
// advisor which of them goes where, requires that node of the job and releases it. One job is placed on one picture of the
// cluster, so that the next sees what the one before took. A job that gets no place in time, or does not start on its place, goes back to
// Slurm's own rules, and its administrator comment says so. It knows the policy only through the advisor's answers.
package placement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-hpc/berth/components/advisor/placement/custody"
	"github.com/berth-hpc/berth/components/advisor/service"
	"github.com/berth-hpc/berth/components/advisor/snapshot"
	"github.com/berth-hpc/berth/components/slurmrest"
)

const (
	// pace is the least time between two rounds, idle the most.
	pace, idle = time.Second, 5 * time.Second
	// asked bounds the jobs that the advisor chooses among, from those that were submitted first.
	asked = 256
	// given bounds the jobs that are given back in a round.
	given = 100
	// avoided is how long a node is left out that slurmctld has in another state than the advisor thought.
	avoided = time.Minute
)

// Slurm is what the controller asks and changes; slurmrest.Client is one.
type Slurm interface {
	JobRecords(ctx context.Context, id int64) ([]slurmrest.JobRecord, error)
	Nodes(ctx context.Context, since time.Time) (*slurmrest.NodeList, error)
	UpdateJob(ctx context.Context, id int64, update slurmrest.JobUpdate) error
}

// Advisor says which job goes where.
type Advisor interface {
	Health(ctx context.Context) (service.Health, error)
	// Act chooses among the jobs, and among the nodes; no nodes: all.
	Act(ctx context.Context, jobs []service.Job, nodes []string) (service.Placement, error)
}

// Outcome is what a controller did with a job.
type Outcome string

// Outcomes: a job was placed, it would have been (shadow), it went back to Slurm's own rules, or slurmctld refused.
const (
	Placed   Outcome = "placed"
	Shown    Outcome = "shadow"
	Returned Outcome = "returned"
	Refused  Outcome = "refused"
)

// Controller is the loop. Observe may be called from another goroutine than Run.
type Controller struct {
	Slurm   Slurm
	Advisor Advisor
	// Orders says how much the controller may do, and with which jobs.
	Orders func() (service.Mode, custody.Terms)
	// Promise is the path of what it promises (package custody).
	Promise string
	// Nodes are the only nodes that jobs are given; none: all.
	Nodes []string
	// Changed, if set, is told of each job that was changed; Count of each outcome.
	Changed func(job int64)
	Count   func(Outcome)
	Log     *slog.Logger

	mu      sync.Mutex
	jobs    map[int64]snapshot.Job
	nodes   map[string]bool
	changed chan struct{}

	last struct { // placement
		at      time.Time
		version uint64
	}
	avoid map[string]time.Time // nodes, until when
	leave map[int64]bool       // jobs that slurmctld lets nobody change
	shown map[int64]string     // places that shadow has told
	quiet string               // why nothing was placed, told last
	lock  *os.File             // while this one leads
}

// New makes a controller.
func New(slurm Slurm, advisor Advisor, orders func() (service.Mode, custody.Terms), promise string, log *slog.Logger) *Controller {
	return &Controller{
		Slurm: slurm, Advisor: advisor, Orders: orders, Promise: promise, Log: log, Changed: func(int64) {}, Count: func(Outcome) {},
		jobs: map[int64]snapshot.Job{}, nodes: map[string]bool{}, changed: make(chan struct{}, 1),
		avoid: map[string]time.Time{}, leave: map[int64]bool{}, shown: map[int64]string{},
	}
}

// Observe takes a change of the snapshot.
func (c *Controller) Observe(d *snapshot.Delta) {
	c.mu.Lock()
	for i := range d.Jobs {
		c.remember(&d.Jobs[i])
	}
	for _, id := range d.Gone {
		delete(c.jobs, id)
	}
	for i := range d.Nodes {
		c.nodes[d.Nodes[i].Name] = true
	}
	for _, name := range d.NoNodes {
		delete(c.nodes, name)
	}
	c.mu.Unlock()
	select { // also without a change of jobs: the next one may be placed on a new picture
	case c.changed <- struct{}{}:
	default:
	}
}

// remember keeps a job that may be the controller's. The caller holds mu.
func (c *Controller) remember(j *snapshot.Job) {
	if j.Pending() && (j.Held || j.Required != "") {
		c.jobs[j.ID] = *j
	} else {
		delete(c.jobs, j.ID)
	}
}

// Run places until the context ends.
func (c *Controller) Run(ctx context.Context) {
	defer c.follow()
	told := ""
	for {
		err := c.Round(ctx, time.Now())
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			told = ""
		case err.Error() != told:
			told = err.Error()
			c.Log.Warn("jobs could not be placed", "why", told)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pace):
		}
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
		case <-time.After(idle): // times to give up run out without a change
		}
	}
}

// Round gives back what is due and places one job at most.
func (c *Controller) Round(ctx context.Context, now time.Time) error {
	wanted, terms := c.Orders()
	err := c.lead(wanted)
	if errors.Is(err, errFollows) {
		return err
	}
	if err == nil {
		err = c.promise(wanted, &terms, now)
	}
	if wanted != service.Live {
		c.follow()
	}
	if wanted == service.Off {
		return err
	}
	health, unwell := c.Advisor.Health(ctx)
	jobs := c.known()
	if wanted == service.Live {
		// Whether the advisor is well or not, and whether a promise can be written or not: this is how jobs get away.
		if err := c.giveBack(ctx, &terms, jobs, now); err != nil {
			return err
		}
	}
	if err = errors.Join(err, unwell); err != nil {
		return err
	}
	mode := health.Mode // the advisor's own bounds what may be done with its answers
	if mode == service.Live {
		mode = wanted
	}
	if mode == service.Off {
		return nil
	}
	c.forget(jobs)
	candidates := c.candidates(&terms, jobs, mode, now)
	if len(candidates) == 0 {
		return nil
	}
	age := time.Duration(health.AgeSeconds * float64(time.Second))
	if health.AgeSeconds < 0 || mode == service.Live && (health.Version == c.last.version || age >= now.Sub(c.last.at)) {
		return nil // what the last one took is not in the picture yet
	}
	return c.place(ctx, &terms, candidates, mode, health.Version)
}

// promise writes down what is promised as long as it is kept, and that it has ended where the site ends it.
func (c *Controller) promise(mode service.Mode, terms *custody.Terms, now time.Time) error {
	if c.Promise == "" {
		return nil
	}
	p, err := custody.Read(c.Promise)
	switch {
	case mode == service.Live: // also over one that can't be read
		if p != nil && !p.Ended && p.Until.Sub(now) > custody.Lease/2 && same(&p.Terms, terms) {
			return nil
		}
		p = &custody.Promise{Until: now.Add(custody.Lease), Terms: *terms}
	case err != nil:
		return err
	case p == nil || p.Ended || c.lock == nil && now.Before(p.Until):
		return nil // another's
	default:
		p.Until, p.Ended = now, true
	}
	return p.Write(c.Promise)
}

func same(a, b *custody.Terms) bool {
	return a.JobNamePrefix == b.JobNamePrefix && slices.Equal(a.Accounts, b.Accounts) && slices.Equal(a.QOS, b.QOS) &&
		slices.Equal(a.Comments, b.Comments) && a.GiveUpSeconds == b.GiveUpSeconds && a.StartSeconds == b.StartSeconds
}

// known are the jobs that may be the controller's, those submitted first before others.
func (c *Controller) known() []snapshot.Job {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.jobs), func(a, b snapshot.Job) int {
		return cmp.Or(cmp.Compare(a.Submit, b.Submit), cmp.Compare(a.ID, b.ID))
	})
}

// forget drops what is remembered of jobs that do not wait any more.
func (c *Controller) forget(jobs []snapshot.Job) {
	waits := make(map[int64]bool, len(jobs))
	for i := range jobs {
		waits[jobs[i].ID] = true
	}
	maps.DeleteFunc(c.leave, func(id int64, _ bool) bool { return !waits[id] })
	maps.DeleteFunc(c.shown, func(id int64, _ string) bool { return !waits[id] })
}

// giveBack gives back the jobs that are due.
func (c *Controller) giveBack(ctx context.Context, terms *custody.Terms, jobs []snapshot.Job, now time.Time) error {
	n := 0
	for i := range jobs {
		if _, due := terms.Due(&jobs[i], now); !due || c.leave[jobs[i].ID] || n >= given {
			continue
		}
		n++
		j, err := c.look(ctx, jobs[i].ID)
		if err != nil {
			return err
		}
		if j == nil {
			continue
		}
		if how, due := terms.Due(j, now); due {
			if err := c.give(ctx, j, how); err != nil {
				return err
			}
		}
	}
	return nil
}

// give gives one job back. One that slurmctld refuses to change is left alone from then on.
func (c *Controller) give(ctx context.Context, j *snapshot.Job, how custody.Return) error {
	update := slurmrest.JobUpdate{AdminComment: &how.Comment}
	if how.Release {
		update.Hold = new(bool)
	}
	if how.AnyNode {
		update.RequiredNodes = slurmrest.AnyNode
	}
	err := c.Slurm.UpdateJob(ctx, j.ID, update)
	c.Changed(j.ID)
	var refused *slurmrest.APIError
	switch {
	case errors.As(err, &refused):
		c.leave[j.ID] = true
		c.Count(Refused)
		c.Log.Error("slurmctld does not let a job go back to its own rules; release it by hand", "job", j.ID, "why", err.Error())
		return nil
	case err != nil:
		return err
	}
	c.Count(Returned)
	c.Log.Info("a job goes back to Slurm's own rules", "job", j.ID, "name", j.Name, "why", how.Why)
	_, err = c.look(ctx, j.ID)
	return err
}

// look asks for a job as it is now, and remembers it so; nil where it does not wait any more.
func (c *Controller) look(ctx context.Context, id int64) (*snapshot.Job, error) {
	records, err := c.Slurm.JobRecords(ctx, id)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range records {
		if j := snapshot.JobOf(&records[i]); j.ID == id && j.Pending() {
			c.remember(&j)
			return &j, nil
		}
	}
	delete(c.jobs, id)
	return nil, nil
}

// candidates are the jobs to place: chosen, and free to start now.
func (c *Controller) candidates(terms *custody.Terms, jobs []snapshot.Job, mode service.Mode, now time.Time) []snapshot.Job {
	var out []snapshot.Job
	for i := range jobs {
		j := &jobs[i]
		if len(out) == asked {
			break
		}
		// slurmctld tells the start of a held job where its user gave one (--begin).
		if terms.Takes(j) && custody.Unplaceable(j) == "" && j.Start <= now.Unix() && !c.leave[j.ID] && !(mode == service.Shadow && c.shown[j.ID] != "") {
			out = append(out, *j)
		}
	}
	return out
}

// among are the nodes to choose from; none: all.
func (c *Controller) among(now time.Time) []string {
	maps.DeleteFunc(c.avoid, func(_ string, until time.Time) bool { return !now.Before(until) })
	if len(c.Nodes)+len(c.avoid) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	from := c.Nodes
	if len(from) == 0 {
		from = slices.Sorted(maps.Keys(c.nodes))
	}
	return slices.DeleteFunc(slices.Clone(from), func(name string) bool { _, bad := c.avoid[name]; return bad })
}

// place asks the advisor, and does what it says if slurmctld still has job and node as the advisor thought.
func (c *Controller) place(ctx context.Context, terms *custody.Terms, jobs []snapshot.Job, mode service.Mode, version uint64) error {
	now := time.Now()
	nodes := c.among(now)
	if nodes != nil && len(nodes) == 0 {
		return nil
	}
	requests := make([]service.Job, len(jobs))
	for i := range jobs {
		requests[i] = RequestOf(&jobs[i])
	}
	p, err := c.Advisor.Act(ctx, requests, nodes)
	if err != nil {
		return err
	}
	if p.Job < 0 {
		c.tell(string(p.Abstain), len(jobs))
		return nil
	}
	if p.Job >= len(jobs) || p.JobID != jobs[p.Job].ID || p.NodeName == "" || len(nodes) > 0 && !slices.Contains(nodes, p.NodeName) {
		return fmt.Errorf("the advisor was asked about %d jobs and answers with job %d (%d) and node %q", len(jobs), p.Job, p.JobID, p.NodeName)
	}
	c.quiet = ""
	j, err := c.look(ctx, p.JobID)
	if err != nil {
		return err
	}
	if j == nil || !terms.Takes(j) || custody.Unplaceable(j) != "" {
		return nil
	}
	if why, err := c.unfit(ctx, j, p.NodeName); err != nil || why != "" {
		if err == nil {
			c.avoid[p.NodeName] = now.Add(avoided)
			c.Log.Warn("a job is not placed where the advisor says", "job", j.ID, "node", p.NodeName, "why", why)
		}
		return err
	}
	if mode != service.Live || p.Mode != service.Live {
		c.shown[j.ID] = p.NodeName
		c.Count(Shown)
		c.Log.Info("would place a job", "mode", string(service.Shadow), "job", j.ID, "name", j.Name, "node", p.NodeName, "card", p.Card, "value", p.Value, "checkpoint", p.Checkpoint)
		return nil
	}
	comment := custody.Placed(j, p.NodeName, p.Checkpoint, now)
	c.last.at, c.last.version = time.Now(), version
	err = c.Slurm.UpdateJob(ctx, j.ID, slurmrest.JobUpdate{RequiredNodes: []string{p.NodeName}, Hold: new(bool), AdminComment: &comment})
	c.last.at = time.Now()
	c.Changed(j.ID)
	var refused *slurmrest.APIError
	switch {
	case errors.As(err, &refused):
		// Of several changes slurmctld makes none if it refuses one; it is asked what it has all the same.
		c.Count(Refused)
		now, looked := c.look(ctx, j.ID)
		if looked != nil || now == nil || !terms.Takes(now) {
			return looked
		}
		return c.give(ctx, now, custody.Back(now, fmt.Sprintf("slurmctld refuses %s: %s", p.NodeName, short(refused.Error()))))
	case err != nil:
		return err
	}
	c.Count(Placed)
	c.Log.Info("placed a job", "mode", string(mode), "job", j.ID, "name", j.Name, "node", p.NodeName, "card", p.Card, "value", p.Value, "checkpoint", p.Checkpoint)
	_, err = c.look(ctx, j.ID)
	return err
}

// tell says, once, that jobs are held for which there is no place.
func (c *Controller) tell(abstain string, jobs int) {
	why := cmp.Or(abstain, "none of them fits anywhere now")
	if why != c.quiet {
		c.quiet = why
		c.Log.Info("held jobs are not placed", "jobs", jobs, "why", why)
	}
}

// unfit says why a job can't run on a node as slurmctld has it now; "" if it can. It asks for all nodes, because what slurmrestd 24.11
// answers of a single one names the first partition, whichever the node is in.
func (c *Controller) unfit(ctx context.Context, j *snapshot.Job, name string) (string, error) {
	list, err := c.Slurm.Nodes(ctx, time.Time{})
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(list.Nodes, func(n slurmrest.Node) bool { return n.Name == name })
	if i < 0 {
		return "slurmctld has no such node", nil
	}
	node := &list.Nodes[i]
	if len(node.UnknownWords) > 0 {
		return "its state has words that this program does not know: " + strings.Join(node.UnknownWords, " "), nil
	}
	record := snapshot.NodeOf(node)
	free, request := record.Free(), j.Request()
	if !free.Usable {
		return "it is " + node.State.String(), nil
	}
	if _, fits := free.Fits(&request); !fits {
		return "the job does not fit there now", nil
	}
	return "", nil
}

// RequestOf is a job in the words of the advisor's interface.
func RequestOf(j *snapshot.Job) service.Job {
	r := j.Request()
	return service.Job{
		ID: j.ID, Name: j.Name, Partition: j.Partition, Account: j.Account, QOS: j.QOS, LimitMinutes: j.LimitMinutes, Nodes: 1,
		CPUs: r.CPUMilli / 1000, MemoryMiB: r.MemMiB, TRESPerJob: gres(j.TRES), Submit: j.Submit,
	}
}

// gres are the parts of Slurm's text of resources that are generic ones.
func gres(tres string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(tres, ","), func(part string) bool { return !strings.HasPrefix(part, "gres/") }), ",")
}

// short cuts a text for a comment.
func short(text string) string {
	if len(text) > 200 {
		return strings.ToValidUTF8(text[:200], "") + "…"
	}
	return text
}
