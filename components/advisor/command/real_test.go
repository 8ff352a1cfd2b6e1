package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/advisor/placement/custody"
	"github.com/berth-hpc/berth/components/advisor/rerank/lease"
	"github.com/berth-hpc/berth/components/advisor/service"
	"github.com/berth-hpc/berth/components/guard/custodian"
	"github.com/berth-hpc/berth/components/guard/ranks"
	"github.com/berth-hpc/berth/components/guard/slurmtest"
	"github.com/berth-hpc/berth/components/jobsubmit"
)

// realCluster is a real Slurm with slurmrestd, and one partition that is down so that jobs wait.
type realCluster struct {
	*slurmtest.Slurm
	t                             *testing.T
	socket, rest, state, settings string
}

func startCluster(t *testing.T, lua jobsubmit.Settings) *realCluster {
	t.Helper()
	m := slurmtest.Start(t, "slurm-worker-cpu-0", "slurm-worker-big-0")
	c := &realCluster{t: t, socket: filepath.Join(m.Dir, "a.sock"), state: filepath.Join(m.Dir, "advisor"),
		settings: filepath.Join(m.Dir, "settings.json")}
	lua.Socket = c.socket
	c.Slurm = m.Configure(fmt.Sprintf(`AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=%s
DefMemPerCPU=100
PriorityType=priority/multifactor
JobSubmitPlugins=lua
NodeName=slurm-worker-big-0 CPUs=1 RealMemory=50 State=CLOUD
NodeName=slurm-worker-cpu-0 CPUs=2 RealMemory=1000 State=CLOUD
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=600
PartitionName=big Nodes=slurm-worker-big-0
PartitionName=cpu Nodes=slurm-worker-cpu-0 Default=YES State=DOWN
`, m.Key("jwt_hs256.key")), map[string]string{"job_submit.lua": script(t, lua)})
	c.Slurmctld()
	c.rest = m.Slurmrestd()
	return c
}

func script(t *testing.T, s jobsubmit.Settings) string {
	t.Helper()
	// A second: what is tested here is what is said, on a machine that may be busy.
	s.Deadline, s.MaxBoost = time.Second, 500
	text, err := jobsubmit.Script(s)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (c *realCluster) configure(mode service.Mode, more string) {
	c.t.Helper()
	text := fmt.Sprintf(`{"mode":%q,"topology":"","maxBoost":500,"snapshotTtlSeconds":60,"budgetMilliseconds":1000%s}`, mode, more)
	if err := os.WriteFile(c.settings, []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// serve runs the advisor until the returned function is called, or the test ends.
func (c *realCluster) serve(more ...string) (log *buffer, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	log = &buffer{}
	done := make(chan int, 1)
	go func() {
		done <- Run(ctx, io.Discard, log, append([]string{"serve", "--socket", c.socket, "--settings", c.settings,
			"--state", c.state, "--slurmrestd", "unix:" + c.rest, "--jwt-key", c.Key("jwt_hs256.key"), "--slurm-user", "root",
			"--snapshot-every", "1s"}, more...))
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	c.t.Cleanup(stop)
	return log, stop
}

func (c *realCluster) asked() string {
	var out bytes.Buffer
	_ = Run(context.Background(), &out, io.Discard, []string{"serve", "health", "--socket", c.socket})
	return out.String()
}

func (c *realCluster) eventually(what string, holds func() bool) {
	c.t.Helper()
	slurmtest.Eventually(c.t, 90*time.Second, what, func() (bool, string) {
		return holds(), c.asked() + c.Client("scontrol", "show", "node") + c.Log("slurmrestd.log") + c.Log("slurmctld.log")
	})
}

func (c *realCluster) submit(minutes int, more ...string) string {
	c.t.Helper()
	return c.Client("sbatch", append([]string{"--parsable", "--chdir=/tmp", "--output=/dev/null", fmt.Sprintf("--time=%d", minutes), "--wrap", "true"}, more...)...)
}

func (c *realCluster) siteFactor(job string) string {
	c.t.Helper()
	return c.Client("sprio", "-h", "-j", job, "-o", "%S")
}

// The whole path on a real Slurm: sbatch, slurmctld, job_submit.lua, the advisor's socket; the advisor's picture from slurmrestd; and
// the record of it all. Shadow changes nothing but the record, live adds a bounded boost.
func TestRealSlurm(t *testing.T) {
	c := startCluster(t, jobsubmit.Settings{Mode: jobsubmit.Shadow})
	record := filepath.Join(c.Dir, "record")
	c.configure(service.Shadow, "")
	c.serve("--log", record)
	c.eventually("a first snapshot", func() bool { return strings.Contains(c.asked(), `"cluster":"berth"`) })
	for _, minutes := range []int{10, 20, 30, 40} {
		c.submit(minutes)
	}
	c.eventually("four jobs are seen waiting", func() bool { return strings.Contains(c.asked(), `"waiting":4,`) })

	shadow := c.submit(15)
	if shown := c.Client("scontrol", "show", "job", shadow); strings.Contains(shown, "advisor") || c.siteFactor(shadow) != "0" {
		t.Errorf("shadow changed the job: %s", shown)
	}
	// 15 minutes pass three of the four: 375 of 500 points.
	if !strings.Contains(c.Log("slurmctld.log"), "mode=shadow advice=375 boost=0") {
		t.Errorf("shadow's advice is not in the log: %s", c.Log("slurmctld.log"))
	}

	c.configure(service.Live, "")
	c.Write("job_submit.lua", script(t, jobsubmit.Settings{Mode: jobsubmit.Live, Socket: c.socket}))
	c.Client("scontrol", "reconfigure")
	c.eventually("live", func() bool {
		return strings.Contains(c.asked(), `"mode":"live"`) && strings.Contains(c.asked(), `"waiting":5,`)
	})
	live := c.submit(5)
	if site := c.siteFactor(live); site != "500" {
		t.Errorf("the site factor is %q: %s", site, c.Log("slurmctld.log"))
	}
	if shown := c.Client("scontrol", "show", "job", live); !strings.Contains(shown, "AdminComment=advisor: boost=500 value=1 checkpoint=builtin:saf took=") {
		t.Error(shown)
	}

	c.Client("scancel", live, shadow)
	c.eventually("the record has their ends", func() bool {
		var out bytes.Buffer
		_ = Run(context.Background(), &out, io.Discard, []string{"log", "stats", record})
		return strings.Contains(out.String(), "ended      2\n") && strings.Contains(out.String(), "jobs       6\n")
	})
	for _, args := range [][]string{{"log", "verify", record}, {"log", "stats", record}, {"log", "export", record, "--out", filepath.Join(c.Dir, "jobs.parquet")}} {
		var out bytes.Buffer
		if code := Run(context.Background(), &out, &out, args); code != ExitOK {
			t.Errorf("%v: %d %s", args, code, out.String())
		}
		t.Log(strings.Join(args[:2], " "), "\n"+out.String())
	}
}

// Waiting jobs are ranked anew as others queue behind them; jobs whose priority a person has set are left alone; and ranks that the
// advisor does not renew are taken back by the guard.
func TestRealReranking(t *testing.T) {
	lua := jobsubmit.Settings{Mode: jobsubmit.Live, Rerank: true}
	c := startCluster(t, lua)
	const rerank = `,"rerank":{"mode":%q,"leaseSeconds":20}`
	c.configure(service.Live, fmt.Sprintf(rerank, "shadow"))
	log, stop := c.serve()
	c.eventually("a first snapshot", func() bool { return strings.Contains(c.asked(), `"cluster":"berth"`) })

	// With nobody seen waiting there is no boost: these three stand in the order in which they came.
	longer, long, short := c.submit(40), c.submit(20), c.submit(10)
	frozen, nice := c.submit(1, "--priority=7"), c.submit(1, "--nice=5")
	frozenLater, ranked := c.submit(2), c.submit(3)
	c.Client("scontrol", "update", "JobId="+frozenLater, "Priority=9")
	for _, job := range []string{frozen, frozenLater} {
		if shown := c.Client("scontrol", "show", "job", job); !strings.Contains(shown, "AdminComment=") || !strings.Contains(shown, "advisor: left alone (priority set)") {
			t.Errorf("job_submit.lua does not mark the job: %s", shown)
		}
	}
	slurmtest.Eventually(t, time.Minute, "shadow shows an order", func() (bool, string) {
		return strings.Contains(log.String(), `"msg":"ranked","mode":"shadow"`), log.String()
	})
	if factor := c.siteFactor(short); factor != "0" {
		t.Errorf("shadow gave the site factor %s", factor)
	}

	c.configure(service.Live, fmt.Sprintf(rerank, "live"))
	factors := func() string {
		var out []string
		for _, job := range []string{short, long, longer, ranked} {
			out = append(out, c.siteFactor(job))
		}
		return strings.Join(out, " ")
	}
	slurmtest.Eventually(t, 90*time.Second, "the short jobs get ahead", func() (bool, string) {
		order := c.Client("squeue", "-h", "-t", "PD", "-S", "-p,i", "-o", "%i")
		return before(order, ranked, short) && before(order, short, long) && before(order, long, longer), order + " factors " + factors() + log.String()
	})
	t.Logf("site factors: %s", factors())
	if shown := c.Client("scontrol", "show", "job", ranked); !strings.Contains(shown, "advisor: rank=") || strings.Contains(shown, "advisor: boost=") {
		t.Errorf("the job does not say its rank: %s", shown)
	}
	if out := c.siteFactor(nice); out != "0" {
		t.Errorf("a job with a nice of its user's has the site factor %s", out)
	}
	if out := c.Client("squeue", "-h", "-j", frozen+","+frozenLater, "-o", "%Q"); out != "7\n9" && out != "9\n7" {
		t.Errorf("priorities that people have set became %q", out)
	}

	// The advisor ends without a word. The guard takes back what it left, when the lease has run out.
	stop()
	if left := factors(); left == "0 0 0 0" {
		t.Fatalf("nothing stands that could be taken back: %s", left)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	keeper := &ranks.Keeper{Slurm: c.Programs(), Ledger: filepath.Join(c.state, lease.File), Log: slog.New(slog.NewTextHandler(log, nil))}
	go keeper.Run(ctx)
	slurmtest.Eventually(t, time.Minute, "the ranks are taken back", func() (bool, string) { return factors() == "0 0 0 0", factors() + log.String() })
	if shown := c.Client("scontrol", "show", "job", ranked); !strings.Contains(shown, "AdminComment="+lease.Ended) {
		t.Errorf("the job does not say that its rank is over: %s", shown)
	}
}

// before says whether the lines have a before b.
func before(lines, a, b string) bool {
	lines = "\n" + lines + "\n"
	return strings.Index(lines, "\n"+a+"\n") < strings.Index(lines, "\n"+b+"\n")
}

// Held jobs get the node that the advisor chooses, one after the other; what can't be placed goes back, whoever is there to give it
// back; and people's own holds are left alone.
func TestRealPlacement(t *testing.T) {
	c := startCluster(t, jobsubmit.Settings{Mode: jobsubmit.Live, Rerank: true})
	const placing = `,"placement":{"mode":%q,"jobNamePrefix":"placed-","giveUpSeconds":%d,"startSeconds":%d}`
	c.configure(service.Live, fmt.Sprintf(placing, "shadow", 3600, 3600))
	log, stop := c.serve()
	c.eventually("a first snapshot", func() bool { return strings.Contains(c.asked(), `"cluster":"berth"`) })
	job := func(id string) string { return c.Client("scontrol", "show", "job", id) }
	has := func(id string, words ...string) bool {
		shown := job(id)
		for _, word := range words {
			if !strings.Contains(shown, word) {
				return false
			}
		}
		return true
	}
	const node = "slurm-worker-cpu-0"

	first, second, third := c.submit(10, "--hold", "--job-name=placed-1"), c.submit(20, "--hold", "--job-name=placed-2", "--comment=mine"), c.submit(30, "--hold", "--job-name=placed-3")
	own := c.submit(10, "--hold", "--job-name=mine")
	array := c.submit(10, "--hold", "--job-name=placed-array", "--array=1-2")
	admin := c.submit(10, "--job-name=placed-admin")
	c.Client("scontrol", "hold", admin)
	c.eventually("shadow says where the three would go", func() bool {
		return strings.Count(log.String(), `"msg":"would place a job","mode":"shadow"`) == 3
	})
	for _, id := range []string{first, second, third} {
		if !has(id, "Reason=JobHeldUser", "ReqNodeList=(null)") || has(id, "placement:") {
			t.Errorf("shadow changed a job: %s", job(id))
		}
	}

	// Two CPUs, on the second node of the cluster: the third finds no room beside the first two, which wait for a partition that is down, and goes back in the end.
	c.configure(service.Live, fmt.Sprintf(placing, "live", 3600, 3600))
	c.eventually("the first two are placed", func() bool {
		return has(first, "ReqNodeList="+node, "AdminComment=placement: node="+node+" at=20") && has(second, "ReqNodeList="+node, "Comment=mine", "placement: node="+node)
	})
	if has(first, "Priority=0 ") || strings.Contains(job(first), "JobHeld") {
		t.Errorf("a placed job is still held: %s", job(first))
	}
	c.eventually("there is no room for the third", func() bool { return strings.Contains(log.String(), "held jobs are not placed") })
	c.configure(service.Live, fmt.Sprintf(placing, "live", 5, 3600))
	c.eventually("the third goes back", func() bool {
		return has(third, "ReqNodeList=(null)", "AdminComment=placement: none (no place within 5s)") && !strings.Contains(job(third), "JobHeld")
	})
	features := c.submit(10, "--hold", "--job-name=placed-f", "--exclude="+node)
	c.eventually("a job that excludes nodes goes back", func() bool {
		return has(features, "AdminComment=placement: none (it excludes nodes)") && !strings.Contains(job(features), "JobHeld")
	})

	// Placed jobs that do not start may run anywhere.
	c.configure(service.Live, fmt.Sprintf(placing, "live", 3600, 5))
	c.eventually("the first is not bound to a node any more", func() bool {
		return has(first, "ReqNodeList=(null)", "AdminComment=placement: none (not started on "+node+" within 5s)") &&
			has(second, "ReqNodeList=(null)", "placement: none (not started on")
	})

	// A drained node gets no job, also when the advisor has not seen it yet; once it is well again it does, and the job runs there.
	c.configure(service.Live, fmt.Sprintf(placing, "live", 3600, 3600))
	c.Client("scancel", first, second, third, features)
	c.Client("scontrol", "update", "NodeName="+node, "State=DRAIN", "Reason=test")
	fourth := c.submit(10, "--hold", "--job-name=placed-4")
	time.Sleep(5 * time.Second)
	if !has(fourth, "Reason=JobHeldUser", "ReqNodeList=(null)") || has(fourth, "placement:") {
		t.Errorf("a job was placed on a drained node: %s", job(fourth))
	}
	c.Client("scontrol", "update", "NodeName="+node, "State=RESUME")
	c.eventually("the fourth is placed when the node is well", func() bool { return has(fourth, "ReqNodeList="+node, "placement: node="+node) })
	for _, id := range []string{own, array, admin} {
		if has(id, "placement:") || !strings.Contains(job(id), "JobHeld") {
			t.Errorf("a job that is none of placement's was changed: %s", job(id))
		}
	}

	// The advisor ends without a word, and the guard gives back what it left.
	stop()
	lost := c.submit(10, "--hold", "--job-name=placed-lost")
	promise := filepath.Join(c.state, custody.File)
	p, err := custody.Read(promise)
	if err != nil || p == nil || p.Ended {
		t.Fatalf("what is promised: %+v %v", p, err)
	}
	p.Until, p.Terms.GiveUpSeconds, p.Terms.StartSeconds = time.Now(), 1, 1
	if err := p.Write(promise); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go (&custodian.Keeper{Slurm: c.Programs(), Promise: promise, Log: slog.New(slog.NewTextHandler(log, nil))}).Run(ctx)
	slurmtest.Eventually(t, time.Minute, "the guard gives jobs back", func() (bool, string) {
		return has(fourth, "ReqNodeList=(null)", "AdminComment=placement: none (not started on "+node+" within 1s)") &&
			has(lost, "AdminComment=placement: none (no place within 1s)") && !strings.Contains(job(lost), "JobHeld"), job(fourth) + job(lost) + log.String()
	})
	cancel()
	for _, id := range []string{own, array, admin} {
		if has(id, "placement:") || !strings.Contains(job(id), "JobHeld") {
			t.Errorf("the guard changed a job that is none of placement's: %s", job(id))
		}
	}
	c.Client("scancel", lost)
	c.serve()

	// By itself, against the advisor's socket: the same in one go.
	c.configure(service.Live, "")
	c.eventually("the advisor's own placement has ended", func() bool {
		p, err := custody.Read(promise)
		return err == nil && p != nil && p.Ended
	})
	c.Client("scancel", fourth)
	fifth := c.submit(10, "--hold", "--job-name=byhand-5")
	place := func(more ...string) (code int, said string) {
		out := &buffer{}
		code = Run(context.Background(), io.Discard, out, append([]string{"place", "--once", "--scheduler-url", "unix:" + c.socket, "--slurmrestd",
			"unix:" + c.rest, "--jwt-key", c.Key("jwt_hs256.key"), "--slurm-user", "root", "--job-name-prefix", "byhand-"}, more...))
		return code, out.String()
	}
	c.eventually("the advisor sees the node free", func() bool { _, said := place(); return strings.Contains(said, `"would place a job"`) })
	if !has(fifth, "Reason=JobHeldUser") {
		t.Errorf("shadow changed the job: %s", job(fifth))
	}
	if code, said := place("--no-shadow", "--node-name", "slurm-worker-cpu-[7-9]"); code != ExitOK || !has(fifth, "Reason=JobHeldUser") {
		t.Errorf("placed on a node of no choice: %d %s", code, said)
	}
	if code, said := place("--no-shadow", "--node-name", node); code != ExitOK || !has(fifth, "ReqNodeList="+node, "placement: node="+node) {
		t.Errorf("not placed: %d %s %s", code, said, job(fifth))
	}

	// slurmctld starts a placed job on its place, though that was drained and resumed while it was off.
	c.Client("scontrol", "update", "PartitionName=cpu", "State=UP")
	c.eventually("the fifth gets its node", func() bool { return has(fifth, "JobState=CONFIGURING", "\n   NodeList="+node) })
}
