package command

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/renderer/shape"
)

func newSchema(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of a site, for editors and other programs",
		Long: `Schema prints the JSON Schema (2020-12) of one site: every field with its type, its bounds, its default and what it means. What must
hold between fields is not in it: berth vet says that. It is made from the CUE schema that this berth carries.

` + exitCodesHelp,
		Example: `  berth schema > site.schema.json`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			site, err := shape.Site()
			if err != nil {
				return err
			}
			text, err := site.JSONSchema("A Berth site, " + Version)
			if err != nil {
				return err
			}
			_, err = s.env.Out.Write(text)
			return err
		},
	}
}

func newDocs(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "docs",
		Short: "Print the reference of every field of a site",
		Long: `Docs prints, in Markdown, every field of a site with its type, its default and what it means, made from the CUE schema that this
berth carries.

` + exitCodesHelp,
		Example: `  berth docs > reference.md`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			site, err := shape.Site()
			if err != nil {
				return err
			}
			_, err = io.WriteString(s.env.Out, site.Reference())
			return err
		},
	}
}
