package command

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/components/guard/slurm"
	"github.com/berth-hpc/berth/renderer/maintenance"
	"github.com/berth-hpc/berth/renderer/site"
)

// drainFlags say how a host is drained.
type drainFlags struct {
	cluster       clusterFlags
	site, signal  string
	requeue, wait bool
	waitTimeout   time.Duration
	interval      time.Duration
}

func newDrain(s *settings) *cobra.Command {
	f := drainFlags{interval: 5 * time.Second}
	c := &cobra.Command{
		Use:   "drain HOST",
		Short: "Take a host out of service as its jobs end",
		Long: `Drain cordons a host (a Kubernetes node): its workers take no new jobs, and leave as theirs end. It says which jobs run there, and
waits for them. That it is interrupted changes nothing: the host stays cordoned, and the same command goes on.

No job ends by it, except with --requeue: then those that Slurm may requeue (batch jobs without --no-requeue) get the signal of --signal
and its time to write a checkpoint, then Slurm's own TERM and KillWait, and wait in the queue again.

What else of the platform runs on the host, such as slurmctld, is named in the end; kubectl drain moves it. berth undrain gives the host
back.

The exit code is 1 while workers are left on the host.

` + exitCodesHelp,
		Example: `  berth drain ada --site lab
  berth drain ada --site lab --wait=false
  berth drain ada --site lab --requeue --signal B:USR1@120`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c.Context(), s, args[0]) },
	}
	c.Flags().BoolVar(&f.requeue, "requeue", false, "requeue the jobs that Slurm may requeue, instead of waiting for their end")
	c.Flags().StringVar(&f.signal, "signal", "", "with --requeue: what jobs get first, and how long they have, as sbatch's --signal: [B:]SIGNAL[@SECONDS]")
	c.Flags().BoolVar(&f.wait, "wait", true, "wait until no worker is left on the host")
	c.Flags().DurationVar(&f.waitTimeout, "wait-timeout", 0, "give up waiting after this time (0: never)")
	addSiteFlag(c, s, &f.site, "site that the host serves (default: the only one)")
	f.cluster.add(c, s)
	return c
}

func newUndrain(s *settings) *cobra.Command {
	var f clusterFlags
	c := &cobra.Command{
		Use:   "undrain HOST",
		Short: "Give a drained host back to its pools",
		Long: `Undrain lets a host that berth drain took out of service serve again: Slurm's nodes there are resumed, and start as jobs ask for
them. A host that somebody cordoned otherwise is left as it is, and so is a node that a person drained in Slurm.

` + exitCodesHelp,
		Example: `  berth undrain ada`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), f.timeout)
			defer cancel()
			cluster, node, err := f.host(ctx, args[0])
			if err != nil {
				return err
			}
			since, err := maintenance.Uncordon(ctx, cluster, node)
			if err != nil {
				return err
			}
			report := struct {
				Host  string `json:"host"`
				Since string `json:"since,omitempty"` // it was drained; "" where it served already
			}{node.Name, since}
			return s.print(report, func(w io.Writer) error {
				if since == "" {
					_, err := fmt.Fprintf(w, "host %s serves already\n", node.Name)
					return err
				}
				_, err := fmt.Fprintf(w, "host %s serves again; it was out of service since %s\n", node.Name, since)
				return err
			})
		},
	}
	f.add(c, s)
	return c
}

// addSiteFlag adds --site, for commands whose arguments are other names.
func addSiteFlag(c *cobra.Command, s *settings, name *string, usage string) {
	c.Flags().StringVar(name, "site", "", usage)
	_ = c.RegisterFlagCompletionFunc("site", s.completeSites)
}

// host finds a host in the cluster.
func (f *clusterFlags) host(ctx context.Context, name string) (client.Client, *corev1.Node, error) {
	cluster, err := f.client()
	if err != nil {
		return nil, nil, err
	}
	node, err := maintenance.Find(ctx, cluster, name)
	if err != nil {
		return nil, nil, fmt.Errorf("ask the cluster: %w", err)
	}
	return cluster, node, nil
}

func (f *drainFlags) run(ctx context.Context, s *settings, name string) error {
	signal := maintenance.Signal{}
	if f.signal != "" {
		if !f.requeue {
			return fmt.Errorf("--signal is for jobs that are requeued: use it with --requeue")
		}
		var err error
		if signal, err = maintenance.ParseSignal(f.signal); err != nil {
			return err
		}
	}
	var names []string
	if f.site != "" {
		names = []string{f.site}
	}
	one, err := s.oneSite(names)
	if err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, f.cluster.timeout)
	cluster, node, err := f.cluster.host(short, name)
	cancel()
	if err != nil {
		return err
	}
	before, err := maintenance.Cordon(ctx, cluster, node, time.Now())
	if err != nil {
		return fmt.Errorf("cordon host %s: %w", node.Name, err)
	}
	d := draining{settings: s, site: one, host: node.Name, cluster: cluster, ask: f.cluster.slurm(one)}
	if before {
		d.say("host %s is cordoned already", node.Name)
	} else {
		d.say("host %s is cordoned: its workers take no new jobs, and leave as theirs end", node.Name)
	}
	now, err := maintenance.Look(ctx, cluster, d.ask, one, node.Name)
	if err != nil {
		return fmt.Errorf("host %s is cordoned, but what runs there is not known: %w", node.Name, err)
	}
	d.list(now)
	if f.requeue {
		if err := d.requeue(ctx, now, signal); err != nil {
			return err
		}
	}
	if f.wait {
		if f.waitTimeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, f.waitTimeout)
			defer cancel()
		}
		if now, err = d.wait(ctx, now, f.interval); err != nil {
			return err
		}
	}
	return d.end(now)
}

// slurm runs Slurm's clients in the controller's pod.
func (f *clusterFlags) slurm(one *site.Site) maintenance.Ask {
	programs := slurm.Programs{Prefix: f.inController(one.Namespaces.Slurm, "slurmctld")}
	return func(ctx context.Context, argv ...string) (string, error) {
		return programs.Run(ctx, f.timeout, argv[0], argv[1:]...)
	}
}

// draining is one host on its way out of service.
type draining struct {
	*settings
	site    *site.Site
	host    string
	cluster client.Client
	ask     maintenance.Ask
}

// say tells a person how far it is; a program reads the report in the end.
func (d *draining) say(format string, args ...any) {
	if d.output == "table" {
		fmt.Fprintf(d.env.Out, format+"\n", args...)
	}
}

func (d *draining) list(h *maintenance.Host) {
	if d.output != "table" || len(h.Jobs) == 0 {
		return
	}
	rows := [][]string{{"JOB", "USER", "NODES", "TIME LEFT", "REQUEUE"}}
	for _, j := range h.Jobs {
		may := "no"
		if j.Requeues {
			may = "yes"
		}
		rows = append(rows, []string{j.ID, j.User, j.Nodes, j.Left, may})
	}
	_ = table(d.env.Out, rows)
}

// requeue puts the jobs that may be requeued into the queue again. One that ends meanwhile by itself is none of them any more.
func (d *draining) requeue(ctx context.Context, h *maintenance.Host, signal maintenance.Signal) error {
	if signal.Name != "" {
		told := false
		for _, j := range h.Jobs {
			if !j.Requeues {
				continue
			}
			if err := signal.Tell(ctx, d.ask, j); err != nil {
				return fmt.Errorf("host %s is cordoned, job %s was not signalled: %w", d.host, j.ID, err)
			}
			told = true
		}
		if told {
			d.say("%s is sent; %s for checkpoints", signal.Name, signal.Grace)
			select {
			case <-ctx.Done():
				return d.interrupted()
			case <-time.After(signal.Grace):
			}
		}
	}
	now, err := maintenance.Look(ctx, d.cluster, d.ask, d.site, d.host)
	if err != nil {
		return fmt.Errorf("host %s is cordoned, nothing was requeued: %w", d.host, err)
	}
	for _, j := range now.Jobs {
		if !j.Requeues {
			continue
		}
		if err := maintenance.Requeue(ctx, d.ask, j); err != nil {
			return fmt.Errorf("host %s is cordoned, job %s was not requeued: %w", d.host, j.ID, err)
		}
		d.say("job %s is requeued", j.ID)
	}
	return nil
}

// wait looks until no worker is left on the host. A cluster that does not answer is said, and asked again.
func (d *draining) wait(ctx context.Context, last *maintenance.Host, interval time.Duration) (*maintenance.Host, error) {
	said := ""
	for len(last.Workers) > 0 {
		line := fmt.Sprintf("waits for %s to leave", strings.Join(last.Workers, ", "))
		if len(last.Jobs) > 0 {
			var ids []string
			for _, j := range last.Jobs {
				ids = append(ids, j.ID)
			}
			line = fmt.Sprintf("waits for jobs %s on %s", strings.Join(ids, ", "), strings.Join(last.Workers, ", "))
		}
		if line != said {
			d.say("%s", line)
			said = line
		}
		select {
		case <-ctx.Done():
			if ctx.Err() == context.DeadlineExceeded {
				return last, nil
			}
			return nil, d.interrupted()
		case <-time.After(interval):
		}
		now, err := maintenance.Look(ctx, d.cluster, d.ask, d.site, d.host)
		if err != nil {
			if ctx.Err() == nil {
				fmt.Fprintln(d.env.Err, "berth: "+err.Error())
			}
			continue
		}
		last = now
	}
	return last, nil
}

func (d *draining) interrupted() error {
	return fmt.Errorf("interrupted: host %s stays cordoned; berth drain %s goes on, berth undrain %s takes it back", d.host, d.host, d.host)
}

func (d *draining) end(h *maintenance.Host) error {
	err := d.print(h, func(w io.Writer) error {
		if len(h.Workers) > 0 {
			_, err := fmt.Fprintf(w, "host %s still has %s\n", h.Name, strings.Join(h.Workers, ", "))
			return err
		}
		fmt.Fprintf(w, "no worker is left on host %s\n", h.Name)
		if len(h.Others) > 0 {
			fmt.Fprintf(w, "still there: %s; kubectl drain %s --ignore-daemonsets --delete-emptydir-data moves them\n", strings.Join(h.Others, ", "), h.Name)
		}
		return nil
	})
	if err == nil && len(h.Workers) > 0 {
		return problems{}
	}
	return err
}
