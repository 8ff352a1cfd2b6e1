package chart

import (
	"io/fs"
	"path"
	"sort"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// loadChart reads the embedded chart as Helm would read it from a directory.
func loadChart(t testing.TB) *chart.Chart {
	t.Helper()
	var files []*loader.BufferedFile
	err := fs.WalkDir(Files, Dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(Files, name)
		files = append(files, &loader.BufferedFile{Name: strings.TrimPrefix(name, Dir+"/"), Data: data})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := loader.LoadFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// capabilities are those of the Kubernetes release that the lab runs.
func capabilities() *chartutil.Capabilities {
	of := *chartutil.DefaultCapabilities
	of.KubeVersion = chartutil.KubeVersion{Version: "v1.34.0", Major: "1", Minor: "34"}
	return &of
}

// render returns the chart's text with values laid over its defaults, in the order of the templates' names.
func render(t testing.TB, values map[string]any) (string, error) {
	t.Helper()
	loaded := loadChart(t)
	options := chartutil.ReleaseOptions{Name: "slurm", Namespace: "slurm", Revision: 1, IsInstall: true}
	// ToRenderValues checks values.schema.json too.
	rendered, err := chartutil.ToRenderValues(loaded, values, options, capabilities())
	if err != nil {
		return "", err
	}
	texts, err := engine.Render(loaded, rendered)
	if err != nil {
		return "", err
	}
	var names []string
	for name := range texts {
		if path.Ext(name) == ".yaml" {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	var all strings.Builder
	for _, name := range names {
		all.WriteString("---\n# Source: " + name + "\n")
		all.WriteString(strings.TrimSpace(texts[name]) + "\n")
	}
	return all.String(), nil
}

// objects renders and parses; keys are kind/namespace/name.
func objects(t testing.TB, values map[string]any) map[string]*unstructured.Unstructured {
	t.Helper()
	text, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*unstructured.Unstructured{}
	for _, document := range strings.Split(text, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		if object.Object == nil {
			continue
		}
		key := object.GetKind() + "/" + object.GetNamespace() + "/" + object.GetName()
		if found[key] != nil {
			t.Fatalf("%s is rendered twice", key)
		}
		found[key] = object
	}
	return found
}
