package command

import (
	"fmt"
	"io"
	"os"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/renderer/migrate"
)

// migrated is what migrate says of one file.
type migrated struct {
	File    string           `json:"file"`
	Changes []migrate.Change `json:"changes"`
	Diff    string           `json:"diff,omitempty"`
}

func newMigrate(s *settings) *cobra.Command {
	var dryRun bool
	var from int
	c := &cobra.Command{
		Use:   "migrate [SITE|FILE...]",
		Short: "Rewrite sites of an earlier schema version for this berth's",
		Long: `Migrate rewrites the files of the named sites, the named files, or all in clusters/, for the version of the schema that this berth has. A site says the version
that it is written for in schemaVersion; one that does not is taken for the current version, or for that of --from. Comments and
order stay; each change is named with its line. If a file cannot be rewritten, none is.

` + exitCodesHelp,
		Example: `  berth migrate --dry-run
  berth migrate lab --from 0`,
		ValidArgsFunction: s.completeSites,
		RunE: func(_ *cobra.Command, files []string) error {
			files, err := s.cueFiles(files)
			if err != nil {
				return err
			}
			reports, err := s.migrate(files, from, dryRun)
			if err != nil {
				return err
			}
			return s.print(reports, func(w io.Writer) error {
				for _, r := range reports {
					for _, c := range r.Changes {
						fmt.Fprintf(w, "%s:%d:%d: %s: %s\n", r.File, c.Line, c.Column, c.Site, c.What)
					}
					fmt.Fprint(w, r.Diff)
				}
				if len(reports) == 0 {
					fmt.Fprintf(w, "nothing to do: every site is of version %d\n", migrate.Current)
				}
				return nil
			})
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "write nothing; show what would change")
	c.Flags().IntVar(&from, "from", migrate.Current, "version of sites that name none")
	return c
}

// migrate rewrites all files in memory, and then writes those that change.
func (s *settings) migrate(files []string, from int, dryRun bool) ([]migrated, error) {
	reports, after := []migrated{}, [][]byte{}
	for _, file := range files {
		before, err := os.ReadFile(s.absolute(file))
		if err != nil {
			return nil, err
		}
		text, changes, err := migrate.File(file, before, from)
		if err != nil {
			return nil, atPlace(file, err)
		}
		if text == nil {
			continue
		}
		r := migrated{File: file, Changes: changes}
		if dryRun {
			if r.Diff, err = difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
				A: difflib.SplitLines(string(before)), B: difflib.SplitLines(string(text)), FromFile: "a/" + file, ToFile: "b/" + file, Context: 2,
			}); err != nil {
				return nil, err
			}
		}
		reports, after = append(reports, r), append(after, text)
	}
	for i, r := range reports {
		if dryRun {
			break
		}
		if err := replaceFile(s.absolute(r.File), after[i]); err != nil {
			return nil, err
		}
	}
	return reports, nil
}
