package command

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/components/advisor/sim/generate"
	"github.com/berth-hpc/berth/components/advisor/sim/parquetfile"
	"github.com/berth-hpc/berth/components/advisor/sim/trace"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

func newSimGenerate() *cobra.Command {
	c := &cobra.Command{
		Use:   "generate",
		Short: "Make synthetic workloads with the offered load set explicitly",
	}
	c.AddCommand(newGenerateLublin(), newGenerateMix())
	return c
}

func newGenerateLublin() *cobra.Command {
	var l generate.Lublin
	var out string
	c := &cobra.Command{
		Use:     "lublin --out FILE.swf",
		Short:   "Rigid jobs on processors, after Lublin and Feitelson (2003)",
		Example: "  advisor sim generate lublin --jobs 20000 --procs 256 --load 0.9 --out lublin.swf",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			src, err := l.Source()
			if err != nil {
				return err
			}
			return writeJobs(c, out, src, l.Procs)
		},
	}
	c.Flags().IntVar(&l.Jobs, "jobs", 10000, "number of jobs")
	c.Flags().IntVar(&l.Procs, "procs", 256, "processors")
	c.Flags().Float64Var(&l.Load, "load", 0.9, "offered load")
	c.Flags().Uint64Var(&l.Seed, "seed", 1, "seed")
	c.Flags().Float64Var(&l.Estimate, "estimate-factor", 1, "limits are run times times 1 to this factor")
	c.Flags().StringVar(&out, "out", "", "file to write (.swf or .parquet)")
	return c
}

func newGenerateMix() *cobra.Command {
	m := generate.Mix{Kinds: generate.AIMix}
	var out string
	c := &cobra.Command{
		Use:   "ai --out FILE.parquet",
		Short: "The AI mix: 30 % BERT inference, 30 % ResNet-50 training, 30 % Qwen fine-tuning, 10 % matrix multiplication",
		Example: `  advisor sim generate ai --jobs 5000 --cards 2.3 --load 0.95 --out mix.parquet
  advisor sim generate ai --cv 13 --out bursty.parquet`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			src, err := m.Source()
			if err != nil {
				return err
			}
			return writeJobs(c, out, src, int(m.Cards+1))
		},
	}
	c.Flags().IntVar(&m.Jobs, "jobs", 5000, "number of jobs")
	c.Flags().Float64Var(&m.Cards, "cards", 2, "capacity the load refers to: cards, each weighted by its speed")
	c.Flags().Float64Var(&m.Load, "load", 0.9, "offered load")
	c.Flags().Float64Var(&m.CV, "cv", 1, "coefficient of variation of the times between arrivals; 1 is Poisson")
	c.Flags().Uint64Var(&m.Seed, "seed", 1, "seed")
	c.Flags().Float64Var(&m.Estimate, "estimate-factor", 2, "limits are run times times 1 to this factor")
	c.Flags().IntVar(&m.Users, "users", 4, "users the jobs are spread over")
	c.Flags().Int32Var(&m.MaxCards, "max-cards", 0, "widest job (0: as the mix has it)")
	c.Flags().StringVar(&out, "out", "", "file to write (.swf or .parquet)")
	return c
}

// writeJobs writes a workload in the form the file's ending names.
func writeJobs(c *cobra.Command, path string, src workload.Source, procs int) error {
	var n int
	var write func(io.Writer) error
	switch {
	case hasSuffix(path, ".swf"):
		write = func(w io.Writer) (err error) { n, err = trace.WriteSWF(w, src, procs, nil); return err }
	case hasSuffix(path, ".parquet"):
		write = func(w io.Writer) (err error) { n, err = parquetfile.Write(w, src); return err }
	default:
		return fmt.Errorf("--out is %q; name a file that ends in .swf or .parquet", path)
	}
	if err := writeFile(path, write); err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), "%d jobs written to %s\n", n, path)
	return nil
}

func newSimExport() *cobra.Command {
	f := &traceFlags{}
	var out string
	var procs int
	c := &cobra.Command{
		Use:     "export --trace FILE --out FILE.swf|FILE.parquet",
		Short:   "Convert a trace",
		Example: "  advisor sim export --trace history.txt --out history.parquet",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if procs < 0 || procs > 1<<30 {
				return fmt.Errorf("--procs is %d; a machine has 1 to 1073741824 processors (0: not stated)", procs)
			}
			t, err := f.open()
			if err != nil {
				return err
			}
			defer t.close()
			if err := writeJobs(c, out, t.src, procs); err != nil {
				return err
			}
			if s := t.report.String(); s != "" {
				fmt.Fprintf(c.ErrOrStderr(), "repairs of the trace:\n%s", s)
			}
			return nil
		},
	}
	f.register(c)
	c.Flags().StringVar(&out, "out", "", "file to write (.swf or .parquet)")
	c.Flags().IntVar(&procs, "procs", 0, "MaxProcs of the SWF header")
	return c
}
