package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-hpc/berth/components/guard/slurm"
	"github.com/berth-hpc/berth/renderer/site"
	"github.com/berth-hpc/berth/renderer/status"
)

// clusterFlags say which cluster a command asks.
type clusterFlags struct {
	kubeconfig, context string
	timeout             time.Duration
}

func (f *clusterFlags) add(c *cobra.Command, s *settings) {
	c.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, then ~/.kube/config)")
	c.Flags().StringVar(&f.context, "context", s.env.Variable("BERTH_CONTEXT"), "context of the kubeconfig ($BERTH_CONTEXT)")
	c.Flags().DurationVar(&f.timeout, "timeout", 20*time.Second, "how long to wait for the cluster's answers")
	_ = c.RegisterFlagCompletionFunc("context", f.completeContexts)
}

func (f *clusterFlags) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context})
}

func (f *clusterFlags) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	raw, err := f.loader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for name := range raw.Contexts {
		names = append(names, name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (f *clusterFlags) reader() (client.Reader, error) { return f.client() }

// config is how to reach the cluster.
func (f *clusterFlags) config() (*rest.Config, error) {
	config, err := f.loader().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster to ask: %w; name one with --kubeconfig or $KUBECONFIG", err)
	}
	return config, nil
}

// named returns an error where the flags and the environment name no cluster.
func (f *clusterFlags) named() error {
	_, err := f.config()
	return err
}

func (f *clusterFlags) client() (client.Client, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	config.Timeout = f.timeout
	scheme, err := status.Scheme()
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// statusFlags say what is asked, and how often.
type statusFlags struct {
	cluster            clusterFlags
	watch, tree, slurm bool
	interval           time.Duration
}

func newStatus(s *settings) *cobra.Command {
	var f statusFlags
	c := &cobra.Command{
		Use:   "status [SITE]",
		Short: "Say how far a site is in the cluster, and what is stuck",
		Long: `Status asks the cluster: which revision is desired and which each layer has, whether one that is not Ready is at its first attempt or
tries the same again and again, what the guard said of Slurm's configuration, how many workers each pool has up, which mode the advisor
is in, which nodes take no jobs and why, why jobs wait and what would help, and what is stuck, with the command that mends it. It changes nothing.

Jobs and the advisor are asked about in the controller's pod, through kubectl.

With --tree it also lists what each layer made in the cluster. With --watch it looks again and again and prints what changed, until it
is interrupted; as JSON it then prints one report a line.

The exit code is 1 while anything is not Ready.

` + exitCodesHelp,
		Example: `  berth status lab
  berth status lab --watch
  berth status lab --tree --output json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: s.completeSites,
		RunE: func(c *cobra.Command, names []string) error {
			one, err := s.oneSite(names)
			if err != nil {
				return err
			}
			reader, err := f.cluster.reader()
			if err != nil {
				return err
			}
			look := func() (*status.Report, error) { return f.look(c.Context(), reader, one) }
			if f.watch {
				return s.watchStatus(c.Context(), f.interval, look)
			}
			report, err := look()
			if err != nil {
				return err
			}
			if err := s.print(report, func(w io.Writer) error { return s.statusTable(w, report) }); err != nil {
				return err
			}
			if !report.Ready {
				return problems{}
			}
			return nil
		},
	}
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "look again and again, and print what changed")
	c.Flags().DurationVar(&f.interval, "interval", 5*time.Second, "how often --watch looks")
	c.Flags().BoolVar(&f.tree, "tree", false, "list what each layer made in the cluster")
	c.Flags().BoolVar(&f.slurm, "slurm", true, "ask Slurm too, in the controller's pod through kubectl")
	f.cluster.add(c, s)
	return c
}

// look asks the cluster once.
func (f *statusFlags) look(ctx context.Context, reader client.Reader, one *site.Site) (*status.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cluster.timeout)
	defer cancel()
	report, err := status.Read(ctx, reader, one)
	if err == nil && f.tree {
		err = report.ReadTree(ctx, reader, one)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the cluster: %w", err)
	}
	if f.slurm {
		report.AskSlurm(ctx, one, func(ctx context.Context, container string, argv ...string) (string, error) {
			programs := slurm.Programs{Prefix: f.cluster.inController(one.Namespaces.Slurm, container)}
			return programs.Run(ctx, f.cluster.timeout, argv[0], argv[1:]...)
		})
	}
	return report, nil
}

// inController is the command that runs another one in a container of the controller's pod.
func (f *clusterFlags) inController(namespace, container string) []string {
	return append(f.kubectl(namespace), "exec", "slurm-controller-0", "--container", container, "--")
}

// kubectl is the beginning of its command line.
func (f *clusterFlags) kubectl(namespace string) []string {
	prefix := []string{"kubectl", "--namespace", namespace}
	if f.kubeconfig != "" {
		prefix = append(prefix, "--kubeconfig", f.kubeconfig)
	}
	if f.context != "" {
		prefix = append(prefix, "--context", f.context)
	}
	return prefix
}

// watchStatus looks at once and then at each interval, and prints each report that differs from the one before, until ctx ends. A
// cluster that does not answer is said, and asked again.
func (s *settings) watchStatus(ctx context.Context, interval time.Duration, look func() (*status.Report, error)) error {
	if interval <= 0 {
		return fmt.Errorf("--interval %s: use a time above 0, such as 5s", interval)
	}
	s.compact = true
	tick := time.NewTicker(interval)
	defer tick.Stop()
	last := ""
	for {
		report, err := look()
		now := fmt.Sprint(err)
		if err == nil {
			text, err := json.Marshal(report)
			if err != nil {
				return err
			}
			now = string(text)
		}
		if now != last && ctx.Err() == nil {
			last = now
			if s.output == "table" {
				fmt.Fprintf(s.env.Out, "%s\n", time.Now().Format(time.TimeOnly))
			}
			if err != nil {
				fmt.Fprintln(s.env.Err, "berth: "+err.Error())
			} else if err := s.print(report, func(w io.Writer) error { return s.statusTable(w, report) }); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// oneSite loads the named site, or the only one.
func (s *settings) oneSite(names []string) (*site.Site, error) {
	_, sites, err := s.sites(names)
	if err != nil {
		return nil, err
	}
	if len(sites) > 1 {
		var known []string
		for _, one := range sites {
			known = append(known, one.Name)
		}
		return nil, fmt.Errorf("which site? name one of: %s", strings.Join(known, ", "))
	}
	return sites[0], nil
}

func (s *settings) statusTable(w io.Writer, r *status.Report) error {
	if r.Desired != "" {
		fmt.Fprintf(w, "desired %s\n\n", shortRevision(r.Desired))
	}
	rows := [][]string{{"LAYER", "STATE", "REVISION", "REASON"}, {"source", s.stateColour(r.Source.State), shortRevision(r.Source.Revision), r.Source.Reason}}
	for _, layer := range r.Layers {
		reason := layer.Reason
		if layer.Phase != "" {
			reason = layer.Phase + ": " + reason
		}
		if layer.Attempts > 1 {
			reason = fmt.Sprintf("%s %d times since %s: %s", layer.Phase, layer.Attempts, layer.Since.UTC().Format("15:04 MST"), layer.Reason)
		}
		rows = append(rows, []string{layer.Name, s.stateColour(layer.State), shortRevision(layer.Revision), reason})
		for _, owned := range layer.Objects {
			rows = append(rows, []string{"  " + owned.Object})
			for _, made := range owned.Made {
				rows = append(rows, []string{"    " + made})
			}
		}
	}
	if err := table(w, rows); err != nil {
		return err
	}
	if r.Slurm != nil {
		fmt.Fprintf(w, "\nSlurm's configuration: %s %s\n", r.Slurm.State, r.Slurm.Message)
	}
	if r.Advisor != nil {
		fmt.Fprintf(w, "advisor: %s", r.Advisor.Effective)
		if r.Advisor.Effective != r.Advisor.Wanted {
			fmt.Fprintf(w, " (the site says %s)", r.Advisor.Wanted)
		}
		if r.Advisor.Why != "" {
			fmt.Fprintf(w, ": %s", r.Advisor.Why)
		}
		fmt.Fprintln(w)
	}
	if len(r.Pools) > 0 {
		rows = [][]string{{"POOL", "UP", "STARTING", "BUSY", "MIN", "MAX", "STATE", "REASON"}}
		for _, p := range r.Pools {
			rows = append(rows, []string{p.Name, fmt.Sprint(p.Up), fmt.Sprint(p.Starting), fmt.Sprint(p.Busy), fmt.Sprint(p.Min), fmt.Sprint(p.Max), s.stateColour(p.State), p.Reason})
		}
		fmt.Fprintln(w)
		if err := table(w, rows); err != nil {
			return err
		}
	}
	s.statusNodes(w, r)
	s.statusJobs(w, r)
	for _, stuck := range r.Stuck {
		fmt.Fprintf(w, "\n%s %s: %s\n  mend: %s\n", s.colour(red, "stuck"), stuck.What, stuck.Why, stuck.Mend)
	}
	return nil
}

// statusNodes says which nodes take no jobs.
func (s *settings) statusNodes(w io.Writer, r *status.Report) {
	for i, away := range r.Away {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s %s since %s, by %s: %s\n  to bring back: %s\n", away.Nodes, s.colour(yellow, away.State), away.Since, away.By, away.Reason, away.Help)
	}
}

// statusJobs says why jobs wait.
func (s *settings) statusJobs(w io.Writer, r *status.Report) {
	if r.Unasked != "" {
		fmt.Fprintf(w, "\nSlurm was not asked about nodes and jobs: %s\n", r.Unasked)
	}
	for i, wait := range r.Waiting {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%d %s in %s (%s): %s: %s\n", wait.Jobs, plural(wait.Jobs, "job waits", "jobs wait"), wait.Partition, strings.Join(wait.First, ", "), wait.Reason, wait.Means)
		if wait.Help != "" {
			fmt.Fprintf(w, "  would help: %s\n", wait.Help)
		}
	}
}

func (s *settings) stateColour(state string) string {
	switch state {
	case status.Ready:
		return s.colour(green, state)
	case status.Failed, status.Missing:
		return s.colour(red, state)
	}
	return s.colour(yellow, state)
}

// shortRevision shortens main@sha1:<40 digits> to what a person compares.
func shortRevision(revision string) string {
	branch, hash, found := strings.Cut(revision, "@sha1:")
	if !found || len(hash) < 8 {
		return revision
	}
	return branch + "@" + hash[:8]
}
