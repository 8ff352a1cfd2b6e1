package command

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/load"
	"github.com/berth-hpc/berth/renderer/site"
)

// vetReport is what vet says.
type vetReport struct {
	Sites    []string       `json:"sites"`
	Problems []load.Problem `json:"problems"`
}

func newVet(s *settings) *cobra.Command {
	var verbose bool
	c := &cobra.Command{
		Use:   "vet [SITE...]",
		Short: "Check the sites, and say everything that is wrong with them",
		Long: `Vet checks the named sites, or all, and prints every problem at once: the line of your file, the field, what is wrong and how to
mend it. It also compares the sites with each other: two of them must not claim the same cluster and namespace, or the same machine.

` + exitCodesHelp,
		Example: `  berth vet
  berth vet lab
  berth vet --output json`,
		ValidArgsFunction: s.completeSites,
		RunE: func(_ *cobra.Command, names []string) error {
			report, err := s.vet(names)
			if err != nil {
				return err
			}
			if err := s.print(report, func(w io.Writer) error { return s.vetTable(w, report, verbose) }); err != nil {
				return err
			}
			if n := len(report.Problems); n > 0 {
				return problems{fmt.Sprintf("%d %s", n, plural(n, "problem", "problems"))}
			}
			return nil
		},
	}
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "also say where in the schema each rule stands")
	return c
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func (s *settings) vet(names []string) (vetReport, error) {
	report := vetReport{Sites: []string{}, Problems: []load.Problem{}}
	root, err := s.root()
	if err != nil {
		return report, err
	}
	folder := filepath.Join(root, "clusters")
	sites, err := load.Load(folder, names...)
	var found load.Problems
	switch {
	case errors.As(err, &found):
		report.Problems = found
		return report, nil
	case err != nil:
		return report, err
	}
	for _, one := range sites {
		report.Sites = append(report.Sites, one.Name)
		// What the schema lets through and the renderer cannot use is a problem of the site too.
		if _, err := compile.Compile(one, parts()); err != nil {
			path, message, _ := strings.Cut(err.Error(), ": ")
			report.Problems = append(report.Problems, load.Problem{Path: path, File: s.shown(folder), Message: message})
		}
	}
	report.Problems = append(report.Problems, s.conflicts(folder, sites, names)...)
	return report, nil
}

// conflicts compares all sites of the repository and gives what concerns the checked ones.
func (s *settings) conflicts(folder string, checked []*site.Site, names []string) []load.Problem {
	all := checked
	if len(names) > 0 {
		loaded, err := load.Load(folder)
		if err != nil {
			return nil // A site that was not asked for is in error; its own vet says so.
		}
		all = loaded
	}
	concerns := map[string]bool{}
	for _, one := range checked {
		concerns[one.Name] = true
	}
	var found []load.Problem
	for _, c := range compile.Conflicts(all) {
		if concerns[c.Site] || concerns[c.Other] {
			found = append(found, load.Problem{Path: c.Other + "." + c.Field, File: s.shown(folder), Message: c.Message})
		}
	}
	return found
}

func (s *settings) vetTable(w io.Writer, report vetReport, verbose bool) error {
	if len(report.Problems) == 0 {
		_, err := fmt.Fprintf(w, "%s %s\n", s.colour(green, "ok"), strings.Join(report.Sites, ", "))
		return err
	}
	for _, p := range report.Problems {
		place := p.Place()
		fmt.Fprintln(w, s.colour(red, place)+strings.TrimPrefix(p.String(), place))
		if verbose && p.Schema != "" {
			fmt.Fprintf(w, "    rule: %s\n", p.Schema)
		}
	}
	return nil
}
