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
)

// vetReport is what vet says.
type vetReport struct {
	Sites    []string       `json:"sites"`
	Problems []load.Problem `json:"problems"`
	// Warnings are about what is read and is hardly meant; they do not fail a check.
	Warnings []load.Problem `json:"warnings,omitempty"`
}

func newVet(s *settings) *cobra.Command {
	var verbose, watch bool
	c := &cobra.Command{
		Use:   "vet [SITE...]",
		Short: "Check the sites, and say everything that is wrong with them",
		Long: `Vet checks the named sites, or all, and prints every problem at once: the line of your file, the field, what is wrong and how to
mend it. It also compares the sites with each other: two of them must not claim the same cluster and namespace, or the same machine.

With --watch it checks again each time that a file in clusters/ changes, until it is interrupted; as JSON it then prints one
report a line.

` + exitCodesHelp,
		Example: `  berth vet
  berth vet lab
  berth vet --output json`,
		ValidArgsFunction: s.completeSites,
		RunE: func(c *cobra.Command, names []string) error {
			if watch {
				return s.watchSites(c.Context(), func() error {
					err := s.vetOnce(names, verbose)
					var found problems
					if errors.As(err, &found) {
						fmt.Fprintln(s.env.Err, found.summary)
						return nil
					}
					return err
				})
			}
			return s.vetOnce(names, verbose)
		},
	}
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "also say where in the schema each rule stands")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "check again whenever a file in clusters/ changes")
	return c
}

func (s *settings) vetOnce(names []string, verbose bool) error {
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
	if err := s.checkSchema(root); err != nil {
		return report, err
	}
	report.Warnings = load.Outside(folder)
	opened, err := load.Open(folder, names...)
	var found load.Problems
	switch {
	case errors.As(err, &found):
		report.Problems = found
		return report, nil
	case err != nil:
		return report, err
	}
	for _, one := range opened.Sites {
		report.Sites = append(report.Sites, one.Name)
		// What the schema lets through and the renderer cannot use is a problem of the site too.
		if _, err := compile.Compile(one, parts()); err != nil {
			path, message, _ := strings.Cut(err.Error(), ": ")
			report.Problems = append(report.Problems, opened.Problem(load.Steps(path), message))
		}
	}
	report.Problems = append(report.Problems, s.conflicts(folder, opened, names)...)
	return report, nil
}

// conflicts compares all sites of the repository and gives what concerns the checked ones.
func (s *settings) conflicts(folder string, checked *load.Package, names []string) []load.Problem {
	all := checked
	if len(names) > 0 {
		opened, err := load.Open(folder)
		if err != nil {
			return nil // A site that was not asked for is in error; its own vet says so.
		}
		all = opened
	}
	concerns := map[string]bool{}
	for _, one := range checked.Sites {
		concerns[one.Name] = true
	}
	var found []load.Problem
	for _, c := range compile.Conflicts(all.Sites) {
		if concerns[c.Site] || concerns[c.Other] {
			found = append(found, all.Problem(append([]string{c.Other}, c.Field...), c.Message))
		}
	}
	return found
}

func (s *settings) vetTable(w io.Writer, report vetReport, verbose bool) error {
	for _, p := range report.Warnings {
		place := p.Place()
		fmt.Fprintln(w, place+"warning: "+strings.TrimPrefix(p.String(), place))
	}
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
