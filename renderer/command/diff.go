package command

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/components/guard/slurm"
	"github.com/berth-hpc/berth/components/guard/slurmconf"
	"github.com/berth-hpc/berth/renderer/diff"
	"github.com/berth-hpc/berth/renderer/emit"
	"github.com/berth-hpc/berth/renderer/live"
	"github.com/berth-hpc/berth/renderer/load"
	"github.com/berth-hpc/berth/renderer/revision"
)

const workingTree = "the working tree"

// diffFlags say which two states are compared.
type diffFlags struct {
	from, to            string
	live, jobs, summary bool
	cluster             clusterFlags
}

func newDiff(s *settings) *cobra.Command {
	var f diffFlags
	c := &cobra.Command{
		Use:   "diff [SITE...]",
		Short: "Say what a change of the site does, before it is pushed",
		Long: `Diff compares two states of the named sites, or of all that differ: two Git revisions, a revision and the working tree (as render
would write it), or with --live what the cluster has and the working tree. It says

  what changes in the site's own terms,
  what the push does: jobs that hold it up or would be hurt, workers that drain, pods that restart, objects that cannot change
  and must be made anew, everything that leaves the cluster, and whether slurmctld only reconfigures,
  which of it render refuses until the site acknowledges it, with the plan,
  and the objects that change, with secrets masked.

Which changes of slurm.conf hurt jobs is the guard's own table. With --jobs the jobs concerned are named: squeue is asked in the
controller's pod, through kubectl.

Exit codes: 0 nothing differs, 1 something differs, 2 wrong usage or an error.`,
		Example: `  # The working tree against the last commit
  berth diff
  berth diff lab --summary

  # What a branch does
  berth diff lab --from main --to HEAD --output json

  # What a push would change in the cluster, and which jobs it concerns
  berth diff lab --live --jobs`,
		ValidArgsFunction: s.completeSites,
		RunE: func(c *cobra.Command, names []string) error {
			reports, err := s.diff(c.Context(), f, names)
			if err != nil {
				return err
			}
			if err := s.print(reports, func(w io.Writer) error { return s.diffTable(w, reports, f.summary) }); err != nil {
				return err
			}
			if slices.ContainsFunc(reports, func(r *diff.Report) bool { return r.Differs() }) {
				return problems{}
			}
			return nil
		},
	}
	c.Flags().StringVar(&f.from, "from", "HEAD", "revision to compare from")
	c.Flags().StringVar(&f.to, "to", "", "revision to compare to (default: the working tree)")
	c.Flags().BoolVar(&f.live, "live", false, "compare from what the cluster has")
	c.Flags().BoolVar(&f.jobs, "jobs", false, "ask the cluster which jobs are concerned")
	c.Flags().BoolVar(&f.summary, "summary", false, "leave the objects out")
	f.cluster.add(c, s)
	c.MarkFlagsMutuallyExclusive("live", "to")
	return c
}

// source gives states of sites.
type source interface {
	Sites() ([]string, error)
	State(site string) (diff.State, error)
}

func (s *settings) diff(ctx context.Context, f diffFlags, names []string) ([]*diff.Report, error) {
	root, err := s.root()
	if err != nil {
		return nil, err
	}
	var to source = &tree{s: s, root: root}
	if f.to != "" {
		folder, err := revision.Open(ctx, root, f.to)
		if err != nil {
			return nil, err
		}
		defer folder.Close()
		to = folder
	}
	var from source
	if !f.live {
		folder, err := revision.Open(ctx, root, f.from)
		if err != nil {
			return nil, err
		}
		defer folder.Close()
		from = folder
	}
	sites, err := sitesOfBoth(from, to, names)
	if err != nil {
		return nil, err
	}
	reports := []*diff.Report{}
	for _, name := range sites {
		after, err := to.State(name)
		if err != nil {
			return nil, err
		}
		var before diff.State
		if f.live {
			before, err = f.liveState(ctx, root, name, after)
		} else {
			before, err = from.State(name)
		}
		if err != nil {
			return nil, err
		}
		report, err := diff.Compare(name, before, after)
		if err != nil {
			return nil, err
		}
		if f.jobs {
			jobs, err := f.askJobs(ctx, before, after)
			if err != nil {
				return nil, err
			}
			report.Concern(jobs)
		}
		if report.Differs() || len(names) > 0 {
			reports = append(reports, report)
		}
	}
	return reports, nil
}

// sitesOfBoth are the named sites, or all that one of the two states has.
func sitesOfBoth(from, to source, names []string) ([]string, error) {
	var known []string
	for _, side := range []source{from, to} {
		if side == nil {
			continue
		}
		sites, err := side.Sites()
		if err != nil {
			return nil, err
		}
		known = append(known, sites...)
	}
	slices.Sort(known)
	known = slices.Compact(known)
	if len(names) == 0 {
		return known, nil
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("neither state has a site %q (known: %s)", name, strings.Join(known, ", "))
		}
	}
	return names, nil
}

// tree is the working tree, as render would write it.
type tree struct {
	s      *settings
	root   string
	opened *load.Package
}

// Sites are those that clusters/ has, and those whose trees are still there.
func (t *tree) Sites() ([]string, error) {
	if t.opened == nil {
		_, opened, err := t.s.open(nil)
		if err != nil {
			return nil, err
		}
		t.opened = opened
	}
	var names []string
	for _, one := range t.opened.Sites {
		names = append(names, one.Name)
	}
	return names, nil
}

func (t *tree) State(name string) (diff.State, error) {
	state := diff.State{Name: workingTree}
	if _, err := t.Sites(); err != nil {
		return state, err
	}
	for _, one := range t.opened.Sites {
		if one.Name != name {
			continue
		}
		rendered, err := emit.Render(t.root, one, parts())
		if err != nil {
			return state, err
		}
		return renderedState(rendered), nil
	}
	return state, nil
}

func renderedState(rendered *emit.Rendered) diff.State {
	return diff.State{Name: workingTree, Site: rendered.Compiled.Site, Layers: rendered.Inflated, Entry: entryObjects(rendered)}
}

// liveState is what the cluster has. The site's value is that of the revision that the cluster follows, where this repository has it.
func (f *diffFlags) liveState(ctx context.Context, root, name string, want diff.State) (diff.State, error) {
	reader, err := f.cluster.reader()
	if err != nil {
		return diff.State{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.cluster.timeout)
	defer cancel()
	state, err := live.State(ctx, reader, want)
	if err != nil {
		return state, fmt.Errorf("ask the cluster: %w", err)
	}
	applied, err := live.Applied(ctx, reader, want)
	if err != nil {
		return state, fmt.Errorf("ask the cluster: %w", err)
	}
	folder, err := revision.Open(ctx, root, applied)
	if err != nil {
		return state, nil // another repository's, or not fetched
	}
	defer folder.Close()
	followed, err := folder.State(name)
	if err == nil {
		state.Site, state.Name = followed.Site, "the cluster, which follows "+applied
	}
	return state, nil
}

// askJobs lists the jobs of the live cluster: squeue runs in the controller's pod.
func (f *diffFlags) askJobs(ctx context.Context, states ...diff.State) ([]slurmconf.Job, error) {
	namespace := ""
	for _, state := range states {
		if state.Site != nil && namespace == "" {
			namespace = state.Site.Namespaces.Slurm
		}
	}
	programs := slurm.Programs{Prefix: f.cluster.inController(namespace, "slurmctld")}
	jobs, err := programs.Jobs(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the cluster for its jobs: %w; leave --jobs out to go without them", err)
	}
	return jobs, nil
}

// named is how many jobs a person reads.
const named = 5

func (s *settings) diffTable(w io.Writer, reports []*diff.Report, summary bool) error {
	for i, r := range reports {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if !r.Differs() {
			fmt.Fprintf(w, "%s: nothing differs between %s and %s\n", r.Site, r.From, r.To)
			continue
		}
		fmt.Fprintf(w, "%s: %s → %s\n", r.Site, r.From, r.To)
		for _, e := range r.Edits {
			fmt.Fprintf(w, "  %s\n", e.Text)
		}
		fmt.Fprintln(w, "What the push does")
		for _, e := range r.Effects {
			fmt.Fprintf(w, "  %s %s: %s\n", s.effectColour(e.Kind), e.What, e.Why)
			for n, job := range e.Jobs {
				if n == named {
					fmt.Fprintf(w, "      and %d more jobs\n", len(e.Jobs)-named)
					break
				}
				state := "pending"
				if job.Running {
					state = "running"
				}
				fmt.Fprintf(w, "      job %s (%s, %s, %s)\n", job.ID, job.User, job.Name, state)
			}
		}
		for _, m := range r.Migrations {
			if m.Acknowledged {
				fmt.Fprintf(w, "%s %s: %s\n", s.colour(green, "acknowledged"), m.Name, m.What)
				continue
			}
			fmt.Fprintf(w, "%s %s\n", s.colour(red, "render refuses:"), m)
		}
		if summary {
			continue
		}
		for _, c := range r.Objects {
			fmt.Fprintf(w, "%s %s (%s)\n%s", c.Action, c.Object, c.Layer, c.Diff)
		}
	}
	return nil
}

func (s *settings) effectColour(kind string) string {
	switch kind {
	case diff.Refused, diff.Jobs, diff.Replace, diff.Delete:
		return s.colour(red, kind)
	case diff.Drain, diff.Restart, diff.Move:
		return s.colour(yellow, kind)
	}
	return s.colour(green, kind)
}
