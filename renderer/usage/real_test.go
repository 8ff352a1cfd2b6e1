package usage_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/guard/slurmtest"
	"github.com/berth-hpc/berth/renderer/usage"
)

const cards = slurmtest.Accounting + `ClusterName=lab
GresTypes=gpu,mps,shard
AccountingStorageTRES=gres/gpu,gres/mps,gres/shard
AccountingStorageEnforce=associations
NodeName=slurm-worker-card-0 NodeHostname=ctl Port=7000 CPUs=4 RealMemory=1000 Gres=gpu:1,mps:100
NodeName=slurm-worker-shards-0 NodeHostname=ctl Port=7001 CPUs=4 RealMemory=1000 Gres=gpu:1,shard:4
PartitionName=all Nodes=ALL Default=YES State=UP
`

const gresConf = `NodeName=slurm-worker-card-0 Name=gpu File=/dev/null
NodeName=slurm-worker-card-0 Name=mps Count=100 File=/dev/null
NodeName=slurm-worker-shards-0 Name=gpu File=/dev/zero
NodeName=slurm-worker-shards-0 Name=shard Count=4 File=/dev/zero
`

// Jobs of two accounts on a real Slurm: what they had of CPUs and cards, whole and in parts, is what sacct's own times say.
func TestRealUsage(t *testing.T) {
	m := slurmtest.Start(t, "slurm-worker-card-0", "slurm-worker-shards-0")
	s := m.Configure(cards, map[string]string{"gres.conf": gresConf})
	m.Database()
	run := func(argv ...string) string {
		t.Helper()
		return s.Client(argv[0], argv[1:]...)
	}
	s.Slurmctld()
	m.Run("sh", "-c", "echo student:x:2001:2001::/tmp:/bin/sh >> /etc/passwd; chmod 1777 /tmp")
	for _, account := range []string{"vision", "language"} {
		run("sacctmgr", "--immediate", "add", "account", account)
		run("sacctmgr", "--immediate", "add", "user", "root", "account="+account)
	}
	run("sacctmgr", "--immediate", "add", "user", "student", "account=vision")
	s.Slurmd("slurm-worker-card-0", "slurm-worker-shards-0")
	began := time.Now().Add(-time.Minute)
	for _, options := range []string{"--account=vision --ntasks=2 --gres=gpu:1 --nodelist=slurm-worker-card-0", "--account=language --nodelist=slurm-worker-card-0 --gres=mps:25",
		"--account=language --gres=shard:1", "--account=vision --uid=student --ntasks=3"} {
		run(append([]string{"sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--wrap", "sleep 3"}, strings.Fields(options)...)...)
	}
	waits := run("sbatch", "--parsable", "--account=vision", "--hold", "--chdir=/tmp", "--output=/dev/null", "--wrap", "true")
	slurmtest.Eventually(t, 2*time.Minute, "the jobs have ended", func() (bool, string) {
		out := run("squeue", "--noheader", "--format=%i %T %r")
		return out == waits+" PENDING JobHeldUser", out
	})
	time.Sleep(2 * time.Second) // slurmctld tells slurmdbd a moment later

	var answer string
	read := func(q usage.Query) *usage.Report {
		t.Helper()
		r, err := usage.Read(t.Context(), shardSite(), q, func(ctx context.Context, argv ...string) (string, error) {
			out, err := s.Programs().Run(ctx, time.Minute, argv[0], argv[1:]...)
			answer = out
			return out, err
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := read(usage.Query{Start: began, End: time.Now()})
	t.Logf("sacct answers\n%s", answer)
	// What sacct says of each job, times what it asked for.
	seconds := func(options string) (sum float64) {
		t.Helper()
		for _, line := range strings.Fields(run(append([]string{"sacct", "--allusers", "--allocations", "--noheader", "--format=elapsedraw"}, strings.Fields(options)...)...)) {
			var n float64
			fmt.Sscan(line, &n)
			sum += n
		}
		return sum
	}
	card, student := seconds("--accounts=vision --uid=root"), seconds("--accounts=vision --uid=student")
	parts := seconds("--accounts=language")
	want := map[string][3]float64{"vision/root": {1, 2 * card, card}, "vision/student": {1, 3 * student, 0}, "language/root": {2, parts, parts / 4}}
	if len(r.Rows) != len(want) || r.Uncounted != 0 {
		t.Errorf("rows %+v, %d not counted", r.Rows, r.Uncounted)
	}
	for _, row := range r.Rows {
		w := want[row.Name()]
		if float64(row.Jobs) != w[0] || math.Abs(row.CPUHours*3600-w[1]) > 0.01 || math.Abs(row.GPUHours*3600-w[2]) > 0.01 || w[1] < 3 {
			t.Errorf("%s had %d jobs, %.2f CPU-seconds, %.2f GPU-seconds; want %v", row.Name(), row.Jobs, row.CPUHours*3600, row.GPUHours*3600, w)
		}
	}
	if only := read(usage.Query{Start: began, End: time.Now(), Users: []string{"student"}, ByAccount: true}); len(only.Rows) != 1 || only.Rows[0].Name() != "vision" || only.Total.Jobs != 1 {
		t.Errorf("the student's: %+v", only.Rows)
	}
	if before := read(usage.Query{Start: began.Add(-time.Hour), End: began}); len(before.Rows) != 0 {
		t.Errorf("before any job: %+v", before.Rows)
	}

	// Of a job that runs, the part within the period counts.
	run("sbatch", "--parsable", "--account=vision", "--ntasks=4", "--chdir=/tmp", "--output=/dev/null", "--wrap", "sleep 60")
	slurmtest.Eventually(t, time.Minute, "the job runs", func() (bool, string) {
		out := run("squeue", "--noheader", "--states=RUNNING", "--format=%M")
		return out >= "0:05", out
	})
	now := time.Now().Truncate(time.Second)
	part := read(usage.Query{Start: now.Add(-2 * time.Second), End: now})
	if len(part.Rows) != 1 || math.Abs(part.Rows[0].CPUHours*3600-8) > 0.01 {
		t.Errorf("two seconds of four CPUs: %+v\n%s", part.Rows, answer)
	}
}
