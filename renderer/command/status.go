package command

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

func (f *clusterFlags) reader() (client.Reader, error) {
	config, err := f.loader().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster to ask: %w; name one with --kubeconfig or $KUBECONFIG", err)
	}
	config.Timeout = f.timeout
	scheme, err := status.Scheme()
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

func newStatus(s *settings) *cobra.Command {
	var cluster clusterFlags
	c := &cobra.Command{
		Use:   "status [SITE]",
		Short: "Say how far a site is in the cluster, and what is stuck",
		Long: `Status asks the cluster: which revision each layer has, why one is not Ready, what the guard said of Slurm's configuration, how
many workers each pool has up, and what is stuck, with the command that mends it. It changes nothing.

The exit code is 1 while anything is not Ready.

` + exitCodesHelp,
		Example: `  berth status lab
  berth status lab --output json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: s.completeSites,
		RunE: func(c *cobra.Command, names []string) error {
			one, err := s.oneSite(names)
			if err != nil {
				return err
			}
			reader, err := cluster.reader()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), cluster.timeout)
			defer cancel()
			report, err := status.Read(ctx, reader, one)
			if err != nil {
				return fmt.Errorf("ask the cluster: %w", err)
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
	cluster.add(c, s)
	return c
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
	rows := [][]string{{"LAYER", "STATE", "REVISION", "REASON"}, {"source", s.stateColour(r.Source.State), shortRevision(r.Source.Revision), r.Source.Reason}}
	for _, layer := range r.Layers {
		rows = append(rows, []string{layer.Name, s.stateColour(layer.State), shortRevision(layer.Revision), layer.Reason})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	if r.Slurm != nil {
		fmt.Fprintf(w, "\nSlurm's configuration: %s %s\n", r.Slurm.State, r.Slurm.Message)
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
	for _, stuck := range r.Stuck {
		fmt.Fprintf(w, "\n%s %s: %s\n  mend: %s\n", s.colour(red, "stuck"), stuck.What, stuck.Why, stuck.Mend)
	}
	return nil
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
