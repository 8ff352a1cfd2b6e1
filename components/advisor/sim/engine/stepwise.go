package engine

import (
	"fmt"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// View gives the scheduler's view to a caller that schedules by hand, between calls of Moment.
func (e *Engine) View() *View { return &e.view }

// Moment handles the next moment at which anything happens, if it is not after t, and leaves scheduling to the caller. It reports
// whether there was one.
func (e *Engine) Moment(t workload.Time) bool {
	for len(e.events) > 0 && e.events[0].at <= t {
		if e.events[0].stale() {
			e.pop()
			continue
		}
		if t == workload.Never && !e.hope() {
			return false
		}
		at := e.events[0].at
		e.tick(at)
		for len(e.events) > 0 && e.events[0].at == at {
			if ev := e.pop(); !ev.stale() {
				e.handle(&ev)
			}
		}
		e.due = false
		for _, j := range e.running {
			e.progress(j)
		}
		return true
	}
	return false
}

// Arrive puts a job into the queue at its submission, without letting a scheduler work. All moments up to it must have been
// handled.
func (e *Engine) Arrive(w *workload.Job) error {
	e.due = false
	if e.began && len(e.events) > 0 && e.events[0].at <= w.Submit && !e.events[0].stale() {
		return fmt.Errorf("job %d arrives at %d µs, while an event at %d µs is yet to be handled", w.ID, w.Submit, e.events[0].at)
	}
	err := e.Submit(w)
	e.due = false
	return err
}

// Live is the number of jobs in the system.
func (e *Engine) Live() int { return e.live }
