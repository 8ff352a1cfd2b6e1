package lost_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/guard/lost"
	"github.com/berth-hpc/berth/components/guard/slurmtest"
)

// unwritten is for how long slurmctld may have started jobs without having written them down.
const unwritten = 10 * time.Second

// 200 jobs run and queue, alone, in an array, on two nodes and behind one another, while slurmctld is killed and ended at random moments, and
// slurmdbd and MariaDB once each. Every job has one COMPLETED record, and another start only after a record that says why, or where the
// first was in the last seconds of a slurmctld that was killed; no node stays drained, no job held.
func TestRealChurn(t *testing.T) {
	m := slurmtest.Start(t)
	s := m.Configure(slurmtest.Accounting+`JobAcctGatherType=jobacct_gather/linux
PrologFlags=Alloc
ReturnToService=1
SlurmdTimeout=120
AccountingStorageEnforce=associations,limits,qos,safe
SchedulerParameters=default_queue_depth=1000
NodeName=w-0 NodeHostname=ctl Port=7000 CPUs=12 RealMemory=1000
NodeName=w-1 NodeHostname=ctl Port=7001 CPUs=12 RealMemory=1000
PartitionName=cpu Nodes=ALL Default=YES State=UP
`, nil)
	m.Database()
	s.Slurmctld()
	for _, argv := range [][]string{{"add", "account", "vision"}, {"add", "user", "root", "account=vision"}} {
		s.Client("sacctmgr", append([]string{"--immediate"}, argv...)...)
	}
	s.Slurmd("w-0", "w-1")
	if err := os.Mkdir(filepath.Join(m.Dir, "out"), 0o755); err != nil {
		t.Fatal(err)
	}
	const script = `echo "began $SLURM_JOB_ID $(date +%s)"; sleep $((4 + SLURM_JOB_ID % 9)); echo "ended $SLURM_JOB_ID"`
	submitted := map[string]string{} // id: kind
	submit := func(kind string, options ...string) string {
		t.Helper()
		id := s.Client("sbatch", append(options, "--parsable", "--requeue", "--open-mode=append", "--account=vision", "--mem=10", "--chdir=/tmp",
			"--output="+m.Dir+"/out/%j", "--wrap", script)...)
		submitted[id] = kind
		return id
	}
	for range 30 {
		submit("two nodes", "--nodes=2", "--ntasks=2")
		first := submit("first of two")
		submit("behind it", "--dependency=afterok:"+first)
		submit("of two CPUs", "--cpus-per-task=2")
	}
	array := submit("array", "--array=0-79%10")
	delete(submitted, array)
	for task := range 80 {
		submitted[fmt.Sprintf("%s_%d", array, task)] = "of an array"
	}

	// A job younger than slurmctld's last writing does not outlive a SIGKILL.
	last := time.Now().Unix()
	slurmtest.Eventually(t, time.Minute, "the queue is written", func() (bool, string) {
		return m.Command("sh", "-c", fmt.Sprintf("test $(stat -c %%Y %s/state/job_state) -gt %d", m.Dir, last)).Run() == nil, ""
	})

	said, err := os.Create(filepath.Join(m.Dir, "log", "guard.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	finder := &lost.Finder{Slurm: s.Programs(), Log: slog.New(slog.NewTextHandler(said, nil))}
	ctx, stop := context.WithCancel(t.Context())
	strays := &lost.Strays{Slurm: s.Programs(), Log: finder.Log}
	var guards sync.WaitGroup
	guards.Go(func() { finder.Run(ctx) })
	guards.Go(func() { strays.Run(ctx) })
	t.Cleanup(func() { stop(); guards.Wait() })

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	pause := func() { time.Sleep(time.Duration(12000+dice.IntN(8000)) * time.Millisecond) }
	left := func() string { return s.Client("squeue", "--array", "--noheader", "--format=%i %T %r") }
	kept := ""
	var kills []time.Time
	for round := range 8 {
		pause()
		t.Logf("%d jobs and tasks wait or run", len(strings.Split(left(), "\n")))
		// What slurmctld was told in its last seconds does not outlive a SIGKILL, as of any submission; SIGTERM it may not lose by.
		signal := []string{"-KILL", "-TERM"}[round%2]
		if signal == "-KILL" {
			kills = append(kills, time.Now())
		}
		m.Run("sh", "-c", `pid=$(cat "$1/run/slurmctld.pid"); kill $2 $pid; while [ -d /proc/$pid ] && ! grep -q '^State:.Z' /proc/$pid/status; do sleep 0.1; done`, "end", m.Dir, signal)
		time.Sleep(time.Duration(dice.IntN(2000)) * time.Millisecond)
		kept += fmt.Sprintf("--- round %d, %s\n", round, signal) + m.Log("slurmctld.log")
		switch round {
		case 2:
			m.Run("pkill", "-KILL", "-x", "slurmdbd")
			s.Slurmctld()
			pause()
			s.Slurmdbd()
			continue
		case 5:
			m.Run("pkill", "-KILL", "-x", "mariadbd")
			s.Slurmctld()
			pause()
			s.MariaDB()
			continue
		}
		s.Slurmctld()
	}
	slurmtest.Eventually(t, 8*time.Minute, "the queue is empty", func() (bool, string) {
		out := left()
		return out == "", out + m.Log("guard.log") + s.Client("sinfo", "--list-reasons")
	})
	// slurmctld tells slurmdbd what it kept while that was away.
	records := map[string][]string{}
	slurmtest.Eventually(t, 2*time.Minute, "accounting is whole", func() (bool, string) {
		clear(records)
		missing := ""
		for line := range strings.Lines(s.Client("sacct", "--allusers", "--allocations", "--array", "--duplicates", "--noheader", "--parsable2", "--format=jobid,state", "--starttime=2000-01-01")) {
			id, state, _ := strings.Cut(strings.TrimSpace(line), "|")
			records[id] = append(records[id], state)
		}
		for id := range submitted {
			if states := records[id]; len(states) == 0 || states[len(states)-1] != "COMPLETED" {
				missing += fmt.Sprintf("job %s: %q\n%s%s%s%s\n", id, states, about(id, kept+m.Log("slurmctld.log")), about(id, m.Log("w-0.log")), about(id, m.Log("w-1.log")),
					s.Client("sacct", "--duplicates", "--jobs="+id, "--format=jobid,state,exitcode,start,end,nodelist"))
			}
		}
		return missing == "", missing
	})
	again := 0
	for id, kind := range submitted {
		states := records[id]
		for i, state := range states {
			// PENDING: slurmdbd 26.05 keeps the record of a wait that a second requeue has ended.
			if last := i == len(states)-1; last != (state == "COMPLETED") || !last && state != "NODE_FAIL" && state != "REQUEUED" && state != "PENDING" {
				t.Errorf("job %s (%s) has the records %q", id, kind, states)
			}
		}
		again += len(states) - 1
	}
	if len(records) != len(submitted) {
		t.Errorf("accounting has %d jobs, submitted were %d", len(records), len(submitted))
	}
	files, err := os.ReadDir(filepath.Join(m.Dir, "out"))
	if err != nil || len(files) != len(submitted) {
		t.Errorf("%d jobs wrote something, submitted were %d: %v", len(files), len(submitted), err)
	}
	// What slurmctld started shortly before it was killed it has forgotten, without a record.
	forgettable := func(start int64) bool {
		return slices.ContainsFunc(kills, func(kill time.Time) bool {
			return start <= kill.Unix() && start >= kill.Add(-unwritten).Unix()
		})
	}
	ran, forgotten := 0, 0
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(m.Dir, "out", file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		ended := false
		for line := range strings.Lines(string(text)) {
			var start int64
			if _, err := fmt.Sscanf(line, "began "+file.Name()+" %d", &start); err == nil {
				ran++
				if forgettable(start) {
					forgotten++
				}
			}
			ended = ended || line == "ended "+file.Name()+"\n"
		}
		if !ended {
			t.Errorf("job %s wrote %q", file.Name(), text)
		}
	}
	// Fewer where slurmctld believed in a start that no worker was told of.
	if most := len(submitted) + again + forgotten; ran < len(submitted) || ran > most {
		t.Errorf("%d jobs began %d times, with %d records of other starts and %d starts in the seconds before a SIGKILL", len(submitted), ran, again, forgotten)
	}
	t.Logf("%d jobs, %d starts, %d records of starts that did not count, %d in the seconds before a SIGKILL\n%s", len(submitted), ran, again, forgotten, m.Log("guard.log"))
	if drained := s.Client("sinfo", "--noheader", "--states=DRAIN", "--Node", "--format=%N %E"); drained != "" {
		t.Errorf("drained are %s", drained)
	}
	if log := m.Log("slurmctld.log"); strings.Contains(log, "fatal") {
		t.Error(log)
	}
}

// about are the lines of a log that name the job.
func about(job, log string) (lines string) {
	word := regexp.MustCompile(`\b` + job + `\b`)
	for line := range strings.Lines(log) {
		if word.MatchString(line) || strings.HasPrefix(line, "--- ") {
			lines += line
		}
	}
	return lines
}
