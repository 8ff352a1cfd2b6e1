package scaler

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
)

// workersService is the headless service in whose domain worker names resolve, where the template names none.
const workersService = "slurm-workers"

// buildPod makes the pod of a node from the accepted template.
func buildPod(pool *poolView, node string, busy bool, scheme *runtime.Scheme) (*corev1.Pod, error) {
	template := pool.template.DeepCopy()
	spec := pool.object.Spec
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name, pod.GenerateName, pod.Namespace = node, "", pool.object.Namespace
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[v1alpha1.LabelPool] = pool.object.Name
	pod.Labels[v1alpha1.LabelNode] = node
	pod.Labels[v1alpha1.LabelTemplate] = pool.templateHash
	if busy {
		pod.Labels[v1alpha1.LabelBusy] = "true"
	}
	pod.Spec.Hostname = node
	if pod.Spec.Subdomain == "" {
		pod.Spec.Subdomain = workersService
	}
	// slurmd's end must be the pod's end: one that restarts in place leaves its jobs RUNNING without a process.
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	if pod.Spec.TerminationGracePeriodSeconds == nil && spec.DrainSeconds > 0 {
		grace := int64(spec.DrainSeconds)
		pod.Spec.TerminationGracePeriodSeconds = &grace
	}
	pin(&pod.Spec, pool, node)
	if err := controllerutil.SetControllerReference(pool.object, pod, scheme); err != nil {
		return nil, err
	}
	return pod, nil
}

// pin puts a pod on its host, or on one of the pool's hosts.
func pin(spec *corev1.PodSpec, pool *poolView, node string) {
	hosts := hostsOf(pool, node)
	if len(hosts) == 0 {
		return
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		required = &corev1.NodeSelector{}
		spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = required
	}
	if len(required.NodeSelectorTerms) == 0 {
		required.NodeSelectorTerms = []corev1.NodeSelectorTerm{{}}
	}
	for i := range required.NodeSelectorTerms { // terms are alternatives, so each of them gets it
		term := &required.NodeSelectorTerms[i]
		term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
			Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: hosts,
		})
	}
}

// objectMeta is the least that a delete or a patch needs of a pod.
func objectMeta(namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}
