package scaler

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/guard/slurmtest"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// Figures of make bench: from sbatch's end to the moment at which the last of a job's pods is asked for, on a real slurmctld and
// slurmrestd, beside the same loop as a poller that looks every 30 s and is told nothing. Kubernetes is played, and takes no time.
func TestBenchScaleUp(t *testing.T) {
	if os.Getenv("BERTH_BENCH") != "1" {
		t.Skip("a figure of make bench: set BERTH_BENCH=1")
	}
	const nodes, trials = 16, 3
	m := slurmtest.Start(t)
	s := m.Configure(fmt.Sprintf(`AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=%s
SuspendProgram=/bin/true
ResumeProgram=/resume
SuspendTime=3600
SuspendTimeout=2
ResumeTimeout=3600
ResumeRate=0
SuspendRate=0
NodeName=slurm-worker-cpu-[0-%d] CPUs=2 RealMemory=1000 State=CLOUD
PartitionName=cpu Nodes=ALL Default=YES State=UP
`, m.Key("jwt_hs256.key"), nodes-1), nil)
	// In place of guard poke: the hint goes to a file, and from there to the loop.
	told := filepath.Join(m.Dir, "told")
	s.Run("sh", "-ec", "mkdir "+told+"; printf '#!/bin/sh\\n{ echo resume $1; cat $SLURM_RESUME_FILE; } > "+m.Dir+"/$$; mv "+m.Dir+"/$$ "+told+"\\n' > /resume; chmod 755 /resume")
	s.Slurmctld()
	rest, err := slurmrest.New("unix:"+m.Slurmrestd(), &slurmrest.TokenSource{KeyFile: m.Key("jwt_hs256.key"), User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	slurmtest.Eventually(t, time.Minute, "slurmrestd answers", func() (bool, string) {
		err := rest.Ping(context.Background())
		return err == nil, fmt.Sprint(err, m.Log("slurmrestd.log"))
	})

	// measure gives the seconds of each trial, with a loop that run runs.
	measure := func(run func(context.Context, *Loop), pause func() time.Duration) (seconds map[int][]float64) {
		stage := newStage(t, func(p *v1alpha1.WorkerPool) { p.Spec.Max = nodes })
		stage.loop.Slurm, stage.loop.Now = rest, nil
		var made atomic.Int64
		stage.refuse = func(_ *corev1.Pod, dryRun bool) error {
			if !dryRun {
				made.Add(1)
			}
			return nil
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { defer close(ended); run(ctx, stage.loop) }()
		defer func() { cancel(); <-ended }()
		seconds = map[int][]float64{}
		for range trials {
			for _, size := range []int{1, nodes} {
				time.Sleep(pause())
				made.Store(0)
				job := s.Client("sbatch", "--parsable", fmt.Sprintf("--nodes=%d", size), "--chdir=/tmp", "--output=/dev/null", "--wrap", "true")
				began := time.Now()
				for made.Load() < int64(size) {
					if time.Since(began) > 2*time.Minute {
						t.Fatalf("%d of %d pods in two minutes; %s", made.Load(), size, s.Client("sinfo", "--Node"))
					}
					time.Sleep(5 * time.Millisecond)
				}
				seconds[size] = append(seconds[size], time.Since(began).Seconds())
				// A client that gives up on a busy machine is no reason to.
				try := func(name string, args ...string) string {
					out, _ := s.Command("env", append([]string{"SLURM_CONF=" + s.File, name}, args...)...).CombinedOutput()
					return strings.TrimSpace(string(out))
				}
				try("scancel", job)
				slurmtest.Eventually(t, 3*time.Minute, "everything is off again", func() (bool, string) {
					var pods corev1.PodList
					err := stage.kube.List(ctx, &pods)
					out := try("sinfo", "--noheader", "--format=%T")
					if out != "idle~" && !strings.Contains(out, "%") {
						try("scontrol", "update", fmt.Sprintf("nodename=slurm-worker-cpu-[0-%d]", nodes-1), "state=POWER_DOWN_FORCE")
					}
					return err == nil && len(pods.Items) == 0 && out == "idle~", fmt.Sprint(len(pods.Items), " pods, ", out)
				})
			}
		}
		return seconds
	}
	ours := measure(func(ctx context.Context, loop *Loop) {
		go func() {
			for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
				files, _ := os.ReadDir(told)
				for _, file := range files {
					name := filepath.Join(told, file.Name())
					text, err := os.ReadFile(name)
					if err == nil && os.Remove(name) == nil {
						loop.Hints().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/poke", bytes.NewReader(text)))
					}
				}
			}
		}()
		_ = loop.Start(ctx)
	}, func() time.Duration { return 5 * time.Second })
	poller := measure(func(ctx context.Context, loop *Loop) {
		for ctx.Err() == nil {
			_, _ = loop.round(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(30 * time.Second):
			}
		}
	}, func() time.Duration { return time.Duration(rand.Int64N(int64(30 * time.Second))) })
	for _, size := range []int{1, nodes} {
		t.Logf("%d nodes: %.2f s; the poller %.2f s", size, ours[size], poller[size])
		a, b := median(ours[size]), median(poller[size])
		fmt.Printf("scale-up-%d-nodes %.2f s %.3f - -\nscale-up-%d-nodes/poller %.2f s - - -\n", size, a, a/b, size, b)
	}
}

func median(values []float64) float64 {
	sort.Float64s(values)
	return values[len(values)/2]
}
