package slurmrest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/guard/slurmtest"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// Figures of make bench: what the autoscaler's one call costs on a real slurmctld with 100,000 jobs in its queue, beside the same with
// none. Every job is a record of its own, as those of an array are once each was touched, and held, so that nothing but the queue's
// length differs.
func TestBenchPollWithJobs(t *testing.T) {
	if os.Getenv("BERTH_BENCH") != "1" {
		t.Skip("a figure of make bench: set BERTH_BENCH=1")
	}
	const jobs, nodes, goal = 100_000, 100, 1.2
	m := slurmtest.Start(t)
	s := m.Configure(fmt.Sprintf(`AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=%s
MaxJobCount=%d
MaxArraySize=%d
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=600
NodeName=n-[0-%d] CPUs=2 RealMemory=1000 State=CLOUD
PartitionName=cpu Nodes=ALL Default=YES State=UP
`, m.Key("jwt_hs256.key"), jobs+1000, jobs+2, nodes-1), nil)
	s.Slurmctld()
	socket := m.Slurmrestd()
	client, err := slurmrest.New("unix:"+socket, &slurmrest.TokenSource{KeyFile: m.Key("jwt_hs256.key"), User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	slurmtest.Eventually(t, time.Minute, "slurmrestd answers", func() (bool, string) {
		err := client.Ping(context.Background())
		return err == nil, fmt.Sprint(err, m.Log("slurmrestd.log"))
	})
	whole := func() {
		if list, err := client.Nodes(context.Background(), time.Time{}); err != nil || len(list.Nodes) != nodes {
			t.Fatal(err)
		}
	}
	unchanged := func() {
		if _, err := client.Nodes(context.Background(), time.Now().Add(time.Hour)); !errors.Is(err, slurmrest.ErrUnchanged) {
			t.Fatal(err)
		}
	}
	wholeBefore, unchangedBefore := sample(whole), sample(unchanged)

	began := time.Now()
	job := s.Client("sbatch", "--parsable", "--hold", "--chdir=/tmp", "--output=/dev/null", fmt.Sprintf("--array=0-%d", jobs), "--wrap", "true")
	// An update of a part of an array makes a record of each of its tasks; the last task stays the rest of the array.
	for first := 0; first < jobs; first += 10_000 {
		s.Client("scontrol", "update", fmt.Sprintf("jobid=%s_[%d-%d]", job, first, first+9_999), "comment=waits")
	}
	t.Logf("%d jobs made in %s", jobs, time.Since(began).Round(time.Second))
	if records := s.Client("sh", "-c", "scontrol --oneliner show jobs | wc -l"); records != strconv.Itoa(jobs+1) {
		t.Fatalf("slurmctld has %s records", records)
	}
	for _, figure := range []struct {
		name          string
		before, after []float64
	}{{"poll-100000-jobs", wholeBefore, sample(whole)}, {"poll-100000-jobs/unchanged", unchangedBefore, sample(unchanged)}} {
		// The quartiles of the one against the median of the other bound the ratio for a verdict.
		low, ratio, high := at(figure.after, 0.25)/at(figure.before, 0.5), at(figure.after, 0.5)/at(figure.before, 0.5), at(figure.after, 0.75)/at(figure.before, 0.5)
		verdict := "undecided"
		if high <= goal {
			verdict = "ok"
		} else if low > goal {
			verdict = "short"
		}
		fmt.Printf("%s %.2f ms %.2f %g %s\n", figure.name, at(figure.after, 0.5), ratio, goal, verdict)
	}
	began = time.Now()
	_, err = client.JobStates(context.Background())
	t.Logf("a list of the jobs' states, which decides nothing, took %s: %v", time.Since(began).Round(time.Millisecond), err)
}

// sample is the time in milliseconds of 101 calls, in order of length.
func sample(call func()) []float64 {
	milliseconds := make([]float64, 101)
	for i := range milliseconds {
		began := time.Now()
		call()
		milliseconds[i] = time.Since(began).Seconds() * 1000
	}
	sort.Float64s(milliseconds)
	return milliseconds
}

func at(sorted []float64, quantile float64) float64 {
	return sorted[int(quantile*float64(len(sorted)-1))]
}
