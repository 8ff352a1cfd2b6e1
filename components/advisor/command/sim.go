package command

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // for --timezone in images that have no zones

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/components/advisor/sim/parquetfile"
	"github.com/berth-hpc/berth/components/advisor/sim/trace"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

func newSim() *cobra.Command {
	c := &cobra.Command{
		Use:   "sim",
		Short: "Simulate scheduling on traces, and reproduce published tables",
		Long: `sim is a trace-driven, event-driven simulator of a cluster under Slurm-like scheduling. Equal seeds give equal output on
any machine.`,
	}
	c.AddCommand(newSimRun(), newSimCompat(), newSimGenerate(), newSimExport(), newSimAnchors(), newSimBench(), newSimSprio(), newSimFormats())
	return c
}

// traceFlags are the flags of every command that reads a trace.
type traceFlags struct {
	path, format, timezone, throughputs string
	lenient                             bool
	skip, jobs                          int
}

func (f *traceFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.path, "trace", "", "trace to read (gzip is recognised; - is standard input)")
	c.Flags().StringVar(&f.format, "format", "auto", "trace format; see `advisor sim formats`")
	c.Flags().StringVar(&f.timezone, "timezone", "UTC", "zone of timestamps that state none")
	c.Flags().StringVar(&f.throughputs, "throughputs", "", "Gavel's simulation_throughputs.json, for Gavel traces")
	c.Flags().BoolVar(&f.lenient, "lenient", false, "skip and count lines that cannot be read")
	c.Flags().IntVar(&f.skip, "skip", 0, "leave out so many jobs at the beginning")
	c.Flags().IntVar(&f.jobs, "jobs", 0, "take at most so many jobs (0: all)")
}

// opened is a trace that is being read.
type opened struct {
	src    workload.Source
	report *trace.Report
	close  func() error
}

// open opens the trace; its source leaves out and cuts as the flags say.
func (f *traceFlags) open() (*opened, error) {
	if f.path == "" {
		return nil, fmt.Errorf("--trace is missing; name a trace, or make one with `advisor sim generate`")
	}
	loc, err := time.LoadLocation(f.timezone)
	if err != nil {
		return nil, fmt.Errorf("--timezone: %q is not a zone like Europe/Berlin", f.timezone)
	}
	opt := trace.Options{Format: f.format, Lenient: f.lenient, Location: loc}
	if f.throughputs != "" {
		if opt.Throughputs, err = trace.LoadThroughputs(f.throughputs); err != nil {
			return nil, err
		}
	}
	if f.skip < 0 || f.jobs < 0 {
		return nil, fmt.Errorf("--skip and --jobs are counts of jobs; %d and %d are not", f.skip, f.jobs)
	}
	o := &opened{report: &trace.Report{}}
	if parquetfile.Is(f.path) {
		src, closer, err := parquetfile.Open(f.path)
		if err != nil {
			return nil, err
		}
		o.src, o.close = src, closer.Close
	} else {
		t, err := trace.Open(f.path, opt)
		if err != nil {
			return nil, err
		}
		o.src, o.report, o.close = t.Jobs(), &t.Report, t.Close
	}
	if f.skip > 0 || f.jobs > 0 {
		n := f.jobs
		if n == 0 {
			n = 1 << 40
		}
		o.src = workload.Take(o.src, f.skip, n)
	}
	return o, nil
}

func newSimFormats() *cobra.Command {
	return &cobra.Command{
		Use:   "formats",
		Short: "List the trace formats that can be read",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var b strings.Builder
			for _, f := range trace.Formats() {
				fmt.Fprintf(&b, "%-12s %s\n", f.Name, f.Doc)
			}
			fmt.Fprintf(&b, "%-12s %s\n", "parquet", "Berth's own, with all that a job has (written by export and generate)")
			fmt.Fprintf(&b, "\nTo read a lab's own history:\n  sacct -a -X -P -o %s > history.txt\n  advisor sim run --trace history.txt …\n", trace.SacctFormat)
			_, err := fmt.Fprint(c.OutOrStdout(), b.String())
			return err
		},
	}
}
