package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/emit"
	"github.com/berth-hpc/berth/renderer/repository"
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
		RunE: func(_ *cobra.Command, names []string) error {
			root, sites, err := s.sites(names)
			if err != nil {
				return err
			}
			var reports []renderReport
			for _, one := range sites {
				report, err := renderSite(root, one, check)
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
func renderSite(root string, one *site.Site, check bool) (renderReport, error) {
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
	} else {
		report.Changes, err = emit.Write(root, one.Name, rendered.Tree)
	}
	return report, err
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
