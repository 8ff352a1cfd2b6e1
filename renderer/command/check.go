package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/renderer/check"
	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/emit"
)

// checkReport is what check says of one site.
type checkReport struct {
	Site string `json:"site"`
	*check.Report
}

func newCheck(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "check [SITE...]",
		Short: "Check every object that a site brings into the cluster",
		Long: `Check renders the named sites, or all, in memory, patches and charts included, and looks at every object: whether Kubernetes 1.34
and Flux take it, field by field; whether the chart's values are as its schema has them; whether every reference leads somewhere;
and whether it keeps to policy:

  pod-security   pods are what their namespace enforces
  image          no image without a tag or a digest, and no tag latest
  requests       every container says what CPU and memory it needs
  secret         no secret stands in clear
  owner          no object belongs to two layers
  order          no resource lies in the layer that defines its kind
  substitution   no text has a variable that Flux would replace

Objects of charts that only Flux can fetch are named, and not looked at. No cluster is asked and nothing is written.

` + exitCodesHelp,
		Example: `  berth check
  berth check lab --output json`,
		ValidArgsFunction: s.completeSites,
		RunE: func(_ *cobra.Command, names []string) error {
			root, sites, err := s.sites(names)
			if err != nil {
				return err
			}
			var reports []checkReport
			found := 0
			for _, one := range sites {
				rendered, err := emit.Render(root, one, parts())
				if err != nil {
					return err
				}
				report, err := check.Site(rendered.Inflated, entryObjects(rendered), func(layer string) string { return naming.Patches(one.Name, layer) })
				if err != nil {
					return err
				}
				reports = append(reports, checkReport{one.Name, report})
				found += len(report.Findings)
			}
			if err := s.print(reports, func(w io.Writer) error { return s.checkTable(w, reports) }); err != nil {
				return err
			}
			if found > 0 {
				return problems{fmt.Sprintf("%d %s", found, plural(found, "finding", "findings"))}
			}
			return nil
		},
	}
}

// entryObjects are Flux's own entry points.
func entryObjects(rendered *emit.Rendered) []manifest.Object {
	var objects []manifest.Object
	for _, o := range rendered.Compiled.Entry {
		objects = append(objects, o)
	}
	manifest.Sort(objects)
	return objects
}

func (s *settings) checkTable(w io.Writer, reports []checkReport) error {
	for _, report := range reports {
		if len(report.Findings) == 0 {
			fmt.Fprintf(w, "%s %s: %d objects\n", s.colour(green, "ok"), report.Site, report.Objects)
		}
		for _, finding := range report.Findings {
			fmt.Fprintf(w, "%s %s: %s\n", s.colour(red, finding.Rule), report.Site, finding)
		}
		if len(report.Opaque) > 0 {
			fmt.Fprintf(w, "  not looked at, because Flux fetches their charts: %s\n", strings.Join(report.Opaque, ", "))
		}
	}
	return nil
}
