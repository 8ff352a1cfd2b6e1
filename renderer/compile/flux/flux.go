// Package flux makes the typed objects that Flux works from: the Git source, one Kustomization a layer, Helm repositories and
// releases. Nothing here switches on Flux's substitution of variables, so a dollar sign in a site's text stays a dollar sign.
package flux

import (
	"encoding/json"
	"fmt"
	"path"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/site"
)

// retryInterval is how soon a failed layer is tried again: a push that mends it need not wait for the whole interval.
const retryInterval = time.Minute

// KustomizationName is the name of a layer's Kustomization.
func KustomizationName(layer string) string { return "berth-" + layer }

// Entry are the objects of clusters/<site>/: the source, the site's own Kustomization, and one Kustomization a layer, each
// waiting for the one before. files maps a file's name to its object.
func Entry(s *site.Site, layers []string) (files map[string]manifest.Object, err error) {
	t, err := times(s)
	if err != nil {
		return nil, err
	}
	files = map[string]manifest.Object{}
	add := func(name string, value any) {
		if err != nil {
			return
		}
		var o manifest.Object
		if o, err = manifest.New(value); err == nil {
			files[name] = o
		}
	}
	add("source.yaml", source(s, t))
	add("site.yaml", kustomization(s, naming.SourceName, naming.Cluster(s.Name), t))
	previous := ""
	for _, layer := range layers {
		k := kustomization(s, KustomizationName(layer), path.Join(naming.Overlay(s.Name), layer), t)
		if previous != "" {
			k.Spec.DependsOn = []kustomizev1.DependencyReference{{Name: KustomizationName(previous)}}
		}
		switch layer {
		case "foundation":
			// Namespaces hold the claims with everybody's data, and the policy that keeps the platform until its pools are gone: what
			// goes with the layers must not take them along. A push still removes what leaves the layer.
			k.Spec.DeletionPolicy = kustomizev1.DeletionPolicyOrphan
			k.Spec.Decryption = &kustomizev1.Decryption{Provider: "sops", SecretRef: &meta.LocalObjectReference{Name: s.Secrets.Names.AgeKey}}
		case "storage":
			k.Spec.HealthCheckExprs = claimHealth()
		}
		add(layer+".yaml", k)
		previous = layer
	}
	return files, err
}

// intervals are the site's times for Flux, read.
type intervals struct {
	source, apply, timeout metav1.Duration
}

func times(s *site.Site) (t intervals, err error) {
	for _, field := range []struct {
		name, text string
		into       *metav1.Duration
	}{
		{"sourceInterval", s.Delivery.SourceInterval, &t.source},
		{"interval", s.Delivery.Interval, &t.apply},
		{"timeout", s.Delivery.Timeout, &t.timeout},
	} {
		d, err := time.ParseDuration(field.text)
		if err != nil || d <= 0 {
			return t, fmt.Errorf("delivery.%s: %q is not a duration; write for example 10m", field.name, field.text)
		}
		field.into.Duration = d
	}
	return t, nil
}

func source(s *site.Site, t intervals) *sourcev1.GitRepository {
	repository := &sourcev1.GitRepository{
		TypeMeta:   metav1.TypeMeta{APIVersion: sourcev1.GroupVersion.String(), Kind: sourcev1.GitRepositoryKind},
		ObjectMeta: metav1.ObjectMeta{Name: naming.SourceName, Namespace: s.Namespaces.Flux, Labels: naming.Labels("source")},
		Spec: sourcev1.GitRepositorySpec{
			URL:       s.Delivery.URL,
			Interval:  t.source,
			Timeout:   &metav1.Duration{Duration: min(t.timeout.Duration, time.Minute)},
			Reference: &sourcev1.GitRepositoryRef{Branch: s.Delivery.Branch},
		},
	}
	if s.Delivery.SecretRef != "" {
		repository.Spec.SecretRef = &meta.LocalObjectReference{Name: s.Delivery.SecretRef}
	}
	return repository
}

func kustomization(s *site.Site, name, folder string, t intervals) *kustomizev1.Kustomization {
	return &kustomizev1.Kustomization{
		TypeMeta:   metav1.TypeMeta{APIVersion: kustomizev1.GroupVersion.String(), Kind: kustomizev1.KustomizationKind},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespaces.Flux, Labels: naming.Labels("layer")},
		Spec: kustomizev1.KustomizationSpec{
			Interval:      t.apply,
			RetryInterval: &metav1.Duration{Duration: retryInterval},
			Timeout:       &t.timeout,
			Path:          RepositoryPath(s, folder),
			Prune:         true,
			// The site's own Kustomization must not wait for the layers: it would hold their mends back while one is failing.
			Wait:      name != naming.SourceName,
			SourceRef: kustomizev1.CrossNamespaceSourceReference{Kind: sourcev1.GitRepositoryKind, Name: naming.SourceName},
		},
	}
}

// RepositoryPath is a folder of the site's repository as seen from the root of the Git tree, the way Flux writes it.
func RepositoryPath(s *site.Site, folder string) string {
	return "./" + path.Join(s.Delivery.Path, folder)
}

// claimHealth lets a claim that waits for its first pod count as healthy. Most node-local StorageClasses bind that late, and
// the pod comes with a later layer, which would wait for this one for ever.
func claimHealth() []kustomize.CustomHealthCheck {
	return []kustomize.CustomHealthCheck{{
		APIVersion: "v1", Kind: "PersistentVolumeClaim",
		HealthCheckExpressions: kustomize.HealthCheckExpressions{
			Current: "status.phase == 'Bound' || status.phase == 'Pending'",
			Failed:  "status.phase == 'Lost'",
		},
	}}
}

// Upstream is a chart of somebody else's, from its own Helm repository.
type Upstream struct {
	Name       string // of the release and of the repository object
	Namespace  string // where its objects go
	Repository string // URL
	Chart      string
	Version    string
	Values     map[string]any
}

// UpstreamRelease is a HelmRepository and a HelmRelease for an upstream chart.
func UpstreamRelease(s *site.Site, u Upstream) ([]manifest.Object, error) {
	t, err := times(s)
	if err != nil {
		return nil, err
	}
	values, err := json.Marshal(u.Values)
	if err != nil {
		return nil, fmt.Errorf("values of %s: %w", u.Name, err)
	}
	release := helmRelease(s, u.Name, u.Namespace, t)
	release.Spec.Values = &apiextensionsv1.JSON{Raw: values}
	release.Spec.Chart = &helmv2.HelmChartTemplate{Spec: helmv2.HelmChartTemplateSpec{
		Chart: u.Chart, Version: u.Version,
		SourceRef: helmv2.CrossNamespaceObjectReference{Kind: sourcev1.HelmRepositoryKind, Name: u.Name},
	}}
	return manifest.All(&sourcev1.HelmRepository{
		TypeMeta:   metav1.TypeMeta{APIVersion: sourcev1.GroupVersion.String(), Kind: sourcev1.HelmRepositoryKind},
		ObjectMeta: metav1.ObjectMeta{Name: u.Name, Namespace: s.Namespaces.Flux, Labels: naming.Labels(u.Name)},
		Spec:       sourcev1.HelmRepositorySpec{URL: u.Repository, Interval: metav1.Duration{Duration: 24 * time.Hour}},
	}, release)
}

// ChartRelease is a HelmRelease of our own chart from the site's repository, with its values from a ConfigMap. The map's name
// must carry the hash of its content: only then does a change of values reach the release at once.
func ChartRelease(s *site.Site, valuesConfigMap, valuesKey string) (*helmv2.HelmRelease, error) {
	t, err := times(s)
	if err != nil {
		return nil, err
	}
	release := helmRelease(s, naming.ReleaseName, s.Namespaces.Slurm, t)
	// A change of Slurm's configuration may wait for jobs for longer than any timeout, and a refused one leaves the accepted one in
	// force. To roll back, or to delete the new pools of such an upgrade, would take the push away from under them: Helm looks again.
	release.Spec.Install.Remediation, release.Spec.Upgrade.Remediation, release.Spec.Upgrade.CleanupOnFail = nil, nil, false
	release.Spec.Install.Strategy = &helmv2.InstallStrategy{Name: string(helmv2.ActionStrategyRetryOnFailure), RetryInterval: &t.apply}
	release.Spec.Upgrade.Strategy = &helmv2.UpgradeStrategy{Name: string(helmv2.ActionStrategyRetryOnFailure), RetryInterval: &t.apply}
	release.Spec.ValuesFrom = []helmv2.ValuesReference{{Kind: "ConfigMap", Name: valuesConfigMap, ValuesKey: valuesKey}}
	release.Spec.Chart = &helmv2.HelmChartTemplate{Spec: helmv2.HelmChartTemplateSpec{
		Chart:     RepositoryPath(s, naming.ChartPath),
		SourceRef: helmv2.CrossNamespaceObjectReference{Kind: sourcev1.GitRepositoryKind, Name: naming.SourceName},
		// A chart that changed without a new version number is a new chart too.
		ReconcileStrategy: sourcev1.ReconcileStrategyRevision,
	}}
	return release, nil
}

func helmRelease(s *site.Site, name, target string, t intervals) *helmv2.HelmRelease {
	return &helmv2.HelmRelease{
		TypeMeta:   metav1.TypeMeta{APIVersion: helmv2.GroupVersion.String(), Kind: helmv2.HelmReleaseKind},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespaces.Flux, Labels: naming.Labels(name)},
		Spec: helmv2.HelmReleaseSpec{
			Interval: t.apply, Timeout: &t.timeout,
			ReleaseName: name, TargetNamespace: target, StorageNamespace: target,
			// A failed install is tried again; a failed upgrade is rolled back once and then stays, visibly, until a push mends
			// it: endless retries hide the first error.
			Install: &helmv2.Install{CRDs: helmv2.CreateReplace, Remediation: &helmv2.InstallRemediation{Retries: 3}},
			Upgrade: &helmv2.Upgrade{CRDs: helmv2.CreateReplace, CleanupOnFail: true, Remediation: &helmv2.UpgradeRemediation{
				Retries: 1, RemediateLastFailure: new(true),
			}},
			DriftDetection: &helmv2.DriftDetection{Mode: helmv2.DriftDetectionEnabled},
		},
	}
}
