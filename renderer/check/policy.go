package check

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/inflate"
)

// level is what a namespace enforces of its pods.
type level = api.LevelVersion

// enforceVersion is the release whose pod security standards hold where a namespace names none.
var enforceVersion = api.MajorMinorVersion(1, 34)

// podSecurity reads each namespace's label.
func podSecurity(layers []inflate.Layer) map[string]level {
	levels := map[string]level{}
	for _, layer := range layers {
		for _, o := range layer.Objects {
			if o.Kind() != "Namespace" {
				continue
			}
			labels, _ := o.Content()["metadata"].(map[string]any)["labels"].(map[string]any)
			enforce, _ := labels[api.EnforceLevelLabel].(string)
			if of, err := api.ParseLevel(enforce); err == nil {
				levels[o.Name()] = level{Level: of, Version: enforceVersion}
			}
		}
	}
	return levels
}

var evaluator = sync.OnceValues(func() (policy.Evaluator, error) { return policy.NewEvaluator(policy.DefaultChecks(), nil) })

// podPaths is where the pod's specification is in each kind that has one.
var podPaths = map[string][]string{
	"Pod": {}, "Deployment": {"spec", "template"}, "StatefulSet": {"spec", "template"}, "DaemonSet": {"spec", "template"},
	"Job": {"spec", "template"}, "WorkerPool": {"spec", "template"}, "CronJob": {"spec", "jobTemplate", "spec", "template"},
}

// pods holds an object's pods to the policy.
func (c *checker) pods(layer string, o manifest.Object) error {
	path, ok := podPaths[o.Kind()]
	if !ok {
		return nil
	}
	var node any = o.Content()
	for _, key := range path {
		m, _ := node.(map[string]any)
		node = m[key]
	}
	text, err := json.Marshal(node)
	if err != nil {
		return err
	}
	var template corev1.PodTemplateSpec
	if json.Unmarshal(text, &template) != nil {
		return nil // what the API does not take is told by the rule api
	}
	field := strings.Join(append(path, "spec"), ".")
	enforced, ok := c.levels[o.Namespace()]
	if !ok {
		c.find(layer, o, field, "pod-security", fmt.Sprintf("namespace %s enforces no pod security", o.Namespace()), "put pods into a namespace of the site's, or label it pod-security.kubernetes.io/enforce")
	} else {
		evaluate, err := evaluator()
		if err != nil {
			return err
		}
		for _, result := range evaluate.EvaluatePod(enforced, &template.ObjectMeta, &template.Spec) {
			if !result.Allowed {
				c.find(layer, o, field, "pod-security", fmt.Sprintf("namespace %s is %s, which forbids: %s (%s)", o.Namespace(), enforced.Level, result.ForbiddenReason, result.ForbiddenDetail), c.patch(layer))
			}
		}
	}
	for _, container := range append(append([]corev1.Container{}, template.Spec.InitContainers...), template.Spec.Containers...) {
		c.container(layer, o, field+".containers."+container.Name, container)
	}
	return nil
}

var secretName = regexp.MustCompile(`(?i)(password|passwd|secret|token|private_?key)$`)

func (c *checker) container(layer string, o manifest.Object, field string, container corev1.Container) {
	if image := container.Image; moving(image) {
		c.find(layer, o, field+".image", "image", fmt.Sprintf("image %q has no fixed tag: what runs would change without a commit", image), "name a release or a digest")
	}
	for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		_, requested := container.Resources.Requests[resource]
		_, limited := container.Resources.Limits[resource] // a limit alone is a request of the same size
		if !requested && !limited {
			c.find(layer, o, field+".resources.requests", "requests", fmt.Sprintf("requests no %s: the scheduler would pack its host too full", resource), c.patch(layer))
		}
	}
	for _, variable := range container.Env {
		if secretName.MatchString(variable.Name) && variable.Value != "" {
			c.find(layer, o, field+".env."+variable.Name, "secret", "its name says that it is a secret, and its value stands in clear", "take it from a sealed Secret by valueFrom.secretKeyRef")
		}
	}
}

// moving says whether what an image's name stands for can change.
func moving(image string) bool {
	if strings.Contains(image, "@sha256:") {
		return false
	}
	name := image[strings.LastIndex(image, "/")+1:]
	_, tag, found := strings.Cut(name, ":")
	return !found || tag == "latest"
}

// secrets refuses a Secret whose values can be read.
func (c *checker) secrets(layer string, o manifest.Object) {
	if o.Kind() != "Secret" {
		return
	}
	for _, field := range []string{"data", "stringData"} {
		values, _ := o.Content()[field].(map[string]any)
		for key, value := range values {
			if text, ok := value.(string); !ok || !strings.HasPrefix(text, "ENC[") {
				c.find(layer, o, field+"."+key, "secret", "stands in clear: whoever can read the repository has it", "seal it: sops --encrypt --in-place, into clusters/<site>/secrets")
			}
		}
	}
}

// substituted are the layers in which Flux replaces variables in every text.
func substituted(entry []manifest.Object) map[string]bool {
	out := map[string]bool{}
	for _, o := range entry {
		spec, _ := o.Content()["spec"].(map[string]any)
		if _, on := spec["postBuild"]; on && o.Kind() == "Kustomization" {
			out[strings.TrimPrefix(o.Name(), naming.SourceName+"-")] = true
		}
	}
	return out
}

var variable = regexp.MustCompile(`\$\{?[A-Za-z_]`)

// substitution finds texts that Flux would change.
func (c *checker) substitution(layer string, o manifest.Object) {
	if o.Annotations()["kustomize.toolkit.fluxcd.io/substitute"] == "disabled" {
		return
	}
	var walk func(node any, field string)
	walk = func(node any, field string) {
		switch n := node.(type) {
		case map[string]any:
			for key, value := range n {
				walk(value, strings.TrimPrefix(field+"."+key, "."))
			}
		case []any:
			for i, value := range n {
				walk(value, fmt.Sprintf("%s.%d", field, i))
			}
		case string:
			if at := variable.FindStringIndex(n); at != nil {
				line := 1 + strings.Count(n[:at[0]], "\n")
				c.find(layer, o, field, "substitution", fmt.Sprintf("line %d has a variable that Flux would replace, or blank", line), "annotate the object kustomize.toolkit.fluxcd.io/substitute: disabled")
			}
		}
	}
	walk(o.Content(), "")
}
