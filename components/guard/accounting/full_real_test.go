package accounting_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/guard/slurmtest"
)

// L12: the disk of the accounting database is full. Jobs go on, slurmctld keeps what it cannot tell slurmdbd, and when there is room again
// every job's record is whole.
func TestRealFullDisk(t *testing.T) {
	m := slurmtest.Start(t)
	s := m.Configure(slurmtest.Accounting+`AccountingStoreFlags=job_script
NodeName=w-0 NodeHostname=ctl Port=7000 CPUs=8 RealMemory=1000
PartitionName=cpu Nodes=ALL Default=YES State=UP
`, nil)
	m.Run("sh", "-c", "mkdir "+m.Dir+"/database && mount -t tmpfs -o size=300M tmpfs "+m.Dir+"/database")
	m.Database()
	s.Slurmctld()
	s.Slurmd("w-0")
	// Records that do not fit into what the tables have allocated.
	submitted := 0
	submit := func() string {
		submitted++
		return s.Client("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--mem=10", "--wrap", fmt.Sprintf("sleep 1 # %d%s", submitted, strings.Repeat(" what this job does,", 3000)))
	}
	before := submit()
	s.Want(before, "COMPLETED")
	running := s.Client("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--mem=10", "--wrap", "until [ -e "+m.Dir+"/go ]; do sleep 0.2; done")
	s.Want(running, "RUNNING")

	out, _ := m.Command("dd", "if=/dev/zero", "of="+m.Dir+"/database/filler", "bs=64k").CombinedOutput()
	if !strings.Contains(string(out), "No space left on device") {
		t.Fatalf("the disk does not fill: %s", out)
	}
	var during []string
	for range 40 {
		during = append(during, submit())
	}
	if err := m.Command("touch", m.Dir+"/go").Run(); err != nil {
		t.Fatal(err)
	}
	for _, job := range append(during, running) {
		s.Want(job, "COMPLETED")
	}
	slurmtest.Eventually(t, time.Minute, "slurmctld keeps what it cannot tell slurmdbd", func() (bool, string) {
		out := s.Client("sdiag")
		var kept int
		if _, size, found := strings.Cut(out, "DBD Agent queue size:"); found {
			_, _ = fmt.Sscan(size, &kept)
		}
		return kept > 0, out
	})

	m.Run("rm", m.Dir+"/database/filler")
	// Where it could not write its log, MariaDB has ended, and is started again as its container is.
	if m.Command("pgrep", "-x", "mariadbd").Run() != nil {
		t.Log("MariaDB ended")
		m.MariaDB()
	}
	jobs := append(append([]string{before}, during...), running)
	slurmtest.Eventually(t, 5*time.Minute, "each job has its record", func() (bool, string) {
		out, err := m.Command("env", "SLURM_CONF="+s.File, "sacct", "--allusers", "--noheader", "--parsable2", "--allocations", "--duplicates", "--format=jobid,state", "--jobs="+strings.Join(jobs, ",")).CombinedOutput()
		if err != nil {
			return false, string(out)
		}
		records := map[string]int{}
		for line := range strings.Lines(string(out)) {
			records[strings.TrimSpace(line)]++
		}
		var wrong []string
		for _, job := range jobs {
			if records[job+"|COMPLETED"] != 1 {
				wrong = append(wrong, job)
			}
		}
		return len(wrong) == 0 && len(records) == len(jobs), fmt.Sprint(wrong, records) + lastOf(m.Log("slurmctld.log"), 800)
	})
}

func lastOf(text string, n int) string { return text[max(0, len(text)-n):] }
