package scaler

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/autoscaler/decision"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// view is everything that one round looks at.
type view struct {
	cluster      string // ClusterName of the SlurmConfig; "" without one
	acceptedHash string // the configuration that slurmctld runs with
	pools        []*poolView
	nodes        map[string]*slurmrest.Node
	fetched      time.Time // when slurmctld was asked for them
	asOf         time.Time // slurmctld's time of the answer
	hosts        map[string]*corev1.Node
}

// poolView is a WorkerPool with its pods.
type poolView struct {
	object         *v1alpha1.WorkerPool
	pods           map[string]*corev1.Pod
	configAccepted bool
	template       *corev1.PodTemplateSpec // the accepted one; nil while there is none
	templateHash   string
	revision       *appsv1.ControllerRevision // of the accepted template
	refused        string                     // why Kubernetes takes no pod of the newest template
	floor          v1alpha1.Floor
	nodeNames      []string
	waiting        string // why the newest template is not the accepted one
}

// names are the pool's node names in order of their index.
func (p *poolView) names() []string {
	if p.nodeNames == nil {
		p.nodeNames = make([]string, p.object.Spec.Max)
		for i := range p.nodeNames {
			p.nodeNames[i] = p.object.Spec.NodeName(i)
		}
	}
	return p.nodeNames
}

// observe reads Kubernetes' side of a round from the cache.
func (l *Loop) observe(ctx context.Context) (*view, error) {
	view := &view{}
	config := new(v1alpha1.SlurmConfig)
	err := l.Kubernetes.Get(ctx, client.ObjectKey{Namespace: l.ConfigNamespace, Name: l.ConfigName}, config)
	switch {
	case apierrors.IsNotFound(err): // before the first render, or on the way out
	case err != nil:
		return nil, fmt.Errorf("read SlurmConfig %s/%s: %w", l.ConfigNamespace, l.ConfigName, err)
	default:
		view.cluster, view.acceptedHash = config.Spec.ClusterName, config.Status.AcceptedHash
	}
	var pools v1alpha1.WorkerPoolList
	if err := l.Kubernetes.List(ctx, &pools, client.InNamespace(l.WorkersNamespace)); err != nil {
		return nil, fmt.Errorf("list WorkerPools: %w", err)
	}
	byName := make(map[string]*poolView, len(pools.Items))
	for i := range pools.Items {
		pool := &poolView{object: &pools.Items[i], pods: map[string]*corev1.Pod{}}
		view.pools = append(view.pools, pool)
		byName[pool.object.Name] = pool
	}
	sort.Slice(view.pools, func(i, j int) bool { return view.pools[i].object.Name < view.pools[j].object.Name })
	var pods corev1.PodList
	if err := l.Kubernetes.List(ctx, &pods, client.InNamespace(l.WorkersNamespace), client.HasLabels{v1alpha1.LabelNode}); err != nil {
		return nil, fmt.Errorf("list worker pods: %w", err)
	}
	var hosts corev1.NodeList
	if err := l.Kubernetes.List(ctx, &hosts); err != nil {
		return nil, fmt.Errorf("list the hosts: %w", err)
	}
	view.hosts = make(map[string]*corev1.Node, len(hosts.Items))
	for i := range hosts.Items {
		view.hosts[hosts.Items[i].Name] = &hosts.Items[i]
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pool := byName[pod.Labels[v1alpha1.LabelPool]]; pool != nil {
			pool.pods[pod.Name] = pod
		}
	}
	return view, nil
}

// podOf is what a decision needs to know of a pod.
func podOf(pod *corev1.Pod) *decision.Pod {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return &decision.Pod{
		Name: pod.Name, UID: string(pod.UID), Ended: ended, EndedBecause: endReason(pod, ended),
		Terminating: pod.DeletionTimestamp != nil, TerminatingBecause: disruption(pod), Problem: podProblem(pod),
		Created:  pod.CreationTimestamp.Time,
		SeenUp:   pod.Annotations[v1alpha1.AnnotationSeenUp] != "",
		Busy:     pod.Labels[v1alpha1.LabelBusy] == "true",
		Template: pod.Labels[v1alpha1.LabelTemplate],
	}
}

// disruption is what Kubernetes says of who ends a pod: an eviction, a preemption, a taint, a node that shuts down.
func disruption(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue {
			return strings.TrimSpace(condition.Reason + " " + condition.Message)
		}
	}
	return ""
}

// endReason says in a few words why a pod ended.
func endReason(pod *corev1.Pod, ended bool) string {
	if !ended {
		return ""
	}
	var parts []string
	if pod.Status.Reason != "" {
		parts = append(parts, pod.Status.Reason)
	}
	for _, status := range pod.Status.ContainerStatuses {
		if t := status.State.Terminated; t != nil {
			parts = append(parts, fmt.Sprintf("%s exited with %d (%s)", status.Name, t.ExitCode, t.Reason))
		}
	}
	if len(parts) == 0 {
		return string(pod.Status.Phase)
	}
	return strings.Join(parts, ", ")
}

// podProblems says why pods that should run do not: no room, an image that does not come, a container that fails.
func podProblems(view *view, pool *poolView) []string {
	var problems []string
	for _, name := range pool.names() {
		pod, node := pool.pods[name], view.nodes[name]
		if pod == nil || node == nil || decision.PhaseOf(node) != decision.Starting || pod.DeletionTimestamp != nil {
			continue
		}
		if why := podProblem(pod); why != "" {
			problems = append(problems, name+": "+why)
		}
	}
	return problems
}

func podProblem(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return "Kubernetes has no place for its pod: " + condition.Message
		}
	}
	for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		waiting := status.State.Waiting
		if waiting == nil {
			continue
		}
		switch waiting.Reason {
		case "", "ContainerCreating", "PodInitializing":
		default:
			return fmt.Sprintf("container %s waits: %s %s", status.Name, waiting.Reason, waiting.Message)
		}
	}
	return ""
}

// revisions lists the pool's accepted templates.
func (l *Loop) revisions(ctx context.Context, pool *poolView) ([]appsv1.ControllerRevision, error) {
	var list appsv1.ControllerRevisionList
	err := l.Kubernetes.List(ctx, &list, client.InNamespace(l.WorkersNamespace), client.MatchingLabels{v1alpha1.LabelPool: pool.object.Name})
	if err != nil {
		return nil, fmt.Errorf("list the accepted templates: %w", err)
	}
	sort.Slice(list.Items, func(i, j int) bool { return list.Items[i].Revision < list.Items[j].Revision })
	return list.Items, nil
}
