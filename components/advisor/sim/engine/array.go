package engine

// array is a job array with tasks in the system. Its tasks are jobs of their own; what they have in common is the bound on how many
// of them may run at once, and that others may wait for all of them together.
type array struct {
	live   int         // tasks in the system
	active int         // of these, in the queue or running, where a bound counts them
	held   []dependant // tasks beyond the bound, in order of arrival
	failed bool        // a task has ended without completing
	after  []dependant // who waits for the whole array
}

// join counts a task into its array.
func (e *Engine) join(j *Job) {
	if j.Array == 0 {
		return
	}
	a := e.arrays[j.Array]
	if a == nil {
		a = &array{}
		e.arrays[j.Array] = a
	}
	a.live++
}

// enter puts a job that waits for nobody into the queue, or holds it back while as many tasks of its array as may run are in the
// queue or running.
func (e *Engine) enter(j *Job) {
	if j.Array != 0 && j.ArrayLimit > 0 {
		a := e.arrays[j.Array]
		if a.active >= int(j.ArrayLimit) {
			a.held = append(a.held, dependant{j, j.Seq})
			e.held[j.ID] = j
			return
		}
		a.active++
		j.active = true
	}
	e.enqueue(j)
}

// leaveArray counts a task that has ended out of its array, lets the next one into the queue, and with the last task releases who
// waits for the array.
func (e *Engine) leaveArray(j *Job, completed bool) {
	a := e.arrays[j.Array]
	if a == nil {
		return
	}
	a.live--
	a.failed = a.failed || !completed
	if j.active {
		a.active--
		for len(a.held) > 0 {
			next := a.held[0].job
			stale := next.dead || next.Seq != a.held[0].seq
			a.held = a.held[1:]
			if !stale {
				delete(e.held, next.ID)
				e.enter(next)
				e.due = true
				break
			}
		}
	}
	if a.live > 0 {
		return
	}
	delete(e.arrays, j.Array)
	if a.failed {
		e.breakID(j.Array)
	}
	for _, d := range a.after {
		e.release(d, !a.failed)
	}
}

// brokenIDs is how many ids of jobs that ended without completing are remembered for jobs that come later and depend on them. Older
// ones are forgotten, as Slurm forgets old jobs.
const brokenIDs = 1 << 16

// breakID remembers that what depends on an id will never run.
func (e *Engine) breakID(id int64) {
	if _, known := e.broken[id]; known {
		return
	}
	e.broken[id] = struct{}{}
	if len(e.brokenRing) < brokenIDs {
		e.brokenRing = append(e.brokenRing, id)
		return
	}
	delete(e.broken, e.brokenRing[e.brokenNext])
	e.brokenRing[e.brokenNext] = id
	e.brokenNext = (e.brokenNext + 1) % brokenIDs
}
