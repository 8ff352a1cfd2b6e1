package command

import (
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/berth-hpc/berth/components/advisor/sim/engine"
	"github.com/berth-hpc/berth/components/advisor/sim/experiment"
	"github.com/berth-hpc/berth/components/advisor/sim/metrics"
	"github.com/berth-hpc/berth/components/advisor/sim/plot"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// report gathers the runs of one command and writes table, results and pictures.
type report struct {
	flags   *runFlags
	out     io.Writer
	runs    []*experiment.Outcome
	repairs string
	results *resultWriter
	bars    []engine.Stretch
}

func newReport(out io.Writer, f *runFlags) *report { return &report{out: out, flags: f} }

// begin hooks into a run what the report needs of it.
func (r *report) begin(s *experiment.Setup) error {
	if r.flags.results != "" {
		var err error
		if r.results, err = newResults(r.flags.results); err != nil {
			return err
		}
		s.Job = r.results.add
	}
	if r.flags.gantt != "" {
		s.Stretch = func(b engine.Stretch) { r.bars = append(r.bars, b) }
	}
	return nil
}

// drop leaves nothing half-written behind; it is harmless after finish.
func (r *report) drop() {
	if r.results != nil {
		r.results.drop()
	}
}

func (r *report) add(o *experiment.Outcome, repairs string) {
	r.runs = append(r.runs, o)
	r.repairs = repairs
}

func (r *report) finish(errs io.Writer) error {
	if r.repairs != "" {
		fmt.Fprintf(errs, "repairs of the trace:\n%s", r.repairs)
	}
	for _, o := range r.runs {
		if o.Renamed > 0 {
			fmt.Fprintf(errs, "%s: %d× job id of another job in the system, given a new id below zero\n", o.Policy, o.Renamed)
		}
		if o.Impossible > 0 {
			fmt.Fprintf(errs, "%s: %d of %d jobs ask for more than the machine has; they never ran and count as failed\n", o.Policy, o.Impossible, o.Summary.Jobs)
		}
		if o.GivenUp > 0 {
			fmt.Fprintf(errs, "%s: %d of %d jobs were given up after %d failures of nodes with nothing saved between them; they count as failed. "+
				"Set checkpoint in the cluster's description, or a longer mtbf\n", o.Policy, o.GivenUp, o.Summary.Jobs, engine.MostFutile)
		}
		if i := o.Ignored; i != (experiment.Ignored{}) {
			fmt.Fprintf(errs, "%s: a pool of processors ignores %d jobs' dependencies, %d tasks' bound on their array and %d withdrawals; "+
				"describe the machine with --cluster to have them heeded\n", o.Policy, i.Dependent, i.Bounded, i.Withdrawn)
		}
	}
	if err := r.table(); err != nil {
		return err
	}
	if r.results != nil {
		if err := r.results.keep(); err != nil {
			return err
		}
	}
	if r.flags.gantt != "" {
		if err := r.gantt(); err != nil {
			return err
		}
	}
	if r.flags.cdf != "" {
		var curves []plot.Curve
		for _, o := range r.runs {
			curves = append(curves, plot.Curve{Name: o.Policy, Values: o.Jobs.JCT()})
		}
		return writeFile(r.flags.cdf, func(w io.Writer) error {
			return plot.CDF(w, plot.Form(r.flags.cdf), "Completion times", "seconds from submission to end", curves)
		})
	}
	return nil
}

func (r *report) table() error {
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "policy\tjobs\tfailed\tJCT mean\tP50\tP95\tP99\twait mean\tP50\tP95\tP99\tBSLD\tmakespan\tutil\theld\tSLA missed\tCVaR95\tfairness\tpreempted\t")
	for _, o := range r.runs {
		s := &o.Summary
		held := "-" // no cards
		if o.CardsHeld > 0 {
			held = fmt.Sprintf("%.3f", o.CardsHeld)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.2f\t%.0f\t%.3f\t%s\t%d/%d\t%.1f\t%.3f\t%d\t\n", o.Policy, s.Jobs, s.Failed,
			s.MeanJCT, s.P50JCT, s.P95JCT, s.P99JCT, s.MeanWait, s.P50Wait, s.P95Wait, s.P99Wait, s.MeanBSLD, s.Makespan, s.Utilisation, held,
			s.Violations, s.Deadlines, s.CVaR95, s.Fairness, s.Preempts)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, o := range r.runs {
		if o.Summary.Approximate {
			fmt.Fprintf(r.out, "%s: more than %d jobs: percentiles and CVaR95 are within %g %% of the exact ones, all else is exact\n", o.Policy,
				metrics.ExactUpTo, 100*metrics.RelativeError)
		}
		if e := o.Engine; e != nil && (e.NodeStarts > 0 || e.NodeFailures > 0 || e.Cost > 0) {
			fmt.Fprintf(r.out, "%s: nodes up %.1f h, started %d times, failed %d times, cost %.2f\n", o.Policy, e.UpHours, e.NodeStarts, e.NodeFailures, e.Cost)
		}
	}
	return nil
}

func (r *report) gantt() error {
	rows := map[string]bool{}
	var bars []plot.Bar
	origin := workload.Never
	for _, b := range r.bars {
		origin = min(origin, b.Start)
	}
	hours := func(t workload.Time) float64 { return workload.InSeconds(t-origin) / 3600 }
	for _, b := range r.bars {
		cards := b.Cards
		if len(cards) == 0 {
			cards = []int{-1}
		}
		for _, c := range cards {
			row := b.Node
			if c >= 0 {
				row = fmt.Sprintf("%s/%d", b.Node, c)
			}
			rows[row] = true
			bars = append(bars, plot.Bar{Row: row, Job: b.Job, Start: hours(b.Start), End: hours(b.End)})
		}
	}
	lanes(bars)
	names := make([]string, 0, len(rows))
	for n := range rows {
		names = append(names, n)
	}
	slices.Sort(names)
	return writeFile(r.flags.gantt, func(w io.Writer) error {
		return plot.Gantt(w, plot.Form(r.flags.gantt), r.runs[0].Policy, names, bars)
	})
}

// lanes gives bars of one row that overlap (shares of a card) strips of their own.
func lanes(bars []plot.Bar) {
	slices.SortStableFunc(bars, func(a, b plot.Bar) int {
		switch {
		case a.Start < b.Start:
			return -1
		case a.Start > b.Start:
			return 1
		}
		return int(a.Job - b.Job)
	})
	ends := map[string][]float64{}
	for i := range bars {
		b := &bars[i]
		lane := 0
		for lane < len(ends[b.Row]) && ends[b.Row][lane] > b.Start {
			lane++
		}
		if lane == len(ends[b.Row]) {
			ends[b.Row] = append(ends[b.Row], 0)
		}
		ends[b.Row][lane] = b.End
		b.Part = lane
	}
	for i := range bars {
		bars[i].Of = len(ends[bars[i].Row])
	}
}

// writeFile writes a file whole or not at all.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(dirOf(path), ".advisor-")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	err = write(f)
	if e := f.Chmod(0o644); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}
