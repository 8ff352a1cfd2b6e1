package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The simulator's multifactor priority is slurmctld's: fifty random jobs wait in a partition that is down, and every factor that
// sprio shows for them is the one that `advisor sim sprio` computes from shares, weights and sizes.
func TestSimulatedPriorities(t *testing.T) {
	const jobs = 50
	r := begin(t, 15*time.Minute)
	r.eventually(7*time.Minute, "slurmctld has computed fair shares", func() (bool, string) { // after a start up to PriorityCalcPeriod
		out, err := r.inController("sshare --all --noheader --parsable2 --format=User,FairShare")
		if err != nil {
			return false, err.Error()
		}
		for _, user := range []string{student, researcher} {
			if !strings.Contains(out, user+"|") || strings.Contains(out, user+"|0.000000") {
				return false, out
			}
		}
		return true, ""
	})
	r.mustController("scontrol update PartitionName=cpu State=DOWN")
	t.Cleanup(func() { // the test's own bound may be over
		if _, err := r.box.Kubectl(context.WithoutCancel(r.ctx), "exec", "-n", platform, controllerPod, "-c", controllerContainer, "--", "sh", "-c",
			asSlurmClient+"scontrol update PartitionName=cpu State=UP"); err != nil {
			t.Errorf("the partition stays down: %v", err)
		}
	})
	random := rand.New(rand.NewPCG(11, 12))
	for range jobs {
		user := []string{student, researcher}[random.IntN(2)]
		r.submit(user, fmt.Sprintf("--partition=cpu --ntasks=1 --cpus-per-task=%d --nice=%d --time=%d", 1+random.IntN(2), random.IntN(400), 1+random.IntN(60)), "true")
	}

	dir := t.TempDir()
	for _, c := range []struct{ name, line string }{
		{"config", "scontrol show config"},
		{"nodes", "scontrol --oneliner show nodes"},
		{"partitions", "scontrol --oneliner show partitions"},
		{"qos", "sacctmgr --noheader --parsable2 show qos format=name,priority"},
		{"shares", "sshare --all --parsable2 --format=Account,User,RawShares,RawUsage,FairShare"},
		{"jobs", "SLURM_TIME_FORMAT=%s squeue --noheader --states=PENDING --format='%i|%u|%a|%P|%q|%C|%D|%V'"},
		{"priorities", "sprio --noheader --format='%i|%A|%B|%F|%J|%P|%Q|%S|%N|%Y'"},
		{"now", "date +%s"},
	} {
		out := r.mustController(c.line)
		if err := os.WriteFile(filepath.Join(dir, c.name), []byte(out+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(r.ctx, filepath.Join(r.box.Source, "bin", "advisor"), "sim", "sprio", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("advisor sim sprio: %v\n%s", err, out)
	}
	if want := fmt.Sprintf("%d of %d jobs", jobs, jobs); !strings.Contains(string(out), want) {
		t.Errorf("sprio showed other jobs than the %d submitted:\n%s", jobs, out)
	}
	t.Logf("%s", out)
}
