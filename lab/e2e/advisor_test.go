package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// longJobs are jobs that wait behind everything short.
func (r *run) longJobs(n int) (first string) {
	r.Helper()
	for i := range n {
		id := r.submit(student, "--partition=cpu --time=60", "sleep 1")
		if i == 0 {
			first = id
		}
	}
	r.waitAdvisor(60*time.Second, fmt.Sprintf("sees %d jobs wait", n), func(h advisorHealth) bool { return h.Waiting >= n })
	return first
}

// In shadow, as the site has it, the advisor sees a job, says what it would do, and writes down what became of it; the job
// itself is as it would be without.
func TestAdvisorShadow(t *testing.T) {
	r := begin(t, 10*time.Minute)
	r.advised("shadow")
	up := r.partitionDown("cpu")
	long := r.longJobs(2)
	began := time.Now()
	short := r.submit(student, "--partition=cpu --time=1", "echo went through")

	whole, added := r.priority(short)
	if other, _ := r.priority(long); added != 0 || max(whole-other, other-whole) > 1 {
		t.Errorf("the job has priority %d, %d of it added; a like one before it has %d", whole, added, other)
	}
	if comment := r.adminComment(short); comment != "" {
		t.Errorf("the job carries %q", comment)
	}
	// The first of three in the policy's order would get the whole boost.
	if log := r.controllerLog(began); !strings.Contains(log, "mode=shadow advice=1000 boost=0 abstain=- took=") {
		t.Errorf("slurmctld's log does not tell of advice:\n%s", lastLines(log, 20))
	}
	r.waitAdvisor(60*time.Second, "sees all three wait", func(h advisorHealth) bool { return h.Waiting >= 3 })
	up()
	j := r.waitJob(short, "COMPLETED", workerStarts)

	r.eventually(90*time.Second, "the record has the job's whole life", func() (bool, string) {
		events, err := r.recorded(short)
		if err != nil {
			return false, err.Error()
		}
		seen, start, end := events["seen"], events["start"], events["end"]
		if seen == nil || end == nil {
			return false, fmt.Sprint(events)
		}
		if advice, is := seen["advice"].(map[string]any); !is || advice["mode"] != "shadow" || advice["boost"] != 0.0 || advice["advice"] == 0.0 {
			t.Errorf("the record of the job's submission: %v", seen)
		}
		// A job can start and end between two looks; then the end says where it ran.
		if start != nil && start["nodes"] != j.nodes || end["nodes"] != j.nodes || end["state"] != "COMPLETED" || end["exit"] != "0" {
			t.Errorf("the record of where the job ran and how it ended: %v %v, Slurm says %s", start, end, j)
		}
		return true, ""
	})
	out := r.kubectl("exec", "-n", platform, controllerPod, "-c", advisorContainer, "--", "/advisor", "log", "verify", advisorState+"/log")
	t.Logf("advisor log verify: %s", strings.TrimSpace(out))
}

// Live needs a push with a checkpoint and evidence for it; then a job gets a boost within the site's bound, and says by whom. The
// revert of the push ends it.
func TestAdvisorLive(t *testing.T) {
	r := begin(t, 20*time.Minute)
	digest, topology := r.shortestFirst()

	s := r.clone()
	s.edit("advisor:", `"shadow"`, `"live"`)
	s.declare(fmt.Sprintf("lab: advisor: {checkpoint: %q, guardrails: maxBoost: 700}", digest))
	// Ages that can be watched: the whole weight within ten minutes, computed once a minute.
	s.declare(`lab: slurm: {priority: maxAge: "10m", extraLines: ["PriorityCalcPeriod=1"]}`)
	if out, err := s.command("berth", "vet"); err == nil || !strings.Contains(out, "needs an evidence record for checkpoint "+digest) {
		t.Errorf("vet of live without evidence: %v %s", err, out)
	}
	s.attest(digest, topology)
	t.Logf("git push to converged: %.1f s", s.deliver("Let the advisor boost jobs").Seconds())
	if h := r.advised("live"); h.Checkpoint != digest {
		t.Fatalf("the advisor serves %s, want %s: %+v", h.Checkpoint, digest, h)
	}

	up := r.partitionDown("cpu")
	long := r.longJobs(2)
	short := r.submit(student, "--partition=cpu --time=1", "echo went through")
	whole, added := r.priority(short)
	if other, _ := r.priority(long); added != 700 || whole-other < 699 || whole-other > 701 {
		t.Errorf("the job has priority %d, %d of it added, and the one that it passes %d; want the bound, 700, added", whole, added, other)
	}
	if comment := r.adminComment(short); !strings.HasPrefix(comment, "advisor: boost=700 value=1 checkpoint="+digest+" took=") {
		t.Errorf("the job carries %q", comment)
	}
	// A change of the job, and a job that its user set a priority factor of, are nobody's business.
	r.mustAs(student, "scontrol update jobid="+short+" TimeLimit=00:00:50")
	if _, now := r.priority(short); now != added {
		t.Errorf("a change of the job made the boost %d", now)
	}
	nice := r.submit(student, "--partition=cpu --time=1 --nice=50", "true")
	if _, now := r.priority(nice); now != 0 {
		t.Errorf("a job with a nice of its user's got a boost of %d", now)
	}
	// One call for a whole array, one for each component of a heterogeneous job.
	began := time.Now()
	array := r.submit(student, "--partition=cpu --time=1 --array=0-99", "true")
	r.trySubmitWrapped(student, "--partition=cpu --time=1 --ntasks=1 : --partition=cpu --ntasks=1")
	if calls := strings.Count(r.controllerLog(began), "advisor: user="); calls != 3 {
		t.Errorf("an array and a heterogeneous job of two made %d questions, want 3", calls)
	}
	r.mustController("scancel " + array)

	// A boosted job goes on getting older. One in a partition that is down would not: it waits for a card here.
	card := r.runningJob(student, "--partition=gpu-rtx4070 --exclusive")
	older := r.submit(student, "--partition=gpu-rtx4070 --time=1 --gres=gpu:1", "true")
	r.eventually(150*time.Second, "a boosted job's age counts", func() (bool, string) {
		out := strings.TrimSpace(r.mustController("sprio --noheader --format='%A %S' --jobs=" + older))
		var age, site int
		if _, err := fmt.Sscan(out, &age, &site); err != nil || site == 0 {
			r.Fatalf("sprio says %q of job %s, want a boost", out, older)
		}
		return age > 0, "age and boost: " + out
	})
	r.mustComplete(card)
	up()
	r.waitJob(short, "COMPLETED", workerStarts)

	s.revertLast()
	t.Logf("git revert to converged: %.1f s", s.converged().Seconds())
	r.advised("shadow")
	up = r.partitionDown("cpu")
	defer up()
	r.longJobs(1)
	again := r.submit(student, "--partition=cpu --time=1", "true")
	if _, now := r.priority(again); now != 0 || r.adminComment(again) != "" {
		t.Errorf("after the revert a job gets a boost of %d and carries %q", now, r.adminComment(again))
	}
}

// shortestFirst gives the advisor the checkpoint of a policy that lets short jobs go first.
func (r *run) shortestFirst() (digest, topology string) {
	r.Helper()
	topology = r.advised("shadow").Topology
	checkpoint := fmt.Sprintf(`{"schema":1,"kind":"order","parameters":{"order":"sjf"},"topology":%q}`, topology)
	sum := sha256.Sum256([]byte(checkpoint))
	digest = "sha256:" + hex.EncodeToString(sum[:])
	r.giveCheckpoint(digest, checkpoint)
	return digest, topology
}

// attest adds the evidence that live mode needs of a checkpoint.
func (s *site) attest(digest, topology string) {
	s.r.Helper()
	const report = "clusters/lab/evidence/sjf.md"
	if err := os.MkdirAll(filepath.Join(s.dir, filepath.Dir(report)), 0o755); err != nil {
		s.r.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, report), []byte("Shortest job first, on a box that a test owns: nobody waits for anything.\n"), 0o644); err != nil {
		s.r.Fatal(err)
	}
	s.declare(fmt.Sprintf("lab: advisor: evidence: {checkpoint: %q, topology: %q, report: %q}", digest, topology, report))
}

// Jobs that came before a shorter one are passed by it while they wait. What the advisor wrote is taken back when it no longer
// sees the cluster, and when a push takes its leave to rank away.
func TestAdvisorReranks(t *testing.T) {
	r := begin(t, 20*time.Minute)
	digest, topology := r.shortestFirst()
	card := r.runningJob(student, "--partition=gpu-rtx4070 --exclusive")
	// In shadow, so that none is boosted when it is submitted.
	var ids []string
	for _, minutes := range []string{"60", "30", "1"} {
		ids = append(ids, r.submit(student, "--partition=gpu-rtx4070 --gres=gpu:1 --time="+minutes, "true"))
	}

	s := r.clone()
	s.edit("advisor:", `"shadow"`, `"live"`)
	s.declare(fmt.Sprintf(`lab: advisor: {checkpoint: %q, guardrails: maxBoost: 700, rerank: {mode: "live", leaseSeconds: 30}}`, digest))
	s.attest(digest, topology)

	order := func() string {
		return strings.Join(strings.Fields(r.mustController("squeue --noheader --states=PENDING --sort=-p,i --format=%i --jobs="+strings.Join(ids, ","))), " ")
	}
	added := func() (sum int, each string) {
		for _, id := range ids {
			_, n := r.priority(id)
			sum, each = sum+n, fmt.Sprint(each, " ", n)
		}
		return sum, each
	}
	if sum, each := added(); sum != 0 {
		t.Fatalf("in shadow there are boosts%s", each)
	}
	wanted := ids[2] + " " + ids[1] + " " + ids[0]
	ranked := func(bound time.Duration) {
		t.Helper()
		r.eventually(bound, "the shortest is first and the longest last", func() (bool, string) {
			_, each := added()
			return order() == wanted, order() + ", boosts" + each
		})
	}
	s.deliver("Let the advisor rank jobs that wait")
	r.advised("live")
	ranked(90 * time.Second)
	if comment := r.adminComment(ids[2]); !strings.HasPrefix(comment, "advisor: rank=") || !strings.HasSuffix(comment, " checkpoint="+digest) {
		t.Errorf("the first job carries %q", comment)
	}
	if sum, each := added(); sum > 3*700 {
		t.Errorf("boosts%s, above the site's bound", each)
	}

	// Their order among each other is then Slurm's: priorities that lie a point apart, as their ages were last looked at.
	takenBack := func() {
		t.Helper()
		r.eventually(3*time.Minute, "no job has a boost", func() (bool, string) {
			sum, each := added()
			return sum == 0, order() + ", boosts" + each
		})
	}
	mend := r.sidecar().drop("-p", "tcp", "--dport", "6820")
	takenBack()
	mend()
	ranked(2 * time.Minute)

	s.revertLast()
	s.converged()
	r.advised("shadow")
	takenBack()
	r.mustComplete(card)
	for _, id := range ids {
		r.waitJob(id, "COMPLETED", workerStarts)
	}
}

// A held job for a share of a card is put on the card that the policy packs it onto, where Slurm by itself would take the other; in shadow
// nothing happens but a word in the log. What has waited too long, or can't be placed, goes back to Slurm's own rules and says so, also
// while the advisor hangs. A user's other holds are nobody's business.
func TestAdvisorPlaces(t *testing.T) {
	r := begin(t, 20*time.Minute)
	const fast, slow = "slurm-worker-gpu-rtx4070-0", "slurm-worker-gpu-rtx3080-0"
	const share = "--partition=gpu --gres=mps:25 --time=10 "
	const held = share + "--hold --job-name=placed-e2e "
	digest, topology := r.shortestFirst()
	r.waitJob(r.submit(student, "--partition=gpu-rtx3080 --gres=mps:50", shareScript), "RUNNING", workerStarts)
	own := r.submit(student, share+"--hold", "true")
	early, submitted := r.submit(student, held, "true"), time.Now()

	s := r.clone()
	s.declare(`lab: placement: {mode: "shadow", giveUpSeconds: 60}`)
	s.deliver("Let the advisor say where held jobs would go")
	advisorSays := func(words ...string) (bool, string) {
		log := r.kubectl("logs", "-n", platform, controllerPod, "-c", advisorContainer, "--tail=200")
		for line := range strings.Lines(log) {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
				return true, line
			}
		}
		return false, lastLines(log, 5)
	}
	r.eventually(150*time.Second, "the advisor says where the job would go", func() (bool, string) {
		return advisorSays("would place a job", `"job":`+early+",", `"node":"`+slow+`"`)
	})
	if j, err := r.lookJob(early); err != nil || j.reason != "JobHeldUser" || r.adminComment(early) != "" {
		t.Errorf("shadow: %v %v, comment %q", j, err, r.adminComment(early))
	}

	s.edit("advisor:", `"shadow"`, `"live"`)
	s.edit("lab: placement:", `"shadow"`, `"live"`)
	time.Sleep(time.Until(submitted.Add(61 * time.Second))) // longer than a job is tried to be placed
	s.declare(fmt.Sprintf("lab: advisor: checkpoint: %q", digest))
	s.attest(digest, topology)
	s.deliver("Let the advisor place held jobs")
	r.advised("live")
	r.eventually(60*time.Second, "the job that waited for longer than a minute goes back", func() (bool, string) {
		comment := r.adminComment(early)
		return comment == "placement: none (no place within 1m0s)", comment
	})
	r.waitJob(early, "COMPLETED", workerStarts)

	placed := r.submit(student, held, shareScript)
	j := r.waitJob(placed, "RUNNING", workerStarts)
	comment := r.adminComment(placed)
	if j.nodes != slow || !strings.HasPrefix(comment, "placement: node="+slow+" at=") || !strings.HasSuffix(comment, " checkpoint="+digest) {
		t.Errorf("%s with the comment %q; want it on %s", j, comment, slow)
	}
	r.eventually(20*time.Second, "the job says its share", func() (bool, string) {
		out := r.outputOrWhy(placed)
		return strings.TrimSpace(out) == "share 25 on "+slow, out
	})
	elsewhere := r.submit(student, held+"--exclude="+slow, "true")
	if j := r.waitJob(elsewhere, "COMPLETED", workerStarts); j.nodes != fast && j.nodes != "" {
		t.Errorf("%s; want it on %s", j, fast)
	}
	if comment := r.adminComment(elsewhere); comment != "placement: none (it excludes nodes)" {
		t.Errorf("the job that excludes a node carries %q", comment)
	}

	// The advisor hangs: nobody places, and the guard keeps what is promised.
	pid := r.sidecar().mustPid()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	lost := r.submit(student, held, "true")
	r.eventually(170*time.Second, "the guard gives the job back", func() (bool, string) {
		comment := r.adminComment(lost)
		return comment == "placement: none (no place within 1m0s)", comment
	})
	r.waitJob(lost, "COMPLETED", workerStarts)
	_ = syscall.Kill(pid, syscall.SIGCONT)

	if j, err := r.lookJob(own); err != nil || j.reason != "JobHeldUser" || r.adminComment(own) != "" {
		t.Errorf("a hold of the user's own: %v %v, comment %q", j, err, r.adminComment(own))
	}
}

// trySubmitWrapped submits without a script of its own, for what sbatch takes on its command line only.
func (r *run) trySubmitWrapped(user, options string) string {
	r.Helper()
	id := r.mustAs(user, "sbatch --parsable --job-name=e2e --output="+outputDir+"/e2e-%j.out "+options+" --wrap true")
	id, _, _ = strings.Cut(id, ";")
	r.submitted = append(r.submitted, id)
	return id
}

// fault is a way for the advisor to be broken.
type fault struct {
	name string
	// begin breaks it and returns what mends it.
	begin func(r *run, s sidecar) (mend func())
	// log must be in slurmctld's log of the submissions meanwhile; "": anything.
	log string
}

// socketOf puts a listener of the test's in the place of the advisor's socket (serve nil: one that nobody listens on), and its own back.
func socketOf(serve func(net.Conn)) func(*run, sidecar) func() {
	return func(r *run, s sidecar) func() {
		path := s.path(advisorSocket)
		if err := os.Rename(path, path+".away"); err != nil {
			r.Fatal(err)
		}
		back := func() {
			if err := os.Rename(path+".away", path); err != nil && !os.IsNotExist(err) {
				r.Errorf("put the advisor's socket back: %v", err)
			}
		}
		r.Cleanup(back)
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			r.Fatal(err)
		}
		listener.SetUnlinkOnClose(false)
		if err := os.Chown(path, slurmUID, slurmUID); err != nil {
			r.Fatal(err)
		}
		if serve == nil {
			listener.Close()
			return back
		}
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go func() { defer conn.Close(); serve(conn) }()
			}
		}()
		return func() { listener.Close(); back() }
	}
}

// question reads what slurmctld asks.
func question(conn net.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = conn.Read(make([]byte, 16<<10))
}

var faults = []fault{
	{name: "healthy", begin: func(*run, sidecar) func() { return func() {} }, log: "advisor: user="},
	{name: "killed", begin: func(r *run, s sidecar) func() {
		if err := syscall.Kill(s.mustPid(), syscall.SIGKILL); err != nil {
			r.Fatal(err)
		}
		return func() {}
	}},
	{name: "hung", log: "advisor: sidecar failed 3 times (timeout)", begin: func(r *run, s sidecar) func() {
		pid := s.mustPid()
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			r.Fatal(err)
		}
		mend := func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
		r.Cleanup(mend)
		return mend
	}},
	{name: "refused", log: "advisor: sidecar failed 3 times (connection refused)", begin: socketOf(nil)},
	{name: "replaced by one that answers garbage", log: "advisor: sidecar failed 3 times (not HTTP)", begin: socketOf(func(conn net.Conn) {
		question(conn)
		_, _ = conn.Write([]byte("\x00\xff garbage\n"))
	})},
	{name: "100 MB answer", log: "advisor: sidecar failed 3 times", begin: socketOf(func(conn net.Conn) {
		question(conn)
		block := make([]byte, 1<<20)
		for range 100 {
			if _, err := conn.Write(block); err != nil {
				return
			}
		}
	})},
	{name: "a byte a second", log: "advisor: sidecar failed 3 times (timeout)", begin: socketOf(func(conn net.Conn) {
		question(conn)
		for _, b := range []byte("HTTP/1.1 200") {
			if _, err := conn.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	})},
	{name: "black-holed", log: "advisor: service failed 3 times (timeout)", begin: func(r *run, s sidecar) func() {
		// The sidecar's socket is dead and the service's packets vanish.
		back := socketOf(nil)(r, s)
		const nowhere = "10.244.254.254"
		undo := s.drop("-d", nowhere)
		file := s.path(advisorService)
		if err := os.WriteFile(file, []byte(nowhere+" 8080 token\n"), 0o644); err != nil {
			r.Fatal(err)
		}
		return func() {
			if err := os.Remove(file); err != nil {
				r.Error(err)
			}
			undo()
			back()
		}
	}},
}

// However the advisor is broken, jobs are submitted as before and go through; a breaker leaves it alone, others of slurmctld's
// callers are answered, and once it is well it is asked again.
func TestAdvisorFaults(t *testing.T) {
	r := begin(t, 20*time.Minute)
	r.advised("shadow")
	started := r.slurmctldStart()
	s := r.sidecar()
	var all []string
	for _, f := range faults {
		// Closes the breakers: slurmctld reads the script anew.
		r.mustController("scontrol reconfigure")
		r.eventually(30*time.Second, "slurmctld answers", func() (bool, string) {
			out, err := r.inController("scontrol ping")
			return err == nil && strings.Contains(out, "is UP"), out
		})
		mend := f.begin(r, s)
		began := time.Now()
		ids, took := r.timedJobs(student, 5)
		all = append(all, ids...)
		for _, command := range []string{"scontrol ping", "squeue --noheader"} {
			from := time.Now()
			r.mustController(command)
			if took := time.Since(from); took > 10*time.Second {
				t.Errorf("%s: %s took %s", f.name, command, took)
			}
		}
		log := r.controllerLog(began)
		mend()
		t.Logf("%-38s sbatch p50 %4d ms, longest %4d ms", f.name, median(took).Milliseconds(), maximum(took).Milliseconds())
		if f.log != "" && !strings.Contains(log, f.log) {
			t.Errorf("%s: slurmctld's log does not say %q:\n%s", f.name, f.log, lastLines(log, 20))
		}
		if n := strings.Count(log, " failed 3 times ("); f.name != "healthy" && f.name != "killed" && f.name != "black-holed" && n != 1 {
			t.Errorf("%s: the breaker opened %d times, want once", f.name, n)
		}
		// sbatch's own patience with a slurmctld that does not answer is 10 s.
		if worst := maximum(took); worst > 10*time.Second {
			t.Errorf("%s: a submission took %s", f.name, worst)
		}
		r.waitAdvisor(120*time.Second, "is back after: "+f.name, func(h advisorHealth) bool { return h.Age >= 0 && h.Age < 30 })
	}
	r.eventually(150*time.Second, "slurmctld asks the sidecar again", func() (bool, string) {
		from := time.Now()
		ids, _ := r.timedJobs(student, 1)
		all = append(all, ids...)
		log := r.controllerLog(from)
		time.Sleep(3 * time.Second)
		return strings.Contains(log, "advisor: user="), lastLines(log, 5)
	})

	// The picture of the cluster is cut off: the advisor answers, and abstains.
	undo := s.drop("-p", "tcp", "--dport", "6820")
	r.waitAdvisor(90*time.Second, "has an old picture of the cluster", func(h advisorHealth) bool { return h.Age > 31 })
	from := time.Now()
	ids, _ := r.timedJobs(student, 1)
	all = append(all, ids...)
	if log := r.controllerLog(from); !strings.Contains(log, "abstain=stale_snapshot") {
		t.Errorf("the log does not tell of an old picture:\n%s", lastLines(log, 5))
	}
	undo()
	r.waitAdvisor(90*time.Second, "sees the cluster again", func(h advisorHealth) bool { return h.Age < 30 })

	for _, id := range all {
		r.waitJob(id, "COMPLETED", workerStarts)
	}
	r.mustBeUntouched(started)
}

func maximum(of []time.Duration) time.Duration {
	worst := of[0]
	for _, d := range of {
		worst = max(worst, d)
	}
	return worst
}
