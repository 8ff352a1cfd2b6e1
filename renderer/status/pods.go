package status

import (
	"context"
	"fmt"
	"sort"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/site"
)

// readPods finds our pods that do not get on: not scheduled, without an image, crashing, refused a volume.
func (r *Report) readPods(ctx context.Context, cluster client.Reader, s *site.Site) error {
	for _, namespace := range []string{s.Namespaces.Slurm, s.Namespaces.Workers} {
		var list corev1.PodList
		if err := cluster.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/part-of": naming.PartOf}); err != nil {
			return err
		}
		sort.Slice(list.Items, func(i, j int) bool { return list.Items[i].Name < list.Items[j].Name })
		for _, pod := range list.Items {
			if why, mend := podTrouble(pod); why != "" {
				r.stuck("pod "+namespace+"/"+pod.Name, why, "%s", mend)
			}
		}
	}
	return nil
}

// harmless are reasons for which a container waits in the ordinary course of things.
var harmless = map[string]bool{"ContainerCreating": true, "PodInitializing": true}

// podTrouble says what keeps a pod from running and how to see more; both are empty for a pod that is well or on its way.
func podTrouble(pod corev1.Pod) (why, mend string) {
	describe := fmt.Sprintf("kubectl -n %s describe pod %s", pod.Namespace, pod.Name)
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded {
		return "", ""
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return "no node takes it: " + oneLine(condition.Message), describe
		}
	}
	statuses := append(append([]corev1.ContainerStatus{}, pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...)
	for _, container := range statuses {
		waiting := container.State.Waiting
		if waiting == nil || harmless[waiting.Reason] || waiting.Reason == "" {
			continue
		}
		why := fmt.Sprintf("container %s: %s %s", container.Name, waiting.Reason, oneLine(waiting.Message))
		if waiting.Reason == "CrashLoopBackOff" {
			return why, fmt.Sprintf("kubectl -n %s logs %s -c %s --previous", pod.Namespace, pod.Name, container.Name)
		}
		return why, describe
	}
	return "", ""
}
