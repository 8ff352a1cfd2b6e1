package command

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/components/advisor/sim/anchor"
	"github.com/berth-hpc/berth/components/advisor/sim/compat/muri"
	"github.com/berth-hpc/berth/components/advisor/sim/compat/openb"
	"github.com/berth-hpc/berth/components/advisor/sim/metrics"
)

func newSimCompat() *cobra.Command {
	c := &cobra.Command{
		Use:   "compat",
		Short: "Compute published tables with their own simulators' semantics, for any trace of that kind",
	}
	c.AddCommand(newCompatLublin(), newCompatMuri(), newCompatOpenb())
	return c
}

func newCompatLublin() *cobra.Command {
	var path string
	var procs int
	c := &cobra.Command{
		Use:   "lublin --trace LOG.swf",
		Short: "RLScheduler's evaluation (SC'20): ten sequences of 1,024 jobs, its semantics and the textbook's",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if path == "" {
				return fmt.Errorf("--trace is missing; name a log in the standard workload format")
			}
			if procs < 0 || procs > 1<<30 {
				return fmt.Errorf("--procs is %d; a machine has 1 to 1073741824 processors", procs)
			}
			rows, err := anchor.LublinTable(path, procs)
			if err != nil {
				return err
			}
			text, err := anchor.TextbookTable(path, procs, anchor.TextbookDisciplines)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', tabwriter.AlignRight)
			fmt.Fprintln(w, "semantics\tpolicy\tbackfill\tBSLD\twait\tutilisation\t")
			for _, r := range rows {
				fmt.Fprintf(w, "published\t%s\t%v\t%.2f\t%.2f\t%.3f\t\n", r.Policy, r.Backfill, r.BSLD, r.Wait, r.Utilisation)
			}
			for _, r := range text {
				fmt.Fprintf(w, "textbook\t%s\t\t%.6f\t%.2f\t\t\n", r.Discipline, r.BSLD, r.Wait)
			}
			return w.Flush()
		},
	}
	c.Flags().StringVar(&path, "trace", "", "log in the standard workload format")
	c.Flags().IntVar(&procs, "procs", 0, "processors (0: MaxProcs of the log, or 256)")
	return c
}

func newCompatMuri() *cobra.Command {
	var path, jobLog, policy string
	var nodes, gpus int
	c := &cobra.Command{
		Use:   "muri --trace TRACE.csv",
		Short: "Muri's simulator (SIGCOMM'22): SRTF, SRSF and Tiresias on a cluster of GPUs",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if path == "" {
				return fmt.Errorf("--trace is missing; name a trace of Muri's")
			}
			if nodes < 1 || nodes > 1<<16 || gpus < 1 || gpus > 1<<10 {
				return fmt.Errorf("--nodes is %d and --gpus-per-node %d; use 1 to 65536 and 1 to 1024", nodes, gpus)
			}
			if policy != "" && !slices.Contains(anchor.MuriPolicies, muri.Policy(policy)) {
				return fmt.Errorf("--policy is %q; use shortest (SRTF), shortest-gpu (SRSF) or dlas-gpu (Tiresias)", policy)
			}
			if jobLog != "" && policy == "" {
				return fmt.Errorf("--job-log is of one policy; name it with --policy")
			}
			jobs, err := muri.ReadTrace(path)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', tabwriter.AlignRight)
			fmt.Fprintln(w, "policy\tjobs\tmean JCT\tmakespan\tP99 JCT\t")
			for _, p := range anchor.MuriPolicies {
				if policy != "" && string(p) != policy {
					continue
				}
				rs, err := muri.Run(jobs, muri.Cluster{Nodes: nodes, GPUsPerNode: gpus}, p)
				if err != nil {
					return err
				}
				s := muri.Summarise(rs)
				fmt.Fprintf(w, "%s\t%d\t%.6f\t%.6f\t%.6f\t\n", p, s.Jobs, s.MeanJCT, s.Makespan, s.P99)
				if jobLog != "" {
					if err := writeFile(jobLog, func(w io.Writer) error { return muriLog(w, rs) }); err != nil {
						return err
					}
				}
			}
			return w.Flush()
		},
	}
	c.Flags().StringVar(&path, "trace", "", "trace in Muri's CSV")
	c.Flags().StringVar(&policy, "policy", "", "only shortest (SRTF), shortest-gpu (SRSF) or dlas-gpu (Tiresias)")
	c.Flags().StringVar(&jobLog, "job-log", "", "write the job log of the policy to this CSV file")
	c.Flags().IntVar(&nodes, "nodes", 8, "nodes")
	c.Flags().IntVar(&gpus, "gpus-per-node", 8, "GPUs of a node")
	return c
}

// muriLog writes a job log with the columns of the original's.
func muriLog(out io.Writer, rs []muri.Result) error {
	w := csv.NewWriter(out)
	num := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	err := w.Write([]string{"job_id", "num_gpu", "submit_time", "start_time", "end_time", "executed_time", "JCT", "pending_time", "preempt"})
	for _, r := range rs {
		if err == nil {
			err = w.Write([]string{strconv.FormatInt(r.ID, 10), strconv.Itoa(r.GPUs), num(r.Submit), num(r.Start), num(r.End), num(r.Executed), num(r.JCT), num(r.Pending), strconv.Itoa(r.Preempts)})
		}
	}
	if w.Flush(); err == nil {
		err = w.Error()
	}
	return err
}

func newCompatOpenb() *cobra.Command {
	var pods, nodes string
	var seeds []int64
	c := &cobra.Command{
		Use:   "openb --trace PODS.csv --nodes NODES.csv",
		Short: "FGD's evaluation (ATC'23): allocation ratios of six placement policies on Alibaba's openb",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if pods == "" || nodes == "" {
				return fmt.Errorf("--trace and --nodes are needed: a pod list and a node list of openb")
			}
			list, err := openb.ReadPods(pods)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', tabwriter.AlignRight)
			fmt.Fprintln(w, "policy\tat 90 %\tat 100 %\tat 130 %\t")
			for _, p := range anchor.OpenbPolicies {
				var at [3][]float64
				for _, s := range seeds {
					ns, err := openb.ReadNodes(nodes)
					if err != nil {
						return err
					}
					r, err := openb.Simulate(ns, list, p, s)
					if err != nil {
						return err
					}
					for i, x := range []float64{90, 100, 130} {
						at[i] = append(at[i], r.AllocationAt(x))
					}
				}
				fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t\n", p, metrics.Mean(at[0]), metrics.Mean(at[1]), metrics.Mean(at[2]))
			}
			return w.Flush()
		},
	}
	c.Flags().StringVar(&pods, "trace", "", "pod list")
	c.Flags().StringVar(&nodes, "nodes", "", "node list")
	c.Flags().Int64SliceVar(&seeds, "seeds", []int64{42, 43, 44}, "seeds to average over")
	return c
}
