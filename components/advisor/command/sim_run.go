package command

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/engine"
	"github.com/berth-hpc/berth/components/advisor/sim/experiment"
	"github.com/berth-hpc/berth/components/advisor/sim/placement"
	"github.com/berth-hpc/berth/components/advisor/sim/plot"
	"github.com/berth-hpc/berth/components/advisor/sim/sitecluster"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

type runFlags struct {
	trace                                   traceFlags
	policies, cluster, placement, estimates string
	results, gantt, cdf, gittins            string
	procs                                   int
	seed                                    uint64
	limits, noInterference, procsAsCards    bool
	add                                     map[string]int
}

func newSimRun() *cobra.Command {
	f := &runFlags{}
	c := &cobra.Command{
		Use:   "run --trace FILE [--policy P,P…] [--cluster FILE | --procs N]",
		Short: "Simulate a trace under one or more policies and print a table",
		Long: `run simulates a trace and prints one line a policy: mean, median, 95th and 99th percentile of completion time and wait
(seconds; quantiles are Hyndman and Fan's type 7), bounded slowdown (threshold 10 s), makespan, utilisation (util: a share of a card
counts as its share of the SMs; held: the part of the cards' time during which anybody held some of the card), missed deadlines, CVaR95 of completion time, and Jain's fairness index of users' mean bounded slowdowns. Failed jobs
(cancelled, out of memory, without a machine that could hold them) are counted apart and are in no mean; preempted counts preemptions.

A policy is an order with or without backfill: fcfs, sjf, saf, f1, wfp3, unicep, ljf; fcfs+easy, fcfs+conservative, saf+greedy;
fcfs+easy-sjf tries backfill candidates in another order. On a cluster also srtf, srsf, tiresias, gittins, multifactor[+easy] and
multifactor-classic[+easy].

The machine is a pool of identical processors (--procs, or MaxProcs of an SWF file) or a cluster: a JSON description, or a site
file such as clusters/lab.cue, whose pools may be enlarged with --add.`,
		Example: `  advisor sim run --trace log.swf --policy fcfs,fcfs+easy,saf+easy
  advisor sim run --trace history.txt --cluster clusters/lab.cue --policy multifactor+easy --gantt lab.svg
  advisor sim run --trace history.txt --cluster clusters/lab.cue --add gpu-rtx3080=2 --policy multifactor+easy`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.trace.register(c)
	c.Flags().StringVar(&f.policies, "policy", "fcfs,fcfs+easy", "policies, separated by commas")
	c.Flags().StringVar(&f.cluster, "cluster", "", "cluster: a JSON description or a site file (clusters/lab.cue)")
	c.Flags().StringToIntVar(&f.add, "add", nil, "enlarge pools of the cluster, as in gpu-rtx3080=2")
	c.Flags().IntVar(&f.procs, "procs", 0, "simulate a pool of so many identical processors")
	c.Flags().StringVar(&f.placement, "placement", "best-fit", "placement on a cluster: first-fit, random, dot-product, gpu-clustering, gpu-packing, best-fit, fgd")
	c.Flags().StringVar(&f.estimates, "estimates", "trace", "users' estimates: trace, exact, or factor:F (run time times 1 to F)")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "seed of everything random")
	c.Flags().BoolVar(&f.limits, "limits", false, "end jobs at their time limits")
	c.Flags().BoolVar(&f.noInterference, "no-interference", false, "let jobs share cards at no cost")
	c.Flags().BoolVar(&f.procsAsCards, "procs-as-cards", false, "read a processor trace as one of whole cards")
	c.Flags().StringVar(&f.results, "results", "", "write per-job results to this file (.csv or .parquet; one policy)")
	c.Flags().StringVar(&f.gantt, "gantt", "", "draw who held which card when (.svg, .png, .pdf; a cluster, one policy)")
	c.Flags().StringVar(&f.cdf, "cdf", "", "draw the distributions of completion times (.svg, .png, .pdf)")
	c.Flags().StringVar(&f.gittins, "gittins", "", "job sizes in card-seconds, one a line, for the gittins policy")
	return c
}

func (f *runFlags) run(c *cobra.Command) error {
	policies := strings.Split(f.policies, ",")
	if err := f.checkNames(); err != nil {
		return err
	}
	if f.trace.path == "-" && (len(policies) != 1 || f.cluster == "" && f.procs == 0) {
		return fmt.Errorf("standard input can be read only once: give one --policy, and --procs or --cluster; or name a file with --trace")
	}
	if (f.results != "" || f.gantt != "") && len(policies) != 1 {
		return fmt.Errorf("--results and --gantt are of one run; give one policy, not %d", len(policies))
	}
	spec, multifactor, err := f.machine()
	if err != nil {
		return err
	}
	if spec == nil && f.gantt != "" {
		return fmt.Errorf("--gantt draws cards; give a --cluster")
	}
	est, err := f.estimateKind()
	if err != nil {
		return err
	}
	setup := experiment.Setup{Procs: int32(f.procs), Spec: spec, Placement: f.placement, Seed: f.seed, Limits: f.limits, NoInterference: f.noInterference, Multifactor: multifactor}
	if f.gittins != "" {
		if setup.Gittins, err = readNumbers(f.gittins); err != nil {
			return err
		}
	}
	for _, p := range policies {
		setup.Policy = strings.TrimSpace(p)
		if err := setup.Check(); err != nil {
			return err
		}
	}
	report := newReport(c.OutOrStdout(), f)
	defer report.drop()
	for _, p := range policies {
		setup.Policy = strings.TrimSpace(p)
		out, repairs, err := f.once(setup, est, report)
		if err != nil {
			return err
		}
		report.add(out, repairs)
	}
	return report.finish(c.ErrOrStderr())
}

// once opens the trace anew and runs one policy over it.
func (f *runFlags) once(setup experiment.Setup, est experiment.Estimates, rep *report) (*experiment.Outcome, string, error) {
	t, err := f.trace.open()
	if err != nil {
		return nil, "", err
	}
	defer t.close()
	src := est.Apply(t.src)
	if f.procsAsCards {
		src = experiment.CardsForProcs(src)
	}
	if setup.Spec == nil && setup.Procs == 0 {
		if setup.Procs, err = machineSize(f); err != nil {
			return nil, "", err
		}
	}
	if setup.Placement == "fgd" && setup.Spec != nil {
		jobs, err := workload.Collect(src)
		if err != nil {
			return nil, "", err
		}
		setup.Typical = experiment.TypicalOf(jobs)
		src = workload.FromSlice(jobs)
	}
	if err := rep.begin(&setup); err != nil {
		return nil, "", err
	}
	out, err := experiment.Run(setup, src)
	if err != nil {
		return nil, "", err
	}
	repairs := t.report.String()
	if out.Summary.Jobs == 0 {
		why := "; look at --skip, and at whether the file is whole"
		if repairs != "" {
			why = ": " + strings.ReplaceAll(strings.TrimSpace(repairs), "\n", ", ")
		}
		return nil, "", fmt.Errorf("%s: no job is left to simulate%s", f.trace.path, why)
	}
	return out, repairs, nil
}

// checkNames refuses what would otherwise be found out, or passed over, only after a run that may be long.
func (f *runFlags) checkNames() error {
	if f.results != "" && !hasSuffix(f.results, ".csv") && !hasSuffix(f.results, ".parquet") {
		return fmt.Errorf("--results is %q; name a file that ends in .csv or .parquet", f.results)
	}
	for flag, path := range map[string]string{"gantt": f.gantt, "cdf": f.cdf} {
		if path == "" {
			continue
		}
		if err := plot.Check(path); err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
	}
	if !slices.Contains(placement.Names, f.placement) {
		return fmt.Errorf("no placement policy is called %q; use %s", f.placement, strings.Join(placement.Names, ", "))
	}
	return nil
}

// machineSize reads a trace's header, which ends where its first job begins.
func machineSize(f *runFlags) (int32, error) {
	t, err := f.trace.open()
	if err != nil {
		return 0, err
	}
	defer t.close()
	for _, err := range t.src {
		if err != nil {
			return 0, err
		}
		break
	}
	h := t.report.Header["MaxProcs"]
	if h == "" {
		return 0, fmt.Errorf("%s does not say how large its machine was; give --procs or --cluster", f.trace.path)
	}
	n, err := strconv.ParseInt(h, 10, 31)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%s: MaxProcs is %q; give --procs", f.trace.path, h)
	}
	return int32(n), nil
}

// machine reads the cluster, if one is given.
func (f *runFlags) machine() (*cluster.Spec, func() (*engine.Multifactor, error), error) {
	if f.cluster == "" {
		if len(f.add) > 0 {
			return nil, nil, fmt.Errorf("--add enlarges pools of a cluster; give --cluster")
		}
		if f.procs < 0 || f.procs > 1<<30 {
			return nil, nil, fmt.Errorf("--procs is %d; a pool has 1 to 1073741824 processors", f.procs)
		}
		return nil, nil, nil
	}
	if f.procs != 0 {
		return nil, nil, fmt.Errorf("--procs and --cluster exclude each other")
	}
	var spec *cluster.Spec
	var multifactor func() (*engine.Multifactor, error)
	if strings.HasSuffix(f.cluster, ".cue") {
		s, site, err := sitecluster.Load(f.cluster)
		if err != nil {
			return nil, nil, err
		}
		spec, multifactor = s, func() (*engine.Multifactor, error) { return sitecluster.Multifactor(site) }
	} else {
		s, err := cluster.LoadSpec(f.cluster)
		if err != nil {
			return nil, nil, err
		}
		spec = s
	}
	for name, n := range f.add {
		if err := spec.Add(name, n); err != nil {
			return nil, nil, fmt.Errorf("--add: %w", err)
		}
	}
	return spec, multifactor, nil
}

func (f *runFlags) estimateKind() (experiment.Estimates, error) {
	kind, factor, has := strings.Cut(f.estimates, ":")
	e := experiment.Estimates{Kind: kind, Seed: f.seed}
	switch {
	case kind == "factor" && has:
		v, err := strconv.ParseFloat(factor, 64)
		if err != nil || !(v >= 1 && v <= 1e6) {
			return e, fmt.Errorf("--estimates factor:%s: the factor is a number from 1 to 1000000", factor)
		}
		e.Factor = v
		return e, nil
	case (kind == "trace" || kind == "exact") && !has:
		return e, nil
	}
	return e, fmt.Errorf("--estimates is %q; use trace, exact or factor:F", f.estimates)
}

// readNumbers reads one job size a line; a first line that is not a number is a header.
func readNumbers(path string) ([]float64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the job sizes of --gittins: %w", err)
	}
	defer file.Close()
	var out []float64
	s := bufio.NewScanner(file)
	for line := 1; s.Scan(); line++ {
		text := strings.TrimSpace(s.Text())
		v, err := strconv.ParseFloat(text, 64)
		switch {
		case text == "" || err != nil && line == 1:
		case err != nil || !(v > 0) || math.IsInf(v, 0):
			return nil, fmt.Errorf("%s:%d: %q is not a job size above zero, in card-seconds; mend or remove the line", path, line, text)
		default:
			out = append(out, v)
		}
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("%s: cannot read: %w", path, err)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: there is no job size in it; write one a line, in card-seconds", path)
	}
	return out, nil
}
