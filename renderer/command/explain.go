package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/renderer/explain"
	"github.com/berth-hpc/berth/renderer/load"
)

// explainReport is what explain says.
type explainReport struct {
	*load.Explanation
	// From are the fields that the value is taken from, where the site says only these.
	From   []fieldAt       `json:"from,omitempty"`
	Places []explain.Place `json:"places"`
}

// fieldAt is a field of the site, and where its author wrote it.
type fieldAt struct {
	Field string      `json:"field"`
	At    *load.Place `json:"at,omitempty"`
}

func newExplain(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "explain SITE [FIELD]",
		Short: "Say a field's value, where it comes from, what it means and what it turns into",
		Long: `Explain says of a field of a site: its value after defaults, the line of your file that it comes from, or the schema's that gives the
default, the schema's own words for it, and every line of every object that it turns into. It finds these by giving the field
another value and rendering again in memory; nothing is written. A field of several parts stands for all of them.

` + exitCodesHelp,
		Example: `  berth explain lab pools.gpu-rtx4070.sharing
  berth explain lab slurm.killWait --output json`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: s.completeFields,
		RunE: func(_ *cobra.Command, args []string) error {
			path := args[:1]
			if len(args) > 1 {
				path = append(args[:1:1], load.Steps(strings.TrimPrefix(args[1], args[0]+"."))...)
			}
			report, err := s.explain(path)
			if err != nil {
				return err
			}
			return s.print(report, func(w io.Writer) error { return s.explainTable(w, report) })
		},
	}
}

func (s *settings) explain(path []string) (*explainReport, error) {
	root, opened, err := s.open(path[:1])
	if err != nil {
		return nil, err
	}
	known, err := opened.Explain(path)
	if err != nil {
		return nil, err
	}
	report := &explainReport{Explanation: known, Places: []explain.Place{}}
	if len(path) == 1 || string(known.Value) == "null" {
		return report, nil
	}
	explainer, err := explain.New(opened, path[0], root, parts())
	if err != nil {
		return nil, err
	}
	if leaves := explainer.Leaves(path[1:]); len(leaves) == 1 {
		sources, err := explainer.Sources(leaves[0])
		if err != nil {
			return nil, err
		}
		report.From = fieldsAt(opened, path[0], sources)
		report.Default = report.Default && len(sources) == 0
	}
	places, err := explainer.Places(path[1:])
	report.Places = append(report.Places, places...)
	return report, err
}

func fieldsAt(opened *load.Package, site string, paths [][]string) []fieldAt {
	var out []fieldAt
	for _, path := range paths {
		full := append([]string{site}, path...)
		f := fieldAt{Field: load.PathText(full)}
		if at, whole := opened.Of(full); whole {
			f.At = &at
		}
		out = append(out, f)
	}
	return out
}

func (f fieldAt) String() string {
	if f.At == nil {
		return f.Field
	}
	return fmt.Sprintf("%s (%s)", f.Field, f.At)
}

func (s *settings) explainTable(w io.Writer, r *explainReport) error {
	fmt.Fprintf(w, "%s = %s\n", r.Path, r.Value)
	switch {
	case string(r.Value) == "null":
		fmt.Fprintln(w, "  not set")
	case r.At != nil:
		fmt.Fprintf(w, "  written at %s\n", r.At)
	case len(r.From) > 0:
		for _, from := range r.From {
			fmt.Fprintf(w, "  follows from %s\n", from)
		}
	case r.Default:
		fmt.Fprintf(w, "  the schema's default (%s)\n", r.Schema)
	default:
		fmt.Fprintf(w, "  given by the schema (%s)\n", r.Schema)
	}
	if r.Doc != "" {
		fmt.Fprintf(w, "  %s\n", r.Doc)
	}
	if len(r.Places) == 0 {
		if string(r.Value) != "null" && strings.Contains(r.Path, ".") {
			fmt.Fprintln(w, "turns into nothing that is rendered")
		}
		return nil
	}
	fmt.Fprintln(w, "turns into")
	for _, p := range r.Places {
		fmt.Fprintf(w, "  %s\n", p)
	}
	return nil
}

// completeFields completes a site, then the fields below what is typed.
func (s *settings) completeFields(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return s.completeSites(c, args, typed)
	}
	_, opened, err := s.open(args[:1])
	if err != nil || len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	parent := ""
	if i := strings.LastIndex(typed, "."); i >= 0 {
		parent = typed[:i]
	}
	var out []string
	for _, name := range opened.Below(append(args[:1:1], load.Steps(parent)...)) {
		out = append(out, strings.TrimPrefix(parent+"."+name, "."))
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
