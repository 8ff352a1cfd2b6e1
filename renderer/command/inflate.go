package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/renderer/emit"
	"github.com/berth-hpc/berth/renderer/inflate"
)

func newInflate(s *settings) *cobra.Command {
	var layer string
	c := &cobra.Command{
		Use:   "inflate SITE",
		Short: "Show every object that Flux will apply for a site",
		Long: `Inflate runs kustomize over the layers of a site as render would write them, and the Helm SDK over our chart, and prints the
objects: what the cluster will hold, patches applied. Secrets stay sealed. Charts from elsewhere are fetched by Flux alone;
their releases are shown, their objects are not.

` + exitCodesHelp,
		Example: `  berth inflate lab
  berth inflate lab --layer slurm
  berth inflate lab --output json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.completeSites,
		RunE: func(_ *cobra.Command, names []string) error {
			root, sites, err := s.sites(names)
			if err != nil {
				return err
			}
			rendered, err := emit.Render(root, sites[0], parts())
			if err != nil {
				return err
			}
			inflated := rendered.Inflated
			if layer != "" {
				inflated = slices.DeleteFunc(slices.Clone(inflated), func(l inflate.Layer) bool { return l.Name != layer })
				if len(inflated) == 0 {
					return fmt.Errorf("--layer %q: the site %s has no such layer; use one of: %s", layer, names[0], strings.Join(rendered.LayerNames(), ", "))
				}
			}
			if s.output == "json" {
				return s.print(inflatedObjects(inflated), nil)
			}
			text, err := inflate.YAML(inflated)
			if err != nil {
				return err
			}
			_, err = s.env.Out.Write(text)
			return err
		},
	}
	c.Flags().StringVar(&layer, "layer", "", "show one layer only")
	return c
}

// inflatedObjects is the JSON shape: a list of layers with their objects.
func inflatedObjects(layers []inflate.Layer) []any {
	var out []any
	for _, layer := range layers {
		objects := []any{}
		for _, o := range layer.Objects {
			objects = append(objects, o.Content())
		}
		out = append(out, map[string]any{"layer": layer.Name, "objects": objects, "opaqueReleases": layer.Opaque})
	}
	return out
}
