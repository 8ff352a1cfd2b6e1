package command

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/renderer/load"
	"github.com/berth-hpc/berth/renderer/repository"
)

// initReport is what init says.
type initReport struct {
	Repository string         `json:"repository"`
	Written    []string       `json:"written"`
	Rendered   []renderReport `json:"rendered"`
}

func newInit(s *settings) *cobra.Command {
	var options repository.Options
	c := &cobra.Command{
		Use:   "init DIR",
		Short: "Make a lab's own repository, or renew Berth's part of one",
		Long: `Init makes a repository with a first site in clusters/, the schema and the chart of this berth (so that everything works offline),
a CI file, and the rendered overlays. In a repository that has sites it renews the schema and the chart, and renders; your files
stay as they are.

` + exitCodesHelp,
		Example: `  berth init mylab
  berth init mylab --site mylab --url ssh://git@git.example.org/mylab.git

  # After an update of berth, in the repository
  berth init .`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			root := s.absolute(args[0])
			if options.Site == "" {
				options.Site = filepath.Base(root)
			}
			if options.URL == "" {
				options.URL = "https://git.example.org/" + options.Site + ".git"
			}
			options.Version = version()
			written, err := repository.Init(root, options)
			if err != nil {
				return err
			}
			sites, err := load.Load(filepath.Join(root, "clusters"))
			if err != nil {
				return err
			}
			report := initReport{Repository: args[0], Written: written}
			for _, one := range sites {
				rendered, err := renderSite(c.Context(), root, one, false)
				if err != nil {
					return err
				}
				report.Rendered = append(report.Rendered, rendered)
			}
			return s.print(report, func(w io.Writer) error {
				for _, name := range written {
					fmt.Fprintln(w, filepath.Join(args[0], name))
				}
				if err := s.renderTable(w, report.Rendered, false); err != nil {
					return err
				}
				_, err := fmt.Fprintf(w, "Next: edit the site in %s, then berth vet and berth render; README.md says how it goes on.\n", filepath.Join(args[0], "clusters"))
				return err
			})
		},
	}
	c.Flags().StringVar(&options.Site, "site", "", "name of the first site (default: the folder's name)")
	c.Flags().StringVar(&options.URL, "url", "", "URL of the repository as Flux will reach it")
	c.Flags().StringSliceVar(&options.Recipients, "recipient", nil, "age public key to seal secrets for (can be given again)")
	return c
}
