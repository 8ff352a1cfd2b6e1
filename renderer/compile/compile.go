// Package compile turns a site into Kubernetes objects, layer by layer. It is pure: it reads no file, asks no cluster, and the
// same site gives the same objects. Each layer is made by a package of its own below this one.
package compile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-hpc/berth/renderer/compile/flux"
	"github.com/berth-hpc/berth/renderer/compile/foundation"
	"github.com/berth-hpc/berth/renderer/compile/gpu"
	"github.com/berth-hpc/berth/renderer/compile/helmchart"
	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/compile/monitoring"
	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/compile/platform"
	"github.com/berth-hpc/berth/renderer/compile/storage"
	"github.com/berth-hpc/berth/renderer/site"
)

// Parts are what the Berth binary brings besides the site: our chart and our custom resource definitions.
type Parts struct {
	Chart    fs.FS             // the slurm-platform chart is in ChartDir
	ChartDir string            //
	CRDs     map[string][]byte // file name to YAML
}

// Layer is one Flux Kustomization's objects.
type Layer struct {
	Name    string
	Objects []manifest.Object
}

// Result is a compiled site.
type Result struct {
	Site    *site.Site
	Layers  []Layer                    // in the order in which each depends on the one before; none is empty
	Entry   map[string]manifest.Object // Flux's entry points, file name to object
	Omitted []Omission                 // layers without any object
	Pending []Omission                 // fields that are set and render nothing yet
}

// Omission is something of the site that the rendered tree does not hold, and why.
type Omission struct {
	What string `json:"what"` // a layer's name or a field's path
	Why  string `json:"why"`
}

// layerMakers are the layers in dependency order.
func layerMakers(parts Parts) []layerMaker {
	return []layerMaker{
		{"foundation", func(s *site.Site) ([]manifest.Object, error) { return foundation.Objects(s, parts.CRDs) }},
		{"storage", storage.Objects},
		{"gpu", gpu.Objects},
		{"slurm", func(s *site.Site) ([]manifest.Object, error) { return slurmLayer(s, parts) }},
		// The advisor runs in the controller pod, as a part of the slurm layer's chart.
		{"advisor", func(*site.Site) ([]manifest.Object, error) { return nil, nil }},
		{"monitoring", monitoring.Objects},
	}
}

type layerMaker struct {
	name    string
	objects func(*site.Site) ([]manifest.Object, error)
}

// LayerNames are all layers that a site can have, in dependency order.
func LayerNames() []string {
	var names []string
	for _, maker := range layerMakers(Parts{}) {
		names = append(names, maker.name)
	}
	return names
}

// Compile makes all objects of the site. An error starts with the site's name and field.
func Compile(s *site.Site, parts Parts) (*Result, error) {
	result := &Result{Site: s, Pending: pending(s)}
	var present []string
	for _, maker := range layerMakers(parts) {
		objects, err := maker.objects(s)
		if err != nil {
			return nil, fmt.Errorf("%s.%w", s.Name, err)
		}
		if len(objects) == 0 {
			result.Omitted = append(result.Omitted, Omission{What: maker.name, Why: whyOmitted(s, maker.name)})
			continue
		}
		manifest.Sort(objects)
		result.Layers = append(result.Layers, Layer{Name: maker.name, Objects: objects})
		present = append(present, maker.name)
	}
	entry, err := flux.Entry(s, present)
	if err != nil {
		return nil, fmt.Errorf("%s.%w", s.Name, err)
	}
	result.Entry = entry
	return result, nil
}

func whyOmitted(s *site.Site, layer string) string {
	switch layer {
	case "gpu":
		if !gpu.Wanted(s) {
			return "no pool has cards"
		}
		return "the GPU operator is an upstream chart, and delivery mode manifests uses none; the hosts need a device plugin for nvidia.com/gpu"
	case "advisor":
		if s.Advisor.Mode == "off" {
			return "advisor.mode is off"
		}
		return "the advisor runs in the controller pod, in layer slurm"
	case "monitoring":
		if !s.Monitoring.Enabled {
			return "monitoring.enabled is false"
		}
		return "Prometheus is an upstream chart, and delivery mode manifests uses none"
	}
	return "the site asks for nothing in it"
}

// valuesKey is the key of the values in their ConfigMap.
const valuesKey = "values.yaml"

// ChartValues are the values of our chart for the site, as YAML.
func ChartValues(s *site.Site) ([]byte, error) {
	v, err := platform.Values(s)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(v)
}

func slurmLayer(s *site.Site, parts Parts) ([]manifest.Object, error) {
	text, err := ChartValues(s)
	if err != nil {
		return nil, err
	}
	switch s.Delivery.Mode {
	case "helm":
		return releaseObjects(s, text)
	case "manifests":
		c, err := helmchart.Load(parts.Chart, parts.ChartDir)
		if err != nil {
			return nil, err
		}
		return helmchart.Render(c, helmchart.Release{Name: naming.ReleaseName, Namespace: s.Namespaces.Slurm}, text)
	}
	return nil, fmt.Errorf("delivery.mode: %q is not a way of delivery; use helm or manifests", s.Delivery.Mode)
}

// releaseObjects are the HelmRelease and its values. The ConfigMap's name carries the hash of the values, so that a push that
// changes only values changes the release too; the one before is pruned.
func releaseObjects(s *site.Site, text []byte) ([]manifest.Object, error) {
	sum := sha256.Sum256(text)
	immutable := true
	config := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "slurm-values-" + hex.EncodeToString(sum[:])[:10], Namespace: s.Namespaces.Flux, Labels: naming.Labels("slurm-values"),
		},
		Immutable: &immutable,
		Data:      map[string]string{valuesKey: string(text)},
	}
	release, err := flux.ChartRelease(s, config.Name, valuesKey)
	if err != nil {
		return nil, err
	}
	return manifest.All(config, release)
}
