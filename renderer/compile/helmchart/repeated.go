package helmchart

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"

	"github.com/berth-hpc/berth/renderer/compile/manifest"
)

// Repeated renders one chart again and again, with values that differ a little. It gives the objects that Render gives, in the
// order of the templates, but runs the SDK's engine alone: it does not judge the values by the chart's schema, and parses what
// a template gives only where that is new.
type Repeated struct {
	chart  *chart.Chart
	caps   *chartutil.Capabilities
	parsed map[string][]manifest.Object // by the template's text
}

// NewRepeated takes a chart without subcharts.
func NewRepeated(c *chart.Chart) (*Repeated, error) {
	if len(c.Dependencies()) > 0 {
		return nil, fmt.Errorf("chart %s has subcharts, whose values only a whole render knows", c.Name())
	}
	version, err := chartutil.ParseKubeVersion(KubeVersion)
	if err != nil {
		return nil, err
	}
	caps := chartutil.DefaultCapabilities.Copy()
	caps.KubeVersion = *version
	return &Repeated{chart: c, caps: caps, parsed: map[string][]manifest.Object{}}, nil
}

// Render gives the objects of the chart with the values (YAML).
func (r *Repeated) Render(release Release, valuesYAML []byte) ([]manifest.Object, error) {
	values, err := chartutil.ReadValues(valuesYAML)
	if err != nil {
		return nil, fmt.Errorf("values of %s: %w", release.Name, err)
	}
	options := chartutil.ReleaseOptions{Name: release.Name, Namespace: release.Namespace, Revision: 1, IsInstall: true}
	top, err := chartutil.ToRenderValuesWithSchemaValidation(r.chart, values, options, r.caps, true)
	if err != nil {
		return nil, fmt.Errorf("render chart %s: %w", r.chart.Name(), err)
	}
	texts, err := engine.Engine{}.Render(r.chart, top)
	if err != nil {
		return nil, fmt.Errorf("render chart %s: %w", r.chart.Name(), err)
	}
	for _, crd := range r.chart.CRDObjects() {
		texts[crd.Filename] = string(crd.File.Data)
	}
	var objects []manifest.Object
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if base := path.Base(name); strings.HasPrefix(base, "_") || base == "NOTES.txt" {
			continue
		}
		made, known := r.parsed[texts[name]]
		if !known {
			if made, err = parse(texts[name]); err != nil {
				return nil, fmt.Errorf("output of chart %s: %s: %w", r.chart.Name(), name, err)
			}
			r.parsed[texts[name]] = made
		}
		objects = append(objects, made...)
	}
	return placed(objects, release), nil
}

// parse reads a template's output as Helm does: it cuts the documents apart itself, and their ends bare of white space, which a text
// at the end of a document may notice.
func parse(text string) ([]manifest.Object, error) {
	documents := releaseutil.SplitManifests(text)
	var objects []manifest.Object
	for _, key := range slices.SortedFunc(maps.Keys(documents), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) // manifest-9, manifest-10
	}) {
		made, err := manifest.Parse([]byte(documents[key] + "\n"))
		if err != nil {
			return nil, err
		}
		objects = append(objects, made...)
	}
	return objects, nil
}
