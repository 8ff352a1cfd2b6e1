package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-hpc/berth/lab/box"
)

// Half an hour (BERTH_E2E_SOAK) of jobs of all sizes by two users while parts of the platform, and of Kubernetes below it, are killed
// at random.
func TestSoak(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("BERTH_E2E_SOAK"))
	if err != nil {
		t.Skip("takes half an hour: set BERTH_E2E_SOAK=30m, or run lab/e2e.sh soak")
	}
	begin(t, length+45*time.Minute).killAtRandom(length)
}

// The same for five minutes.
func TestRandomKills(t *testing.T) {
	begin(t, 40*time.Minute).killAtRandom(5 * time.Minute)
}

// killAtRandom submits jobs and kills parts. In the end every job has run to its end, none is lost, and the workers are gone.
func (r *run) killAtRandom(length time.Duration) {
	t := r.T
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))

	kinds := []struct{ name, options string }{
		{"one CPU", "--partition=cpu"},
		{"both CPUs of a worker", "--partition=cpu --cpus-per-task=2"},
		{"two nodes", "--partition=cpu --nodes=2"},
		{"a quarter of a card", "--partition=gpu --gres=mps:25"},
		{"a whole card", "--partition=gpu --gres=gpu:1"},
		{"both cards", "--partition=gpu --nodes=2 --gres=gpu:1"},
	}
	kills := []struct {
		what string
		do   func() error
	}{
		{"slurmctld", func() error {
			r.queueWritten()
			_, err := r.inController("kill -9 $(pgrep -f '^slurmctld -D')")
			return ignoreKilled(err)
		}},
		{"the controller's pod", func() error { return r.deletePod(platform, labelRole+"=controller", dice) }},
		{"the accounting daemon", func() error { return r.deletePod(platform, labelRole+"=accounting", dice) }},
		{"the REST daemon", func() error { return r.deletePod(platform, labelRole+"=rest", dice) }},
		{"the autoscaler", func() error { return r.deletePod(platform, labelRole+"=autoscaler", dice, atOnce...) }},
		{"a worker, with grace", func() error { return r.deletePod(workers, labelPool, dice) }},
		{"a worker, at once", func() error { return r.deletePod(workers, labelPool, dice, atOnce...) }},
		{"the API server", func() error { return r.killDaemon("kube-apiserver") }},
		{"the kubelet", func() error { return r.killDaemon("kubelet") }},
	}
	submitted := map[string]string{} // id: kind
	nextKill := time.Now().Add(time.Minute)
	for end := time.Now().Add(length); time.Now().Before(end); {
		kind := kinds[dice.IntN(len(kinds))]
		user := []string{student, researcher}[dice.IntN(2)]
		script := fmt.Sprintf("echo began\nsleep %d\necho ended", 1+dice.IntN(30))
		// While slurmctld is away sbatch waits, and in the end fails: the user is told, no job is lost.
		if id, err := r.trySubmit(user, kind.options+" --requeue --open-mode=append", script); err != nil {
			t.Logf("not submitted (%s): %v", kind.name, err)
		} else {
			submitted[id] = kind.name
		}
		if time.Now().After(nextKill) {
			victim := kills[dice.IntN(len(kills))]
			t.Logf("%s kill %s (%d jobs so far): %v", time.Now().Format(time.TimeOnly), victim.what, len(submitted), victim.do())
			nextKill = time.Now().Add(time.Duration(45+dice.IntN(60)) * time.Second)
		}
		time.Sleep(time.Duration(2+dice.IntN(8)) * time.Second)
	}

	r.eventually(30*time.Minute, "the queue is empty", func() (bool, string) {
		out, err := r.inController("squeue --noheader --format='%i %T %r'")
		return err == nil && strings.TrimSpace(out) == "", out
	})
	again := 0
	for id, kind := range submitted {
		out, err := r.inController("sacct --noheader --parsable2 --allocations --duplicates --format=state --jobs=" + id)
		states := strings.Fields(out)
		if err != nil || len(states) == 0 {
			t.Errorf("job %s (%s) has no record: %q %v", id, kind, out, err)
			continue
		}
		// A job starts again only after Slurm said why its last start did not count: its worker was lost, or slurmctld was killed
		// before it had written down that the job ended (which it finds out when the node registers the next time).
		for _, state := range states[:len(states)-1] {
			if state != "NODE_FAIL" && state != "REQUEUED" {
				t.Errorf("job %s (%s) began again after %q", id, kind, state)
			}
		}
		if last := states[len(states)-1]; last != "COMPLETED" {
			t.Errorf("job %s (%s) is %q in the end", id, kind, last)
		}
		again += len(states) - 1
		lines := strings.Split(r.output(id), "\n")
		began, ended := count(lines, "began"), count(lines, "ended")
		if began < 1 || began > len(states) || ended < 1 || ended > began {
			t.Errorf("job %s (%s) has the records %v, and wrote %q", id, kind, states, lines)
		}
	}
	t.Logf("%d starts again", again)
	t.Logf("%d jobs", len(submitted))
	r.waitNoWorkers("")
}

// atOnce are kubectl's options to end a pod without grace.
var atOnce = []string{"--grace-period=0", "--force"}

// killDaemon sends one of the box's daemons SIGKILL. The box starts it again; the API server is waited for, because without it no
// job is submitted and nobody sees anything.
func (r *run) killDaemon(name string) error {
	status, err := r.box.Status(r.ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(status.Units, func(u box.UnitStatus) bool { return u.Name == name })
	if i < 0 || status.Units[i].HostPid == 0 {
		return fmt.Errorf("%s does not run", name)
	}
	if err := syscall.Kill(status.Units[i].HostPid, syscall.SIGKILL); err != nil {
		return err
	}
	killed := status.Units[i].Restarts
	r.eventually(2*time.Minute, "another "+name+", and the API server answers", func() (bool, string) {
		status, err := r.box.Status(r.ctx)
		if err != nil {
			return false, err.Error()
		}
		again := slices.ContainsFunc(status.Units, func(u box.UnitStatus) bool { return u.Name == name && u.Restarts > killed && u.HostPid != 0 })
		out, err := r.box.Kubectl(r.ctx, "get", "--raw", "/readyz")
		return again && err == nil && strings.TrimSpace(out) == "ok", fmt.Sprint(again, out, err)
	})
	return nil
}

// deletePod deletes one of the pods that match, if there is one.
func (r *run) deletePod(namespace, selector string, dice *rand.Rand, options ...string) error {
	pods := r.pods(namespace, selector)
	if len(pods) == 0 {
		return nil
	}
	_, err := r.box.Kubectl(r.ctx, append([]string{"delete", "pod", "-n", namespace, pods[dice.IntN(len(pods))].Metadata.Name, "--wait=false"}, options...)...)
	return err
}

// ignoreKilled drops the error of a command that died with the container that it killed.
func ignoreKilled(err error) error {
	if err != nil && strings.Contains(err.Error(), "exit code 137") {
		return nil
	}
	return err
}

// count counts the lines that are what.
func count(lines []string, what string) int {
	n := 0
	for _, line := range lines {
		if line == what {
			n++
		}
	}
	return n
}
