package transition

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/berth-hpc/berth/components/advisor/snapshot"
)

// Advise says what the advisor would say of a job now.
type Advise func(*snapshot.Job) Advice

// Observer writes down what it sees happen to jobs. It is fed with every change of the snapshot, in order, from one goroutine.
type Observer struct {
	Log    *Log
	Advise Advise
	Errors *slog.Logger

	cluster string
	open    map[key]Event // jobs that have not ended, and what was written last
	ended   map[key]bool  // jobs that have: slurmctld shows them for minutes yet
	waiting map[int64]bool
	ids     map[int64]key
}

type key struct{ job, submit int64 }

// Restore reads which jobs had not ended when the log was last written, so that a restart repeats nothing and loses nothing.
func (o *Observer) Restore() error {
	o.open, o.ended, o.ids, o.waiting = map[key]Event{}, map[key]bool{}, map[int64]key{}, map[int64]bool{}
	bad := 0
	err := Read(o.Log.dir, func(r *Record) error {
		k := key{r.Job, r.Submit}
		if r.Event == End {
			o.end(k)
		} else {
			o.open[k] = r.Event
			o.ids[r.Job] = k
		}
		return nil
	}, func(Problem) error { bad++; return nil })
	if bad > 0 {
		o.Errors.Warn("the log has lines that can't be read; advisor log verify names them", "lines", bad)
	}
	return err
}

// Observe writes down what a change of the snapshot says.
func (o *Observer) Observe(d *snapshot.Delta) {
	o.cluster = d.Cluster
	var records []*Record
	for i := range d.Jobs {
		j := &d.Jobs[i]
		if j.Pending() {
			o.waiting[j.ID] = true
		} else {
			delete(o.waiting, j.ID)
		}
		records = append(records, o.job(j, d.TakenAt)...)
	}
	for _, id := range d.Gone {
		delete(o.waiting, id)
		// Slurm forgot the job between two looks: how it ended is not known here.
		if k, open := o.ids[id]; open {
			records = append(records, &Record{
				Schema: Schema, Event: End, At: d.TakenAt.Unix(), Cluster: o.cluster, Job: id, Submit: k.submit, State: "UNKNOWN",
			})
			o.end(k)
		}
	}
	if err := o.Log.Append(records...); err != nil {
		o.Errors.Error("records are lost", "records", len(records), "why", err.Error())
	}
}

// remembered bounds how many ended jobs are kept in mind.
const remembered = 200_000

func (o *Observer) end(k key) {
	delete(o.open, k)
	delete(o.ids, k.job)
	if len(o.ended) >= remembered {
		clear(o.ended)
	}
	o.ended[k] = true
}

// job gives the records that are still missing of a job.
func (o *Observer) job(j *snapshot.Job, at time.Time) []*Record {
	k := key{j.ID, j.Submit}
	last, open := o.open[k]
	ended := terminal(j.State)
	if o.ended[k] && ended {
		return nil
	}
	record := func(e Event) *Record {
		return &Record{Schema: Schema, Event: e, At: at.Unix(), Cluster: o.cluster, Job: j.ID, Submit: j.Submit}
	}
	var out []*Record
	if !open {
		r := record(Seen)
		r.Features = &Features{
			Name: clip(j.Name), User: clip(j.User), Account: clip(j.Account), Partition: clip(j.Partition), QOS: clip(j.QOS),
			LimitMinutes: j.LimitMinutes, TRES: clip(j.TRES), Tasks: clip(j.Tasks), Waiting: len(o.waiting),
		}
		if o.Advise != nil && j.Pending() {
			advice := o.Advise(j)
			r.Advice = &advice
		}
		out = append(out, r)
		last = Seen
	}
	if last == Seen && !j.Pending() && j.Start != 0 && j.Nodes != "" {
		r := record(Start)
		r.Nodes, r.Started = clip(j.Nodes), j.Start
		out = append(out, r)
		last = Start
	}
	o.open[k], o.ids[j.ID] = last, k
	if ended {
		r := record(End)
		r.State, r.Exit, r.Ended, r.Nodes = j.State, j.Exit, j.End, clip(j.Nodes)
		if j.Nodes != "" {
			r.Started = j.Start
		}
		out = append(out, r)
		o.end(k)
	}
	return out
}

// clip keeps a text short enough for a line.
func clip(s string) string {
	if len(s) > 2048 {
		return fmt.Sprintf("%s… (%d bytes)", s[:2000], len(s))
	}
	return s
}
