// Package check looks at everything that a site brings into a cluster, before it is pushed: whether each object is what the API
// takes, and whether it keeps to what a shared cluster demands of its guests. It asks no cluster.
package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/inflate"
)

// Finding is one thing that is wrong with one object.
type Finding struct {
	Layer  string `json:"layer"`
	Object string `json:"object"` // "Deployment slurm/slurm-rest"
	Field  string `json:"field,omitempty"`
	// Rule names what is broken: api, pod-security, image, requests, secret, owner, substitution or order.
	Rule    string `json:"rule"`
	Message string `json:"message"`
	Mend    string `json:"mend"`
}

// String is the finding on one line.
func (f Finding) String() string {
	where := f.Object
	if f.Layer != "" {
		where = f.Layer + ": " + where
	}
	if f.Field != "" {
		where += ": " + f.Field
	}
	return fmt.Sprintf("%s: %s; %s", where, f.Message, f.Mend)
}

// Report is what was looked at, and what was found.
type Report struct {
	Objects  int       `json:"objects"`
	Findings []Finding `json:"findings"`
	// Opaque are releases of charts that Flux fetches: their objects were not looked at.
	Opaque []string `json:"opaque,omitempty"`
}

// Site checks the layers of a site and Flux's entry points, patches is where a user mends an object of a layer.
func Site(layers []inflate.Layer, entry []manifest.Object, patches func(layer string) string) (*Report, error) {
	c := &checker{report: &Report{Findings: []Finding{}}, patches: patches, substituted: substituted(entry), owner: map[string]string{}, defined: map[string]bool{}}
	var err error
	if c.schemas, err = compiledSchemas(); err != nil {
		return nil, err
	}
	for _, layer := range layers {
		for _, o := range layer.Objects {
			c.define(layer.Name, o)
		}
		c.report.Opaque = append(c.report.Opaque, layer.Opaque...)
	}
	c.levels = podSecurity(layers)
	for _, o := range entry {
		if err := c.api("", o); err != nil {
			return nil, err
		}
	}
	for _, layer := range layers {
		for _, o := range layer.Objects {
			if err := c.object(layer.Name, o); err != nil {
				return nil, err
			}
		}
	}
	slices.SortStableFunc(c.report.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Layer, b.Layer), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field))
	})
	return c.report, nil
}

type checker struct {
	report      *Report
	schemas     *schemas
	patches     func(layer string) string
	substituted map[string]bool   // layers in which Flux substitutes variables
	owner       map[string]string // object to the layer that has it
	defined     map[string]bool   // "group/version Kind" that the site defines
	definedIn   map[string]string // the same, to the layer
	levels      map[string]level  // by namespace
}

func (c *checker) find(layer string, o manifest.Object, field, rule, message, mend string) {
	c.report.Findings = append(c.report.Findings, Finding{Layer: layer, Object: o.ID(), Field: field, Rule: rule, Message: message, Mend: mend})
}

// patch is the advice for an object that a patch of the user's, or Berth itself, made wrong.
func (c *checker) patch(layer string) string {
	return "if a patch in " + c.patches(layer) + "/ says so, mend it; else it is Berth's mistake"
}

// define notes the kinds that a layer defines.
func (c *checker) define(layer string, o manifest.Object) {
	if o.Kind() != "CustomResourceDefinition" {
		return
	}
	if c.definedIn == nil {
		c.definedIn = map[string]string{}
	}
	spec, _ := o.Content()["spec"].(map[string]any)
	names, _ := spec["names"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for _, version := range versions {
		v, _ := version.(map[string]any)
		id := fmt.Sprintf("%v/%v %v", spec["group"], v["name"], names["kind"])
		c.defined[id], c.definedIn[id] = true, layer
	}
}

func (c *checker) api(layer string, o manifest.Object) error {
	c.report.Objects++
	violations, err := c.schemas.validate(o, c.defined)
	if err != nil {
		return fmt.Errorf("%s: %w", o.ID(), err)
	}
	for _, v := range violations {
		c.find(layer, o, v.field, "api", v.message, c.patch(layer))
	}
	return nil
}

// object checks one object of a layer by every rule.
func (c *checker) object(layer string, o manifest.Object) error {
	if other, taken := c.owner[o.ID()]; taken {
		c.find(layer, o, "", "owner", fmt.Sprintf("layers %s and %s both make it: Flux would change it back and forth, and prune it from one", other, layer), "leave it to one of them")
	}
	c.owner[o.ID()] = layer
	if in, ok := c.definedIn[o.APIVersion()+" "+o.Kind()]; ok && in == layer {
		c.find(layer, o, "", "order", "its definition is in the same layer: the first apply knows no such kind", "move the definition to layer foundation")
	}
	if c.substituted[layer] {
		c.substitution(layer, o)
	}
	c.secrets(layer, o)
	if err := c.pods(layer, o); err != nil {
		return err
	}
	return c.api(layer, o)
}
