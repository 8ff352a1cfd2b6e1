package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The features of Slurm that people choose it for, one test each, named by the row of the table that it is: by users of
// two accounts, from the login pod, by Slurm's own answers. This file has those of the queue.

// F1: of two users in a queue, the one whose account has used less of its share starts first.
func TestF1FairShare(t *testing.T) {
	r := begin(t, 12*time.Minute)
	s := r.clone()
	s.declare(`lab: {
	accounts: {burned: shares: 70, fresh: shares: 30}
	users: {student: accounts: ["burned"], researcher: accounts: ["fresh"]}
	slurm: extraLines: ["PriorityCalcPeriod=1"] // Slurm recomputes fair share every five minutes otherwise
}`)
	s.deliver("Two accounts of 70 and 30 shares")
	if got := r.mustAs(student, "sshare --noheader --parsable2 --all --accounts=burned,fresh --format=account,user,rawshares | tr -d ' ' | LC_ALL=C sort"); got !=
		"burned|student|1\nburned||70\nfresh|researcher|1\nfresh||30" {
		t.Errorf("sshare shows %q, want the site's 70 and 30", got)
	}
	if out, err := r.inController("sacctmgr -i modify account where name=burned,fresh set rawusage=0"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const card = "--partition=gpu-rtx3080 --gres=gpu:1 --time=10"
	r.waitJob(r.submit(student, "--partition=cpu --account=burned --ntasks=2", "sleep 20"), "COMPLETED", workerStarts)
	first := r.waitJob(r.submit(researcher, card, "sleep 600"), "RUNNING", workerStarts)
	r.eventually(150*time.Second, "the use is charged to its account", func() (bool, string) {
		out, err := r.as(student, "sshare --noheader --parsable2 --accounts=burned,fresh --format=account,user,rawusage,fairshare --all | grep -E 'student|researcher'")
		if err != nil {
			return false, err.Error()
		}
		factor := map[string]float64{}
		for _, line := range strings.Fields(out) {
			fields := strings.Split(line, "|")
			factor[fields[0]], _ = strconv.ParseFloat(fields[len(fields)-1], 64)
		}
		return factor["fresh"] > factor["burned"], out
	})
	// The one with the worse claim first, so that order of submission is no help to the other.
	used := r.submit(student, card+" --account=burned", "sleep 30")
	rested := r.submit(researcher, card+" --account=fresh", "sleep 30")
	priorities := map[string]int{}
	r.eventually(60*time.Second, "both jobs have a fair share factor", func() (bool, string) {
		out, err := r.as(student, "sprio --noheader --format='%i %F'") // 24.11's takes no list of jobs
		if err != nil {
			return false, err.Error()
		}
		for line := range strings.Lines(out) {
			if fields := strings.Fields(line); len(fields) == 2 && (fields[0] == used || fields[0] == rested) {
				priorities[fields[0]], _ = strconv.Atoi(fields[1])
			}
		}
		return len(priorities) == 2 && priorities[rested] > priorities[used], out
	})
	t.Logf("FAIRSHARE in sprio: %d for the account that had used nothing, %d for the other", priorities[rested], priorities[used])
	r.mustAs(researcher, "scancel "+first.id)
	r.waitJob(rested, "RUNNING", workerStarts)
	if j, err := r.lookJob(used); err != nil || j.state != "PENDING" {
		t.Errorf("%v %v; want it PENDING while the job of the better fair share runs", j, err)
	}
}

// F4: a job over the partition's limit is refused when it is submitted, and one without a time gets the partition's default.
func TestF4PartitionTimes(t *testing.T) {
	r := begin(t, 5*time.Minute)
	s := r.clone()
	s.edit("cpu:", "partition: default: true", `partition: {default: true, maxTime: "2:00:00", defaultTime: "20m"}`)
	s.deliver("Two hours at most in cpu")
	if id, err := r.trySubmit(student, "--partition=cpu --time=3:00:00", "true"); err == nil {
		t.Errorf("job %s of three hours was accepted in a partition of two", id)
	} else if !strings.Contains(err.Error(), "Requested time limit is invalid") {
		t.Errorf("a job over the limit was refused with %v", err)
	}
	if got := r.mustAs(student, "sinfo --noheader --partition=cpu --format='%l %L' | sort -u"); got != "2:00:00 20:00" {
		t.Errorf("sinfo shows the limits %q, want 2:00:00 and 20:00", got)
	}
	id := r.submit(researcher, "--partition=cpu --hold", "true")
	if got := r.mustAs(researcher, "squeue --noheader --format=%l --jobs="+id); got != "20:00" {
		t.Errorf("a job without a time got %q, want the default of 20:00", got)
	}
	at := r.submit(researcher, "--partition=cpu --hold --time=2:00:00", "true")
	if got := r.mustAs(researcher, "squeue --noheader --format=%l --jobs="+at); got != "2:00:00" {
		t.Errorf("a job of just the limit has %q", got)
	}
}

// F5: a job that outstays its time gets SIGTERM, and SIGKILL when KillWait is over.
func TestF5TimeLimit(t *testing.T) {
	r := begin(t, 10*time.Minute)
	id := r.submit(student, "--partition=cpu --time=1", `trap 'echo TERM at $SECONDS' TERM
while :; do sleep 1; echo $SECONDS > $HOME/e2e-alive; done`)
	r.waitJob(id, "RUNNING", workerStarts)
	r.waitJob(id, "TIMEOUT", 180*time.Second)
	var term, alive int
	out := r.output(id)
	if _, said, found := strings.Cut(out, "TERM at "); found {
		_, _ = fmt.Sscan(said, &term)
	}
	if term < 55 {
		t.Errorf("the job wrote %q; want a SIGTERM after a minute", out)
	}
	if _, err := fmt.Sscan(r.mustAs(student, "cat $HOME/e2e-alive && rm $HOME/e2e-alive"), &alive); err != nil || alive < term || alive > term+30 {
		t.Errorf("SIGTERM came at %d s, the job lived until %d s (%v); want it killed KillWait (%s) later", term, alive, err, r.configValue("KillWait"))
	}
	r.eventually(60*time.Second, "sacct says TIMEOUT", func() (bool, string) {
		out, err := r.as(student, "sacct --noheader --parsable2 --allocations --format=state,elapsedraw --jobs="+id)
		if err != nil {
			return false, err.Error()
		}
		state, seconds, _ := strings.Cut(strings.TrimSpace(out), "|")
		elapsed, _ := strconv.Atoi(seconds)
		return state == "TIMEOUT" && elapsed >= 60 && elapsed < 150, out
	})
}

// F6: a short job fills the gap before a wide one, which does not start later for it.
func TestF6Backfill(t *testing.T) {
	r := begin(t, 10*time.Minute)
	long := r.waitJob(r.submit(student, "--partition=cpu --nodes=1 --ntasks=2 --time=30", "sleep 1700"), "RUNNING", workerStarts)
	nodes := len(r.nodeNames("cpu"))
	wide := r.submit(student, fmt.Sprintf("--partition=cpu --nodes=%d --ntasks-per-node=2 --time=10", nodes), "true")
	start := func() time.Time {
		out := r.mustAs(student, "squeue --noheader --start --format=%S --jobs="+wide)
		at, _ := time.Parse("2006-01-02T15:04:05", out)
		return at
	}
	var planned time.Time
	r.eventually(120*time.Second, "the wide job has an expected start", func() (bool, string) {
		planned = start()
		return !planned.IsZero(), ""
	})
	// Nice, because the site's priority favours small jobs: it must start by the gap alone.
	short := r.submit(student, "--partition=cpu --nodes=1 --ntasks=2 --time=4 --nice=3000", "sleep 20")
	priority := func(id string) int {
		n, err := strconv.Atoi(r.mustAs(student, "squeue --noheader --format=%Q --jobs="+id))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if w, s := priority(wide), priority(short); w < s {
		t.Errorf("the short job has priority %d, the wide one %d: it would start first anyway", s, w)
	}
	r.waitJob(short, "RUNNING", workerStarts)
	if out := r.mustAs(student, "scontrol show job "+short); !strings.Contains(out, "Scheduler=Backfill") {
		t.Errorf("the short job was not started by backfill:\n%s", out)
	}
	if j, err := r.lookJob(wide); err != nil || j.state != "PENDING" || j.reason != "Resources" {
		t.Errorf("%v %v; want it PENDING for Resources", j, err)
	}
	r.waitJob(short, "COMPLETED", 120*time.Second)
	r.eventually(90*time.Second, "the wide job is planned again", func() (bool, string) { planned := start(); return !planned.IsZero(), "" })
	if now := start(); now.After(planned.Add(time.Minute)) {
		t.Errorf("the wide job was expected at %s before the short one ran and at %s after it", planned, now)
	}
	r.mustAs(student, "scancel "+long.id)
	r.waitJob(wide, "COMPLETED", workerStarts)
}

// F7: an array of a thousand is one line, submitted at once, runs as many at a time as it says, and all of it.
func TestF7Arrays(t *testing.T) {
	r := begin(t, 20*time.Minute)
	r.crowd()
	out := r.mustAs(student, `began=$(date +%s%N)
id=$(sbatch --parsable --job-name=e2e --partition=cpu --mem-per-cpu=50M --output=/dev/null --open-mode=append --error=`+outputDir+`/e2e-%A.err --array=0-999%50 --wrap 'sleep 1')
echo $id $(( ($(date +%s%N) - began) / 1000000 ))`)
	var id string
	var milliseconds int
	if _, err := fmt.Sscan(out, &id, &milliseconds); err != nil {
		t.Fatalf("sbatch said %q: %v", out, err)
	}
	r.submitted = append(r.submitted, id)
	if milliseconds > 1000 {
		t.Errorf("the array was submitted in %d ms, want under a second", milliseconds)
	}
	t.Logf("1,000 tasks submitted in %d ms", milliseconds)
	if lines := strings.Fields(r.mustAs(student, "squeue --noheader --states=PENDING --format=%i --jobs="+id)); len(lines) != 1 || !strings.HasPrefix(lines[0], id+"_[") {
		t.Errorf("the waiting tasks are %d lines of squeue, want one: %v", len(lines), lines)
	}
	began, most := time.Now(), 0
	r.eventually(15*time.Minute, "all tasks have ended", func() (bool, string) {
		out, err := r.as(student, "squeue --noheader --array --format=%T --jobs="+id)
		if err != nil {
			return strings.Contains(err.Error(), "Invalid job id"), err.Error()
		}
		active, left := 0, 0
		for _, state := range strings.Fields(out) {
			left++
			if state == "RUNNING" || state == "CONFIGURING" {
				active++
			}
		}
		most = max(most, active)
		return left == 0, fmt.Sprintf("%d left, %d run", left, active)
	})
	t.Logf("1,000 tasks of a second in %.0f s, %d at a time at most", time.Since(began).Seconds(), most)
	if most > 50 || most < 25 {
		t.Errorf("%d tasks ran at a time, want 50 at most and about so many", most)
	}
	r.eventually(3*time.Minute, "1,000 records", func() (bool, string) {
		out, err := r.as(student, "sacct --noheader --parsable2 --array --allocations --format=state --jobs="+id+" | sort | uniq -c")
		if err != nil {
			return false, err.Error()
		}
		said, _ := r.as(student, "tail -n 20 "+outputDir+"/e2e-"+id+".err")
		return strings.Join(strings.Fields(out), " ") == "1000 COMPLETED", out + said
	})
}

// L16: an array with a bound, of which half is cancelled while its workers still start and one task is requeued in the middle, and an array
// that follows it task by task. Every task that was not cancelled has run to its end, in bounds, and so has its follower.
func TestArrayWhileScaling(t *testing.T) {
	r := begin(t, 15*time.Minute)
	r.waitNoWorkers("cpu")
	array := r.submit(student, "--partition=cpu --array=0-9%3 --requeue --time=10", `[ $SLURM_ARRAY_TASK_ID = 1 ] && [ ${SLURM_RESTART_COUNT:-0} = 0 ] && sleep 500
sleep 3`)
	follower := r.submit(researcher, "--partition=cpu --array=0-9 --time=5 --dependency=aftercorr:"+array, "true")
	tasks := func(id string) map[string]string {
		out, err := r.inController("squeue --noheader --array --states=all --format='%K %T %r' --jobs=" + id)
		if err != nil {
			t.Logf("squeue: %v", err)
		}
		states := map[string]string{}
		for line := range strings.Lines(out) {
			task, state, _ := strings.Cut(strings.TrimSpace(line), " ")
			states[task] = state
		}
		return states
	}
	active := func(states map[string]string) (n int) {
		for _, state := range states {
			if strings.HasPrefix(state, "RUNNING") || strings.HasPrefix(state, "CONFIGURING") || strings.HasPrefix(state, "COMPLETING") {
				n++
			}
		}
		return n
	}
	r.eventually(60*time.Second, "the first tasks have nodes, which are not up yet", func() (bool, string) {
		states := tasks(array)
		return active(states) > 0, fmt.Sprint(states)
	})
	r.mustAs(student, "scancel "+array+"_[5-9]")
	r.eventually(workerStarts, "task 1 runs", func() (bool, string) {
		states := tasks(array)
		return strings.HasPrefix(states["1"], "RUNNING"), fmt.Sprint(states)
	})
	r.mustAs(student, "scontrol requeue "+array+"_1")
	most := 0
	r.eventually(5*time.Minute, "the tasks that were left have ended", func() (bool, string) {
		states := tasks(array)
		most = max(most, active(states))
		if strings.HasPrefix(states["1"], "PENDING") {
			_, _ = r.inController("scontrol update jobid=" + array + "_1 starttime=now") // Slurm holds a requeued job back for two minutes
		}
		for _, task := range []string{"0", "1", "2", "3", "4"} {
			if !strings.HasPrefix(states[task], "COMPLETED") {
				return false, fmt.Sprint(states)
			}
		}
		return true, ""
	})
	if most > 3 {
		t.Errorf("%d tasks of the array ran at a time, want 3 at most", most)
	}
	r.eventually(2*time.Minute, "each follower has run behind its own task, and the others never will", func() (bool, string) {
		states := tasks(follower)
		for i := range 10 {
			want := "COMPLETED"
			if i >= 5 {
				want = "PENDING DependencyNeverSatisfied"
			}
			if !strings.HasPrefix(states[fmt.Sprint(i)], want) {
				return false, fmt.Sprint(states)
			}
		}
		return true, ""
	})
	r.eventually(60*time.Second, "accounting tells the same", func() (bool, string) {
		out, err := r.as(student, "sacct --noheader --parsable2 --array --allocations --duplicates --format=jobid,state --jobs="+array)
		if err != nil {
			return false, err.Error()
		}
		records := map[string][]string{}
		for line := range strings.Lines(out) {
			id, state, _ := strings.Cut(strings.TrimSpace(line), "|")
			state, _, _ = strings.Cut(state, " ") // CANCELLED by 2001
			records[id] = append(records[id], state)
		}
		for i := range 10 {
			want := []string{"COMPLETED"}
			switch {
			case i == 1:
				want = []string{"REQUEUED", "COMPLETED"}
			case i >= 5:
				want = nil // Slurm writes nothing down of a task that is cancelled before it has a record apart from its array's
			}
			if got := records[fmt.Sprintf("%s_%d", array, i)]; !slices.Equal(got, want) {
				return false, out
			}
		}
		return true, ""
	})
}

// crowd lets many small jobs share the CPUs of pool cpu: these features need jobs by the dozen, not cores.
func (r *run) crowd() {
	r.Helper()
	s := r.clone()
	s.edit("cpu:", "partition: default: true", `partition: {default: true, overSubscribe: "FORCE:8"}`)
	s.deliver("Eight jobs a CPU")
}

// F8: a chain stops at the job that fails; its successor never runs, or is cancelled where it asked for that.
func TestF8Dependencies(t *testing.T) {
	r := begin(t, 8*time.Minute)
	first := r.submit(student, "--partition=cpu", "sleep 5")
	second := r.submit(student, "--partition=cpu --dependency=afterok:"+first, "exit 1")
	third := r.submit(student, "--partition=cpu --dependency=afterok:"+second, "true")
	killed := r.submit(student, "--partition=cpu --kill-on-invalid-dep=yes --dependency=afterok:"+second, "true")
	anyway := r.submit(student, "--partition=cpu --dependency=afterany:"+second, "true")
	if j, err := r.lookJob(second); err != nil || j.state != "PENDING" || j.reason != "Dependency" {
		t.Errorf("%v %v; want it PENDING for its dependency", j, err)
	}
	r.waitJob(first, "COMPLETED", workerStarts)
	r.waitJob(second, "FAILED", workerStarts)
	r.waitJob(anyway, "COMPLETED", workerStarts)
	r.eventually(90*time.Second, "the third job never can", func() (bool, string) {
		j, err := r.lookJob(third)
		return err == nil && j.state == "PENDING" && j.reason == "DependencyNeverSatisfied", fmt.Sprint(j, err)
	})
	r.waitJob(killed, "CANCELLED", 90*time.Second)
}

// F16: a user holds and releases, lowers and reorders their own jobs, and nobody else's.
func TestF16HoldNiceTop(t *testing.T) {
	r := begin(t, 8*time.Minute)
	held := r.submit(student, "--partition=cpu --hold", "true")
	if j, err := r.lookJob(held); err != nil || j.state != "PENDING" || j.reason != "JobHeldUser" {
		t.Errorf("%v %v; want it held by its user", j, err)
	}
	if out, err := r.as(researcher, "scontrol release "+held); err == nil {
		t.Errorf("somebody else released the job: %s", out)
	} else if !strings.Contains(err.Error(), "Invalid user id") {
		t.Errorf("somebody else's release failed with %v", err)
	}

	// A queue of three behind one that holds the card.
	const card = "--partition=gpu-rtx3080 --gres=gpu:1 --time=10"
	r.waitJob(r.submit(student, card, "sleep 600"), "RUNNING", workerStarts)
	var queue []string
	for range 3 {
		queue = append(queue, r.submit(student, card, "true"))
	}
	priority := func(id string) int {
		t.Helper()
		n, err := strconv.Atoi(r.mustAs(student, "squeue --noheader --format=%Q --jobs="+id))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := priority(queue[0])
	r.mustAs(student, "scontrol update jobid="+queue[0]+" nice=100")
	r.eventually(30*time.Second, "nice lowers the priority", func() (bool, string) {
		now := priority(queue[0])
		return now <= before-50 || before < 100 && now < before, fmt.Sprintf("%d, was %d", now, before)
	})
	if _, err := r.as(student, "scontrol update jobid="+queue[0]+" nice=-500"); err == nil {
		t.Error("a user raised a job's priority above what it was")
	}
	r.mustAs(student, "scontrol top "+queue[2])
	r.eventually(30*time.Second, "the last is at the top", func() (bool, string) {
		order := []int{priority(queue[0]), priority(queue[1]), priority(queue[2])}
		return slices.Max(order) == order[2], fmt.Sprint(order)
	})
	r.mustAs(student, "scontrol release "+held)
	r.waitJob(held, "COMPLETED", workerStarts)
}
