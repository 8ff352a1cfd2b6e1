package chart

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
)

// decode turns an object into its Go type; a field that the type does not have fails the test.
func decode[T any](t testing.TB, object *unstructured.Unstructured) T {
	t.Helper()
	var typed T
	if object == nil {
		t.Fatalf("no such object (%T)", typed)
	}
	data, err := yaml.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, &typed); err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return typed
}

// podTemplates returns the pod template of a workload or a WorkerPool.
func podTemplates(t testing.TB, object *unstructured.Unstructured) []corev1.PodTemplateSpec {
	t.Helper()
	if object == nil {
		return nil
	}
	switch object.GetKind() {
	case "Deployment":
		return []corev1.PodTemplateSpec{decode[appsv1.Deployment](t, object).Spec.Template}
	case "StatefulSet":
		return []corev1.PodTemplateSpec{decode[appsv1.StatefulSet](t, object).Spec.Template}
	case "Job":
		return []corev1.PodTemplateSpec{decode[batchv1.Job](t, object).Spec.Template}
	case "WorkerPool":
		return []corev1.PodTemplateSpec{decode[v1alpha1.WorkerPool](t, object).Spec.Template}
	}
	return nil
}

func equal(a, b []corev1.PodTemplateSpec) bool { return reflect.DeepEqual(a, b) }

// L9: a worker's pod is of the class Guaranteed. Kubernetes then gives slurmd an oom_score_adj of -997, and Slurm gives each task 0: where the
// pod's memory is all used, a job's process ends and not the daemon of all.
func TestWorkersAreGuaranteed(t *testing.T) {
	for key, object := range objects(t, nil) {
		if object.GetKind() != "WorkerPool" {
			continue
		}
		for _, template := range podTemplates(t, object) {
			for _, c := range append(template.Spec.InitContainers, template.Spec.Containers...) {
				for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
					request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
					if limit.IsZero() || request.Cmp(limit) != 0 {
						t.Errorf("%s: container %s asks for %s of %s and may have %s; want the same", key, c.Name, request.String(), name, limit.String())
					}
				}
			}
		}
	}
}

// Every object is of a known kind and has only fields that the kind has.
func TestObjectsAreValid(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for key, object := range objects(t, full()) {
		data, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := decoder.Decode(data, nil, nil); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		if object.GetLabels()["app.kubernetes.io/part-of"] != "berth" {
			t.Errorf("%s: no label part-of", key)
		}
	}
}

// Pods of the control plane pass pod security "restricted", those of the workers' namespace "baseline", by Kubernetes' own
// checks. And what those do not ask for: resources for everything, read-only roots, no token where none is used, and the
// capabilities that are written here and no other.
func TestPodSecurity(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := map[string]api.Level{"slurm": api.LevelRestricted, "slurm-workers": api.LevelBaseline}
	capabilities := map[string]string{
		"sshd":   "SETUID SETGID SYS_CHROOT CHOWN FOWNER AUDIT_WRITE",
		"slurmd": "CHOWN SETUID SETGID KILL FOWNER",
	}
	tokens := map[string]bool{"guard": true, "autoscaler": true, "removal": true}
	for key, object := range objects(t, full()) {
		for _, template := range podTemplates(t, object) {
			version := api.LevelVersion{Level: level[object.GetNamespace()], Version: api.LatestVersion()}
			for _, result := range evaluator.EvaluatePod(version, &template.ObjectMeta, &template.Spec) {
				if !result.Allowed {
					t.Errorf("%s: %s: %s", key, result.ForbiddenReason, result.ForbiddenDetail)
				}
			}
			if on := template.Spec.AutomountServiceAccountToken; on == nil || *on {
				t.Errorf("%s: every container has an API token", key)
			}
			for _, c := range template.Spec.Containers {
				where := key + " " + c.Name
				if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() {
					t.Errorf("%s: no requests", where)
				}
				s := c.SecurityContext
				if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
					t.Errorf("%s: the root file system can be written", where)
				}
				if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
					t.Errorf("%s: privileges can be gained", where)
				}
				var added []string
				if s != nil && s.Capabilities != nil {
					for _, name := range s.Capabilities.Add {
						added = append(added, string(name))
					}
				}
				if got := strings.Join(added, " "); got != capabilities[c.Name] {
					t.Errorf("%s: capabilities %q, want %q", where, got, capabilities[c.Name])
				}
				token := false
				for _, mount := range c.VolumeMounts {
					token = token || mount.MountPath == "/var/run/secrets/kubernetes.io/serviceaccount"
				}
				if token != tokens[c.Name] {
					t.Errorf("%s: API token mounted: %v", where, token)
				}
				// The controller takes jobs without its guard and without its advisor.
				if c.ReadinessProbe == nil && c.Name != "guard" && c.Name != "advisor" && object.GetKind() != "Job" {
					t.Errorf("%s: nothing says when it is ready", where)
				}
			}
		}
	}
}

// Everything that an object refers to is rendered, or is one of the secrets and claims that the values name.
func TestReferencesResolve(t *testing.T) {
	found := objects(t, full())
	has := map[string]bool{}
	for key := range found {
		has[key] = true
	}
	for _, expected := range []string{
		"Secret/slurm/slurm-auth-key", "Secret/slurm-workers/slurm-auth-key", "Secret/slurm/slurm-jwt-key",
		"Secret/slurm/slurm-database", "Secret/slurm-workers/slurm-ssh-host-keys",
		"PersistentVolumeClaim/slurm/slurm-state", "PersistentVolumeClaim/slurm/slurm-database",
		"PersistentVolumeClaim/slurm-workers/slurm-home", "PersistentVolumeClaim/slurm-workers/slurm-shared",
		"ConfigMap/slurm/kube-root-ca.crt", // Kubernetes' own, in every namespace
	} {
		has[expected] = true
	}
	need := func(by, kind, namespace, name string) {
		if key := kind + "/" + namespace + "/" + name; !has[key] {
			t.Errorf("%s refers to %s, which nobody makes", by, key)
		}
	}
	for key, object := range found {
		ns := object.GetNamespace()
		for _, template := range podTemplates(t, object) {
			spec := template.Spec
			if spec.ServiceAccountName != "" {
				need(key, "ServiceAccount", ns, spec.ServiceAccountName)
			}
			volumes := map[string]bool{}
			for _, v := range spec.Volumes {
				volumes[v.Name] = true
				switch {
				case v.Secret != nil:
					need(key, "Secret", ns, v.Secret.SecretName)
				case v.ConfigMap != nil:
					need(key, "ConfigMap", ns, v.ConfigMap.Name)
				case v.PersistentVolumeClaim != nil:
					need(key, "PersistentVolumeClaim", ns, v.PersistentVolumeClaim.ClaimName)
				case v.Projected != nil:
					for _, source := range v.Projected.Sources {
						if source.ConfigMap != nil {
							need(key, "ConfigMap", ns, source.ConfigMap.Name)
						}
					}
				}
			}
			mounted := map[string]bool{}
			for _, c := range spec.Containers {
				for _, m := range c.VolumeMounts {
					mounted[m.Name] = true
					if !volumes[m.Name] {
						t.Errorf("%s %s mounts %s, which is no volume", key, c.Name, m.Name)
					}
				}
			}
			for name := range volumes {
				if !mounted[name] {
					t.Errorf("%s: nobody mounts volume %s", key, name)
				}
			}
		}
		switch object.GetKind() {
		case "Service":
			checkService(t, key, decode[corev1.Service](t, object), found)
		case "RoleBinding":
			binding := decode[rbacv1.RoleBinding](t, object)
			need(key, binding.RoleRef.Kind, ns, binding.RoleRef.Name)
			for _, subject := range binding.Subjects {
				need(key, subject.Kind, subject.Namespace, subject.Name)
			}
		case "StatefulSet":
			need(key, "Service", ns, decode[appsv1.StatefulSet](t, object).Spec.ServiceName)
		}
	}
}

// checkService fails the test unless some pod of the namespace is selected and listens on the Service's target ports.
func checkService(t *testing.T, key string, service corev1.Service, found map[string]*unstructured.Unstructured) {
	t.Helper()
	var listens []string
	for _, object := range found {
		for _, template := range podTemplates(t, object) {
			if object.GetNamespace() != service.Namespace || !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(template.Labels)) {
				continue
			}
			for _, c := range template.Spec.Containers {
				for _, port := range c.Ports {
					listens = append(listens, port.Name)
				}
			}
		}
	}
	for _, port := range service.Spec.Ports {
		if !strings.Contains(fmt.Sprint(listens), port.TargetPort.StrVal) {
			t.Errorf("%s: port %s goes to %q; the pods that it selects have %v", key, port.Name, port.TargetPort.StrVal, listens)
		}
	}
}

// Helm runs the removal of the pools before it deletes anything, with what it needs made before it, and again at the next try.
func TestPoolsGoBeforeTheRelease(t *testing.T) {
	found := objects(t, full())
	weights := map[string]string{}
	for _, key := range []string{
		"ServiceAccount/slurm/slurm-removal", "Role/slurm-workers/slurm-removal", "RoleBinding/slurm-workers/slurm-removal",
		"NetworkPolicy/slurm/slurm-removal", "Job/slurm/slurm-removal",
	} {
		annotations := found[key].GetAnnotations()
		if annotations["helm.sh/hook"] != "pre-delete" || !strings.Contains(annotations["helm.sh/hook-delete-policy"], "before-hook-creation") {
			t.Errorf("%s: %v", key, annotations)
		}
		weights[found[key].GetKind()] = annotations["helm.sh/hook-weight"]
	}
	for kind, weight := range weights {
		if want := map[bool]string{true: "0", false: "-10"}[kind == "Job"]; weight != want {
			t.Errorf("%s has weight %q, want %q", kind, weight, want)
		}
	}
	pod := podTemplates(t, found["Job/slurm/slurm-removal"])[0]
	if got := strings.Join(pod.Spec.Containers[0].Args, " "); got != "remove-pools --workers-namespace=slurm-workers" {
		t.Errorf("it runs %q", got)
	}
	selected := decode[networkingv1.NetworkPolicy](t, found["NetworkPolicy/slurm/slurm-removal"]).Spec.PodSelector
	if !labels.SelectorFromSet(selected.MatchLabels).Matches(labels.Set(pod.Labels)) {
		t.Error("its policy is not of its pod")
	}
	// No Service sends anything to it.
	for key, object := range found {
		if object.GetKind() == "Service" && object.GetNamespace() == "slurm" &&
			labels.SelectorFromSet(decode[corev1.Service](t, object).Spec.Selector).Matches(labels.Set(pod.Labels)) {
			t.Errorf("%s selects it", key)
		}
	}
}
