// Package helmchart renders a Helm chart with the Helm SDK, offline: no cluster is asked, nothing is installed, and the same
// chart and values give the same objects on every machine.
package helmchart

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"

	"github.com/berth-hpc/berth/renderer/compile/manifest"
)

// KubeVersion is the Kubernetes release that charts are rendered for. It is fixed: a render must not depend on a cluster.
const KubeVersion = "v1.34.0"

// Release names what Helm would install.
type Release struct{ Name, Namespace string }

// Load reads a chart from the directory dir of a file system.
func Load(files fs.FS, dir string) (*chart.Chart, error) {
	var buffered []*loader.BufferedFile
	err := fs.WalkDir(files, dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		buffered = append(buffered, &loader.BufferedFile{Name: strings.TrimPrefix(name, path.Clean(dir)+"/"), Data: data})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read chart %s: %w", dir, err)
	}
	loaded, err := loader.LoadFiles(buffered)
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", dir, err)
	}
	return loaded, nil
}

// Render gives the objects of the chart with the values (YAML), hooks of an install or upgrade and custom resource definitions
// included; what is there during an uninstall or a test alone is not. Objects that name no namespace and live in one get the
// release's. A template that fails is an error in Helm's words.
func Render(c *chart.Chart, release Release, valuesYAML []byte) ([]manifest.Object, error) {
	values, err := chartutil.ReadValues(valuesYAML)
	if err != nil {
		return nil, fmt.Errorf("values of %s: %w", release.Name, err)
	}
	version, err := chartutil.ParseKubeVersion(KubeVersion)
	if err != nil {
		return nil, err
	}
	// A fresh configuration without a cluster; the SDK fills in the default capabilities for KubeVersion.
	install := action.NewInstall(&action.Configuration{})
	install.ClientOnly, install.DryRun, install.IncludeCRDs, install.Replace = true, true, true, true
	install.KubeVersion = version
	install.ReleaseName, install.Namespace = release.Name, release.Namespace
	rendered, err := install.Run(c, values)
	if err != nil {
		return nil, fmt.Errorf("render chart %s: %w", c.Name(), err)
	}
	stream := rendered.Manifest
	for _, hook := range rendered.Hooks {
		stream += "\n---\n" + hook.Manifest
	}
	objects, err := manifest.Parse([]byte(stream))
	if err != nil {
		return nil, fmt.Errorf("output of chart %s: %w", c.Name(), err)
	}
	return placed(objects, release), nil
}

// placed gives objects that live in a namespace and name none the release's, and leaves out those of other hooks than an
// install's or upgrade's.
func placed(objects []manifest.Object, release Release) []manifest.Object {
	objects = slices.DeleteFunc(slices.Clone(objects), func(o manifest.Object) bool {
		events := o.Annotations()["helm.sh/hook"]
		return events != "" && !strings.Contains(events, "install") && !strings.Contains(events, "upgrade")
	})
	for i, o := range objects {
		if o.Namespace() == "" && !clusterWide[o.Kind()] {
			objects[i] = o.WithNamespace(release.Namespace)
		}
	}
	return objects
}

// clusterWide are the kinds without a namespace that charts make. Helm learns this from a cluster; here it is written down.
var clusterWide = map[string]bool{
	"Namespace": true, "CustomResourceDefinition": true, "ClusterRole": true, "ClusterRoleBinding": true, "PriorityClass": true,
	"RuntimeClass": true, "StorageClass": true, "PersistentVolume": true, "IngressClass": true, "APIService": true,
	"ValidatingWebhookConfiguration": true, "MutatingWebhookConfiguration": true, "CSIDriver": true, "Node": true,
	"ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true,
}
