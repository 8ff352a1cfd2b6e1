package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/components/chart"
	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/diff"
	"github.com/berth-hpc/berth/renderer/emit"
	"github.com/berth-hpc/berth/renderer/repository"
	"github.com/berth-hpc/berth/renderer/revision"
	"github.com/berth-hpc/berth/renderer/site"
)

// renderReport is what render says of one site.
type renderReport struct {
	Site    string             `json:"site"`
	Layers  []string           `json:"layers"`
	Changes []emit.Change      `json:"changes,omitempty"`
	Drift   []emit.Drift       `json:"drift,omitempty"`
	Omitted []compile.Omission `json:"omitted,omitempty"`
	Pending []compile.Omission `json:"pending,omitempty"`
	Notes   []string           `json:"notes,omitempty"`
}

func newRender(s *settings) *cobra.Command {
	var check bool
	c := &cobra.Command{
		Use:   "render [SITE...]",
		Short: "Write the sites' overlays and Flux entry points",
		Long: `Render writes overlays/<site>/<layer>/ and clusters/<site>/ for the named sites, or for all. It changes all files of a site
or none, removes what it wrote before and no longer makes, and touches nothing else. It names the layers that are left out, and
the fields that render nothing yet.

Your own patches live in overlays/<site>/patches/<layer>/. A file there is a part of an object (apiVersion, kind, metadata.name
and what differs), or target: and patch: as in a kustomization.

A change that would lose jobs or data, or that Kubernetes refuses on living objects (a removed or renamed pool, a smaller claim,
other address ranges, an immutable field), is refused with its plan until the site names it in acknowledge; berth diff shows it.

With --check nothing is written: the exit code is 1 if a file is not what render would write, and the differences are shown. It
needs no key and no network.

` + exitCodesHelp,
		Example: `  # All sites of the repository
  berth render

  # One site, as JSON
  berth render lab --output json

  # The drift check, for CI
  berth render --check`,
		ValidArgsFunction: s.completeSites,
		RunE: func(c *cobra.Command, names []string) error {
			root, sites, err := s.sites(names)
			if err != nil {
				return err
			}
			var reports []renderReport
			for _, one := range sites {
				report, err := renderSite(c.Context(), root, one, check)
				if err != nil {
					return err
				}
				reports = append(reports, report)
			}
			if err := s.print(reports, func(w io.Writer) error { return s.renderTable(w, reports, check) }); err != nil {
				return err
			}
			return driftError(reports)
		},
	}
	c.Flags().BoolVar(&check, "check", false, "write nothing; exit 1 if a file differs from what render would write")
	return c
}

// renderSite renders one site into the repository, or compares.
func renderSite(ctx context.Context, root string, one *site.Site, check bool) (renderReport, error) {
	if err := repository.CheckChart(root, one.Delivery.Mode); err != nil {
		return renderReport{}, err
	}
	rendered, err := emit.Render(root, one, parts())
	if err != nil {
		return renderReport{}, err
	}
	result := rendered.Compiled
	report := renderReport{Site: one.Name, Omitted: result.Omitted, Pending: result.Pending, Notes: rendered.Notes}
	for _, layer := range result.Layers {
		report.Layers = append(report.Layers, layer.Name)
	}
	if check {
		report.Drift, err = emit.Check(root, one.Name, rendered.Tree)
		return report, err
	}
	differs, err := emit.Differs(root, one.Name, rendered.Tree)
	if err != nil {
		return report, err
	}
	if differs {
		notes, err := refuseMigrations(ctx, root, rendered)
		if err != nil {
			return report, err
		}
		report.Notes = append(report.Notes, notes...)
	}
	report.Changes, err = emit.Write(root, one.Name, rendered.Tree)
	return report, err
}

// refuseMigrations refuses a tree whose way from the one that lies there needs an agreement that the site does not give. The
// notes name agreements that agree to nothing any more.
func refuseMigrations(ctx context.Context, root string, rendered *emit.Rendered) (notes []string, err error) {
	one := rendered.Compiled.Site
	before := diff.State{Name: "the tree as it is"}
	if before.Layers, before.Entry, err = emit.Committed(root, one.Name, chart.Files, chart.Dir); err != nil {
		// What lies there does not build, perhaps because a patch of it is being mended: there is nothing to compare with.
		return []string{"what was rendered before does not build, so nothing says whether this change needs a migration: berth diff compares with a revision"}, nil
	}
	// The ranges of the network and the like stand in the site alone; the last commit has the one before.
	if folder, err := revision.Open(ctx, root, "HEAD"); err == nil {
		defer folder.Close()
		if state, err := folder.State(one.Name); err == nil {
			before.Site = state.Site
		}
	}
	report, err := diff.Compare(one.Name, before, renderedState(rendered))
	if err != nil {
		return nil, err
	}
	for _, name := range report.Stale(one.Acknowledge) {
		notes = append(notes, fmt.Sprintf("acknowledge %q agrees to nothing that changes now; remove it once its change is pushed", name))
	}
	refused := report.Unacknowledged()
	if len(refused) == 0 {
		return notes, nil
	}
	lines := []string{fmt.Sprintf("%s: %d %s the site's agreement; nothing was written", one.Name, len(refused), plural(len(refused), "change needs", "changes need"))}
	for _, m := range refused {
		lines = append(lines, m.String())
	}
	return nil, errors.New(strings.Join(lines, "\n"))
}

func driftError(reports []renderReport) error {
	files, names := 0, []string{}
	for _, report := range reports {
		if len(report.Drift) > 0 {
			files += len(report.Drift)
			names = append(names, report.Site)
		}
	}
	if files == 0 {
		return nil
	}
	return problems{fmt.Sprintf("%d files differ from what berth render would write (%s)", files, strings.Join(names, ", "))}
}

func (s *settings) renderTable(w io.Writer, reports []renderReport, check bool) error {
	for _, report := range reports {
		switch {
		case check && len(report.Drift) == 0:
			fmt.Fprintf(w, "%s: no drift (%s)\n", report.Site, strings.Join(report.Layers, ", "))
		case check:
			for _, drift := range report.Drift {
				fmt.Fprintf(w, "%s %s: %s\n%s", s.colour(red, "drift"), drift.Path, drift.Why, drift.Unified)
			}
		default:
			fmt.Fprintf(w, "%s: %s (%s)\n", report.Site, countChanges(report.Changes), strings.Join(report.Layers, ", "))
		}
		for _, omission := range report.Omitted {
			fmt.Fprintf(w, "  no layer %s: %s\n", omission.What, omission.Why)
		}
		for _, omission := range report.Pending {
			fmt.Fprintf(w, "  %s %s: %s\n", s.colour(yellow, "renders nothing yet:"), omission.What, omission.Why)
		}
		for _, note := range report.Notes {
			fmt.Fprintf(w, "  %s\n", note)
		}
	}
	return nil
}

func countChanges(changes []emit.Change) string {
	count := map[string]int{}
	for _, change := range changes {
		count[change.Action]++
	}
	var parts []string
	for _, action := range []struct{ name, past string }{{"create", "created"}, {"update", "updated"}, {"remove", "removed"}} {
		if n := count[action.name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, action.past))
		}
	}
	if len(parts) == 0 {
		return "no change"
	}
	return strings.Join(parts, ", ")
}
