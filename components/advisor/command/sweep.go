package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"text/template"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-hpc/berth/components/advisor/rl"
	"github.com/berth-hpc/berth/components/advisor/sim/metrics"
)

// sweep is a set of trainings: every arm with every seed.
type sweep struct {
	learn                   learnFlags
	arms                    []string
	seeds, engine, out      string
	parallel                int
	noSubmit                bool
	partition, image, claim string
	namespace, time         string
	cpus, actors            int
}

// trial is one training of a sweep.
type trial struct {
	Arm  string
	Seed uint64
	Dir  string
}

func newSweep() *cobra.Command {
	s := &sweep{}
	own := pflag.NewFlagSet("sweep", pflag.ContinueOnError)
	c := &cobra.Command{
		Use:   "sweep --arms A,B --seeds FIRST..LAST --cluster FILE --out FOLDER [--engine local|slurm|kubernetes]",
		Short: "Train every arm with every seed, here or on the cluster",
		Long: `sweep trains every arm with every seed, each in FOLDER/ARM-SEED. Whatever is interrupted goes on when the same command is given
again. All other flags are those of train.

With --engine slurm it writes FOLDER/sweep.sbatch, a job array whose tasks are requeued where their node fails and resume from the folder,
which must be on storage that all nodes share, and submits it. With --engine kubernetes it writes FOLDER/sweep.yaml, an Indexed Job.`,
		Example: `  advisor sweep --arms sac,rdsac_mean,rdsac_cvar --seeds 42..49 --cluster clusters/lab.cue --out runs/sweep --parallel 2
  advisor sweep --arms rdsac_cvar --seeds 42..49 --cluster clusters/lab.cue --out /home/shared/sweep --engine slurm --partition cpu
  advisor sweep gather runs/sweep`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return s.run(c, own) },
	}
	s.learn.register(c)
	own.StringSliceVar(&s.arms, "arms", []string{"sac", "rdsac_mean", "rdsac_cvar"}, "learners")
	own.StringVar(&s.seeds, "seeds", "42..49", "seeds, first to last")
	own.StringVar(&s.engine, "engine", "local", "where to train: local, slurm or kubernetes")
	own.StringVar(&s.out, "out", "", "folder of the sweep")
	own.IntVar(&s.parallel, "parallel", 2, "trainings at a time")
	own.BoolVar(&s.noSubmit, "no-submit", false, "write the job and submit nothing")
	own.StringVar(&s.partition, "partition", "", "Slurm partition")
	own.StringVar(&s.time, "time", "24:00:00", "Slurm time limit of one training")
	own.IntVar(&s.cpus, "cpus", 2, "processors of one training, or of each of its tasks")
	own.IntVar(&s.actors, "actors", 0, "actors of one training beside its learner, as tasks of the same allocation (slurm; 0: the learner acts itself)")
	own.StringVar(&s.image, "image", "", "image with the advisor (kubernetes)")
	own.StringVar(&s.claim, "claim", "", "RWX volume claim that holds the folder (kubernetes)")
	own.StringVar(&s.namespace, "namespace", "default", "namespace (kubernetes)")
	c.Flags().AddFlagSet(own)
	c.AddCommand(&cobra.Command{
		Use:     "gather FOLDER",
		Short:   "Print how far the trainings of a sweep are, and what they reached",
		Example: "  advisor sweep gather runs/sweep",
		Args:    cobra.ExactArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return gather(c.OutOrStdout(), args[0]) },
	})
	return c
}

// trials lists the trainings, arms first.
func (s *sweep) trials() ([]trial, error) {
	lo, hi, ok := strings.Cut(s.seeds, "..")
	if !ok {
		hi = lo
	}
	a, err := strconv.ParseUint(lo, 10, 64)
	b, err2 := strconv.ParseUint(hi, 10, 64)
	if err != nil || err2 != nil || b < a || b-a > 10000 {
		return nil, fmt.Errorf("--seeds is %q; give the first and the last, as in 42..49", s.seeds)
	}
	var out []trial
	for _, arm := range s.arms {
		if _, ok := arms[arm]; !ok {
			return nil, fmt.Errorf("there is no arm %q; use sac, rdsac_mean or rdsac_cvar", arm)
		}
		for seed := a; seed <= b; seed++ {
			out = append(out, trial{arm, seed, filepath.Join(s.out, fmt.Sprintf("%s-%d", arm, seed))})
		}
	}
	return out, nil
}

func (s *sweep) run(c *cobra.Command, own *pflag.FlagSet) error {
	if s.out == "" {
		return fmt.Errorf("--out is missing; name the folder of the sweep")
	}
	trials, err := s.trials()
	if err != nil {
		return err
	}
	s.learn.arm = s.arms[0]
	if _, err := s.learn.setting(rl.Train); err != nil { // what no training could start with is said now
		return err
	}
	var pass []string
	c.Flags().Visit(func(f *pflag.Flag) {
		if own.Lookup(f.Name) == nil {
			v := f.Value.String()
			if strings.HasSuffix(f.Value.Type(), "Slice") {
				v = strings.Trim(v, "[]")
			}
			pass = append(pass, "--"+f.Name+"="+v)
		}
	})
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return err
	}
	if s.actors != 0 && s.engine != "slurm" {
		return fmt.Errorf("--actors is for --engine slurm; elsewhere start advisor train --listen and advisor train actor")
	}
	switch s.engine {
	case "local":
		return s.local(c, trials, pass)
	case "slurm":
		return s.slurm(c, trials, pass)
	case "kubernetes":
		return s.kubernetes(c, trials, pass)
	}
	return fmt.Errorf("--engine is %q; use local, slurm or kubernetes", s.engine)
}

// local runs trainings as processes of their own, some at a time. Each writes FOLDER/ARM-SEED.log.
func (s *sweep) local(c *cobra.Command, trials []trial, pass []string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	next := make(chan trial)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed []string
	for range max(s.parallel, 1) {
		wg.Go(func() {
			for t := range next {
				err := runTrial(c.Context(), exe, t, pass)
				mu.Lock()
				if err != nil {
					failed = append(failed, fmt.Sprintf("%s with seed %d: %v; see %s.log", t.Arm, t.Seed, err, t.Dir))
				} else {
					fmt.Fprintf(c.ErrOrStderr(), "%s with seed %d is done\n", t.Arm, t.Seed)
				}
				mu.Unlock()
			}
		})
	}
	for _, t := range trials {
		if c.Context().Err() != nil {
			break
		}
		next <- t
	}
	close(next)
	wg.Wait()
	if err := c.Context().Err(); err != nil {
		return fmt.Errorf("interrupted; the same command goes on from there")
	}
	if err := gather(c.OutOrStdout(), s.out); err != nil {
		return err
	}
	if len(failed) > 0 {
		return problems{strings.Join(failed, "\n")}
	}
	return nil
}

func runTrial(ctx context.Context, exe string, t trial, pass []string) error {
	log, err := os.OpenFile(t.Dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	args := append([]string{"train", "--arm", t.Arm, "--seed", fmt.Sprint(t.Seed), "--out", t.Dir, "--threads", "1"}, pass...)
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdout, cmd.Stderr = log, log
	return errors.Join(cmd.Run(), log.Close())
}

// quote makes a word of any string for a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

var sbatch = template.Must(template.New("sbatch").Funcs(template.FuncMap{"quote": quote}).Parse(`#!/bin/bash
#SBATCH --job-name=advisor-sweep
#SBATCH --array=0-{{.Last}}%{{.Parallel}}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={{.Out}}/slurm-%A_%a.log
{{- if .Actors}}
#SBATCH --ntasks={{.Tasks}}
{{- end}}
#SBATCH --cpus-per-task={{.CPUs}}
#SBATCH --time={{.Time}}
{{- if .Partition}}
#SBATCH --partition={{.Partition}}
{{- end}}
# A task that is requeued or submitted again goes on from its last checkpoint; one that is done ends at once.
set -eu
arms=({{range .Trials}}{{.Arm}} {{end}})
seeds=({{range .Trials}}{{.Seed}} {{end}})
i=$SLURM_ARRAY_TASK_ID
cd {{quote .Cwd}}
train=(--arm "${arms[i]}" --seed "${seeds[i]}" --out {{quote .Out}}/"${arms[i]}-${seeds[i]}" --threads "${SLURM_CPUS_PER_TASK:-1}"{{range .Pass}} {{quote .}}{{end}})
{{- if .Actors}}
# The learner and its actors are steps of this allocation. They meet in the folder; the actors end with the learner.
srun --exact --ntasks=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" {{quote .Exe}} train "${train[@]}" --listen :0 &
learner=$!
srun --exact --ntasks={{.Actors}} --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" {{quote .Exe}} train actor "${train[@]}" &
status=0
wait $learner || status=$?
wait || true
exit $status
{{- else}}
exec {{quote .Exe}} train "${train[@]}"
{{- end}}
`))

// slurm writes the job array and submits it.
func (s *sweep) slurm(c *cobra.Command, trials []trial, pass []string) error {
	out, err := filepath.Abs(s.out)
	if err != nil {
		return err
	}
	if strings.ContainsAny(out, " \n\t%\"'\\") {
		return fmt.Errorf("--out is %q; Slurm's log names need a path without spaces, quotes and percent signs", out)
	}
	if s.actors < 0 || s.actors > 1000 {
		return fmt.Errorf("--actors is %d; use 0 (the learner acts itself) to 1000", s.actors)
	}
	for _, v := range []string{s.partition, s.time} {
		if strings.ContainsAny(v, " \n\t") {
			return fmt.Errorf("%q is not a partition or a time", v)
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := sbatch.Execute(&b, map[string]any{"Last": len(trials) - 1, "Parallel": max(s.parallel, 1), "Out": out, "CPUs": s.cpus, "Time": s.time,
		"Partition": s.partition, "Actors": s.actors, "Tasks": s.actors + 1, "Trials": trials, "Exe": exe, "Cwd": cwd, "Pass": pass}); err != nil {
		return err
	}
	path := filepath.Join(s.out, "sweep.sbatch")
	if err := renameio.WriteFile(path, b.Bytes(), 0o755); err != nil {
		return err
	}
	if s.noSubmit {
		_, err = fmt.Fprintf(c.OutOrStdout(), "%d trainings in %s; submit with: sbatch %s\n", len(trials), path, path)
		return err
	}
	said, err := exec.CommandContext(c.Context(), "sbatch", "--parsable", path).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("there is no sbatch here; submit %s on a login node", path)
	}
	if err != nil {
		return fmt.Errorf("sbatch: %w: %s", err, bytes.TrimSpace(said))
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "submitted job %s; see it with: squeue -j %s; gather with: advisor sweep gather %s\n", bytes.TrimSpace(said), bytes.TrimSpace(said), s.out)
	return err
}

var indexedJob = template.Must(template.New("job").Funcs(template.FuncMap{"yaml": strconv.Quote}).Parse(`apiVersion: batch/v1
kind: Job
metadata:
  name: advisor-sweep
  namespace: {{.Namespace}}
spec:
  completionMode: Indexed
  completions: {{.Count}}
  parallelism: {{.Parallel}}
  # A training goes on from its last checkpoint, so that starting again is cheap.
  backoffLimitPerIndex: 10
  template:
    spec:
      restartPolicy: Never
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: train
          image: {{yaml .Image}}
          command: [/bin/sh, -ec]
          args:
            - |
              set -- {{range .Trials}}{{.Arm}}:{{.Seed}} {{end}}
              shift "$JOB_COMPLETION_INDEX"
              exec advisor train --arm "${1%:*}" --seed "${1#*:}" --out {{.Out}}/"${1%:*}-${1#*:}" --threads {{.CPUs}}{{range .Pass}} {{.}}{{end}}
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
          resources:
            requests: {cpu: {{.CPUs}}, memory: 2Gi}
            limits: {memory: 4Gi}
          volumeMounts: [{name: runs, mountPath: /runs}]
      volumes:
        - name: runs
          persistentVolumeClaim: {claimName: {{.Claim}}}
`))

// kubernetes writes the Indexed Job.
func (s *sweep) kubernetes(c *cobra.Command, trials []trial, pass []string) error {
	if s.image == "" || s.claim == "" {
		return fmt.Errorf("--image and --claim are needed: the image that holds the advisor, and the RWX claim that is mounted at /runs")
	}
	quoted := make([]string, len(pass))
	for i, p := range pass {
		quoted[i] = quote(p)
	}
	var b bytes.Buffer
	if err := indexedJob.Execute(&b, map[string]any{"Namespace": s.namespace, "Count": len(trials), "Parallel": max(s.parallel, 1), "Image": s.image,
		"Trials": trials, "Out": "/runs/" + filepath.Base(s.out), "CPUs": s.cpus, "Pass": quoted, "Claim": s.claim}); err != nil {
		return err
	}
	path := filepath.Join(s.out, "sweep.yaml")
	if err := renameio.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "%d trainings in %s; start with: kubectl apply -f %s (paths among the flags are the container's)\n", len(trials), path, path)
	return err
}

// gather prints a line a training and one an arm: the mean return over the last tenth of the points.
func gather(w io.Writer, dir string) error {
	es, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("there is no sweep: %w", err)
	}
	fmt.Fprintf(w, "%-24s %10s %12s %10s %10s\n", "training", "steps", "return", "entropy", "alpha")
	byArm := map[string][]float64{}
	var order []string
	for _, e := range es {
		arm, _, ok := strings.Cut(e.Name(), "-")
		if !e.IsDir() || !ok || arms[arm] == nil {
			continue
		}
		latest, err := rl.ReadLatest(filepath.Join(dir, e.Name()))
		if errors.Is(err, rl.ErrFresh) {
			fmt.Fprintf(w, "%-24s %10d\n", e.Name(), 0)
			continue
		}
		if err != nil {
			return err
		}
		_, cols, err := readCurve(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		r := cols["return"]
		last := metrics.Mean(r[len(r)-(len(r)+9)/10:])
		n := len(r) - 1
		fmt.Fprintf(w, "%-24s %10d %12.5g %10.4g %10.4g\n", e.Name(), latest.Step, last, cols["entropy"][n], cols["alpha"][n])
		if byArm[arm] == nil {
			order = append(order, arm)
		}
		byArm[arm] = append(byArm[arm], last)
	}
	for _, a := range order {
		fmt.Fprintf(w, "%-24s %10s %12.5g  over %d seeds\n", a, "", metrics.Mean(byArm[a]), len(byArm[a]))
	}
	return nil
}
