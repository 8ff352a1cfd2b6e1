package mutation_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berth-hpc/berth/components/guard/slurm"
	"github.com/berth-hpc/berth/components/guard/slurmtest"
	"github.com/berth-hpc/berth/renderer/emit"
	"github.com/berth-hpc/berth/renderer/mutation"
)

// What an accepted site makes of slurm.conf starts a real slurmctld, in a network of its own and on an empty state: the guard's own
// trial says so. BERTH_FUZZ_STARTS says how many (100), BERTH_FUZZ_FROM and BERTH_FUZZ_SEED which.
func TestSlurmctldStarts(t *testing.T) {
	slurmctld := newScratch(t)
	maker, err := mutation.New(clusters)
	if err != nil {
		t.Fatal(err)
	}
	seed, n, wanted := setting(t, "SEED", 1), setting(t, "FROM", 0), setting(t, "STARTS", 100)
	var next, started atomic.Uint64
	next.Store(n)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		j := newJudge(t)
		workers.Go(func() {
			for started.Load() < wanted && !t.Failed() {
				n := next.Add(1) - 1
				s := maker.Make(seed, n)
				made, err := j.judge(s)
				if err == nil && made != nil {
					started.Add(1)
					err = slurmctld.start(t.Context(), made)
				}
				if err != nil {
					t.Errorf("%v\nagain: BERTH_FUZZ_SEED=%d BERTH_FUZZ_FROM=%d BERTH_FUZZ_STARTS=1 go test -run TestSlurmctldStarts ./renderer/mutation\n%s", err, seed, n, s)
				}
			}
		})
	}
	workers.Wait()
	t.Logf("seed %d, sites %d to %d: slurmctld started with each of the %d accepted ones", seed, n, next.Load()-1, started.Load())
}

// scratch is a machine on which slurmctld is tried.
type scratch struct {
	machine  *slurmtest.Machine
	programs *slurm.Programs
}

func newScratch(t *testing.T) *scratch {
	machine := slurmtest.Start(t)
	return &scratch{machine, &slurm.Programs{Prefix: machine.Prefix()}}
}

// start tries the SlurmConfig that a site brings into the cluster.
func (s *scratch) start(ctx context.Context, made *emit.Rendered) error {
	for _, layer := range made.Inflated {
		for _, o := range layer.Objects {
			if o.Kind() != "SlurmConfig" {
				continue
			}
			spec, _ := o.Content()["spec"].(map[string]any)
			texts, _ := spec["files"].(map[string]any)
			files := map[string]string{}
			for name, text := range texts {
				files[name], _ = text.(string)
			}
			files["slurm.conf"] = onMachine(s.machine, files["slurm.conf"])
			verdict, err := s.programs.Try(ctx, s.machine.Dir, files)
			switch {
			case err != nil:
				return fmt.Errorf("the trial failed: %w", err)
			case !verdict.Accepted:
				return fmt.Errorf("cue accepts the site and slurmctld does not: %s", verdict.Words)
			}
			return nil
		}
	}
	return fmt.Errorf("the site brings no SlurmConfig")
}

var ofThePod = regexp.MustCompile(`(?m)^(SlurmctldHost|SlurmUser|AuthAltParameters)=.*$`)

// onMachine gives what is the controller pod's, and no site says, the test machine's value.
func onMachine(machine *slurmtest.Machine, conf string) string {
	return ofThePod.ReplaceAllStringFunc(conf, func(line string) string {
		switch key, _, _ := strings.Cut(line, "="); key {
		case "SlurmctldHost":
			return "SlurmctldHost=ctl"
		case "SlurmUser":
			return "SlurmUser=root"
		default:
			return "AuthAltParameters=jwt_key=" + machine.Key("jwt_hs256.key")
		}
	})
}

// A pool of a thousand workers is one line of ranges, which slurmctld reads.
func TestSlurmctldTakesAThousandNodes(t *testing.T) {
	slurmctld := newScratch(t)
	text, err := os.ReadFile(filepath.Join(clusters, "laptop.cue"))
	if err != nil {
		t.Fatal(err)
	}
	large := strings.NewReplacer(`cpus: 8, memory: "16Gi"`, `cpus: 2000, memory: "4Ti"`, "max: 3, cpus: 2", "max: 1000, cpus: 2").Replace(string(text))
	if !strings.Contains(large, "cpus: 2000") || !strings.Contains(large, "max: 1000") {
		t.Fatalf("the laptop's site is written in another way:\n%s", text)
	}
	made, err := newJudge(t).judge(mutation.Site{Name: "laptop", Files: map[string]string{"laptop.cue": large}, Edits: []string{"1,000 workers"}})
	if err != nil || made == nil {
		t.Fatalf("not accepted: %v", err)
	}
	if err := slurmctld.start(t.Context(), made); err != nil {
		t.Error(err)
	}
}
