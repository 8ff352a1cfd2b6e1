package check_test

import (
	"strings"
	"testing"

	"github.com/berth-hpc/berth/components/api"
	"github.com/berth-hpc/berth/components/chart"
	"github.com/berth-hpc/berth/renderer/check"
	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/emit"
	"github.com/berth-hpc/berth/renderer/inflate"
	"github.com/berth-hpc/berth/renderer/load"
	"github.com/berth-hpc/berth/renderer/site"
)

func patches(layer string) string { return "patches/" + layer }

func entry(r *emit.Rendered) []manifest.Object {
	var out []manifest.Object
	for _, o := range r.Compiled.Entry {
		out = append(out, o)
	}
	return out
}

func TestShippedSitesPass(t *testing.T) {
	sites, err := load.Load("../../clusters")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sites {
		for _, mode := range []string{"helm", "manifests"} {
			s.Delivery.Mode = mode
			r, err := emit.Render(t.TempDir(), s, compile.Parts{Chart: chart.Files, ChartDir: chart.Dir, CRDs: api.CRDs()})
			if err != nil {
				t.Fatal(err)
			}
			report, err := check.Site(r.Inflated, entry(r), patches)
			if err != nil {
				t.Fatal(err)
			}
			if report.Objects < 40 {
				t.Errorf("%s by %s: only %d objects were looked at", s.Name, mode, report.Objects)
			}
			for _, f := range report.Findings {
				t.Errorf("%s by %s: %s", s.Name, mode, f)
			}
		}
	}
}

// Names that YAML 1.1 reads as numbers or truth stay names: all that is quoted in the site is quoted in what is rendered.
func TestNamesThatYAMLReadsOtherwise(t *testing.T) {
	sites, err := load.Load("../../clusters", "laptop")
	if err != nil {
		t.Fatal(err)
	}
	s := sites[0]
	s.Namespaces.Slurm, s.Namespaces.Workers = "123", "1e3"
	s.Secrets.Names = site.SecretNames{AuthKey: "0x1", JWTKey: "12", Database: "on", SSHHost: "null", AgeKey: "no"}
	s.Cluster.TimeZone, s.Cluster.Domain, s.Images.Tag, s.Storage.Class = "No", "1.0", "017", "1.5"
	pool := s.Pools["cpu"]
	pool.Env = map[string]string{"Y": "yes", "N": "1e3", "NULL": "~", "ON": ""}
	pool.NodeSelector = map[string]string{"y": "n", "off": "1"}
	s.Pools = map[string]site.Pool{"y": pool, "null": pool}
	for _, mode := range []string{"helm", "manifests"} {
		s.Delivery.Mode = mode
		r, err := emit.Render(t.TempDir(), s, compile.Parts{Chart: chart.Files, ChartDir: chart.Dir, CRDs: api.CRDs()})
		if err != nil {
			t.Fatal(err)
		}
		report, err := check.Site(r.Inflated, entry(r), patches)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range report.Findings {
			t.Errorf("by %s: %s", mode, f)
		}
	}
}

// namespaces are those of the objects below, with what they enforce.
const namespaces = `
apiVersion: v1
kind: Namespace
metadata: {name: strict, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: Namespace
metadata: {name: loose, labels: {pod-security.kubernetes.io/enforce: privileged}}
`

const good = "resources: {requests: {cpu: 1, memory: 1Gi}}"

// Each rule has an object that breaks it, and says which field.
func TestEachRuleFinds(t *testing.T) {
	pod := func(namespace, container string) string {
		return `
apiVersion: apps/v1
kind: Deployment
metadata: {name: x, namespace: ` + namespace + `}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: c, ` + container + `}]}
`
	}
	for name, c := range map[string]struct{ objects, want string }{
		"an unknown field":     {strings.Replace(pod("loose", "image: 'a:1', "+good), "selector:", "replica: 2\n  selector:", 1), "api|spec|additional properties 'replica' not allowed"},
		"a deep unknown field": {pod("loose", "image: 'a:1', imagePulPolicy: Never, "+good), "api|spec.template.spec.containers.0|additional properties 'imagePulPolicy' not allowed"},
		"a wrong type":         {strings.Replace(pod("loose", "image: 'a:1', "+good), "selector:", "replicas: two\n  selector:", 1), "api|spec.replicas|got string, want integer"},
		"a missing field":      {strings.Replace(pod("loose", "image: 'a:1', "+good), "selector: {matchLabels: {a: b}}", "replicas: 1", 1), "api|spec|missing property 'selector'"},
		"an unknown kind":      {"apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: x}", "api|apiVersion|Kubernetes 1.34 has no apps/v1beta1 Deployment"},
		"a Flux typo":          {"apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: x}\nspec: {prun: true}", "api||unknown field \"prun\""},
		"a pool's pod":         {"apiVersion: berth-hpc.github.io/v1alpha1\nkind: WorkerPool\nmetadata: {name: x, namespace: loose}\nspec: {template: {spec: {containers: [{name: c, image: 'a:1', imag: x, " + good + "}]}}}", "api|spec.template.spec.containers.0|additional properties 'imag' not allowed"},
		"pod security":         {pod("strict", "image: 'a:1', "+good), "pod-security|spec.template.spec|namespace strict is restricted, which forbids"},
		"no pod security":      {pod("nowhere", "image: 'a:1', "+good), "pod-security|spec.template.spec|namespace nowhere enforces no pod security"},
		"latest":               {pod("loose", "image: 'a:latest', "+good), "image|spec.template.spec.containers.c.image|has no fixed tag"},
		"no tag":               {pod("loose", "image: 'host:5000/a', "+good), "image|spec.template.spec.containers.c.image|has no fixed tag"},
		"no requests":          {pod("loose", "image: 'a:1', resources: {requests: {cpu: 1}}"), "requests|spec.template.spec.containers.c.resources.requests|requests no memory"},
		"a clear secret":       {"apiVersion: v1\nkind: Secret\nmetadata: {name: x, namespace: loose}\nstringData: {password: hunter2}", "secret|stringData.password|stands in clear"},
		"a clear variable":     {pod("loose", "image: 'a:1', env: [{name: DB_PASSWORD, value: hunter2}], "+good), "secret|spec.template.spec.containers.c.env.DB_PASSWORD|its value stands in clear"},
		"two owners":           {"apiVersion: v1\nkind: Namespace\nmetadata: {name: loose}", "owner||layers foundation and slurm both make it"},
		"definition and kind":  {"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: xs.a.b}\nspec: {group: a.b, scope: Namespaced, names: {kind: X, plural: xs}, versions: [{name: v1, served: true, storage: true}]}\n---\napiVersion: a.b/v1\nkind: X\nmetadata: {name: x}", "order||its definition is in the same layer"},
		"a variable":           {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: loose}\ndata: {run: \"#!/bin/sh\\necho ${HOME}\"}", "substitution|data.run|line 2 has a variable that Flux would replace"},
	} {
		t.Run(name, func(t *testing.T) {
			first, err := manifest.Parse([]byte(namespaces))
			if err != nil {
				t.Fatal(err)
			}
			second, err := manifest.Parse([]byte(c.objects))
			if err != nil {
				t.Fatal(err)
			}
			flux, err := manifest.Parse([]byte("apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: berth-slurm, namespace: flux-system}\nspec: {interval: 1m, prune: true, sourceRef: {kind: GitRepository, name: berth}, postBuild: {substitute: {A: b}}}"))
			if err != nil {
				t.Fatal(err)
			}
			report, err := check.Site([]inflate.Layer{{Name: "foundation", Objects: first}, {Name: "slurm", Objects: second}}, flux, patches)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.SplitN(c.want, "|", 3)
			for _, f := range report.Findings {
				if f.Rule == want[0] && f.Field == want[1] && strings.Contains(f.Message, want[2]) && f.Mend != "" {
					return
				}
			}
			t.Errorf("found %+v, want %s", report.Findings, c.want)
		})
	}
}
