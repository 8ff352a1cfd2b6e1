package e2e

import (
	"fmt"
	"strings"
	"time"
)

// The parts of Kubernetes objects that the tests read.
type metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	UID               string            `json:"uid"`
	Generation        int64             `json:"generation"`
	Labels            map[string]string `json:"labels"`
	DeletionTimestamp *time.Time        `json:"deletionTimestamp"`
}

type condition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
	ObservedGeneration int64  `json:"observedGeneration"`
}

type kustomization struct {
	Metadata metadata `json:"metadata"`
	Status   struct {
		ObservedGeneration    int64       `json:"observedGeneration"`
		LastAppliedRevision   string      `json:"lastAppliedRevision"`
		LastAttemptedRevision string      `json:"lastAttemptedRevision"`
		Conditions            []condition `json:"conditions"`
	} `json:"status"`
}

// ready tells whether Flux says so of the object's present generation, and otherwise why not.
func (k kustomization) ready() (bool, string) {
	for _, c := range k.Status.Conditions {
		if c.Type == "Ready" {
			current := k.Status.ObservedGeneration == k.Metadata.Generation
			return c.Status == "True" && current, fmt.Sprintf("Ready=%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return false, "has no Ready condition yet"
}

type pod struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		HostNetwork                  bool        `json:"hostNetwork"`
		HostPID                      bool        `json:"hostPID"`
		HostIPC                      bool        `json:"hostIPC"`
		AutomountServiceAccountToken *bool       `json:"automountServiceAccountToken"`
		InitContainers               []container `json:"initContainers"`
		Containers                   []container `json:"containers"`
		Volumes                      []struct {
			Name      string `json:"name"`
			HostPath  *struct{ Path string }
			Secret    *struct{ SecretName string }
			Projected *struct {
				Sources []struct {
					ServiceAccountToken *struct{ Path string }
					Secret              *struct{ Name string }
				}
			}
		} `json:"volumes"`
	} `json:"spec"`
	Status struct {
		Phase             string            `json:"phase"`
		PodIP             string            `json:"podIP"`
		Conditions        []condition       `json:"conditions"`
		ContainerStatuses []containerStatus `json:"containerStatuses"`
	} `json:"status"`
}

type container struct {
	Name            string `json:"name"`
	SecurityContext struct {
		Privileged               *bool `json:"privileged"`
		AllowPrivilegeEscalation *bool `json:"allowPrivilegeEscalation"`
		RunAsNonRoot             *bool `json:"runAsNonRoot"`
		Capabilities             struct {
			Add  []string `json:"add"`
			Drop []string `json:"drop"`
		} `json:"capabilities"`
	} `json:"securityContext"`
}

type containerStatus struct {
	Name         string `json:"name"`
	Ready        bool   `json:"ready"`
	RestartCount int    `json:"restartCount"`
	ContainerID  string `json:"containerID"`
	State        struct {
		Running *struct {
			StartedAt time.Time `json:"startedAt"`
		} `json:"running"`
	} `json:"state"`
}

// serving tells whether the pod is Ready and not on its way out.
func (p pod) serving() bool {
	if p.Metadata.DeletionTimestamp != nil || p.Status.Phase != "Running" {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

// pods lists a namespace's pods that match the label selector ("" for all).
func (r *run) pods(namespace, selector string) []pod {
	r.Helper()
	var list struct{ Items []pod }
	args := []string{"pods", "-n", namespace}
	if selector != "" {
		args = append(args, "-l", selector)
	}
	if err := r.get(&list, args...); err != nil {
		r.Fatal(err)
	}
	return list.Items
}

// workerPods lists the workers' pods, of one pool or, with "", of all.
func (r *run) workerPods(pool string) []pod {
	r.Helper()
	if pool == "" {
		return r.pods(workers, labelPool)
	}
	return r.pods(workers, labelPool+"="+pool)
}

func names(pods []pod) string {
	var list []string
	for _, p := range pods {
		state := p.Status.Phase
		if p.Metadata.DeletionTimestamp != nil {
			state = "Terminating"
		}
		list = append(list, p.Metadata.Name+" "+state)
	}
	if len(list) == 0 {
		return "no pods"
	}
	return strings.Join(list, ", ")
}

// waitNoWorkers waits until a pool ("" for every pool) has no pods and Slurm may power its nodes up again: a node whose
// pod has gone stays POWERING_DOWN, and out of Slurm's reach, until SuspendTimeout is over.
func (r *run) waitNoWorkers(pool string) {
	r.Helper()
	what, partition := "all workers leave", ""
	if pool != "" {
		what, partition = "the workers of "+pool+" leave", " --partition="+pool
	}
	r.eventually(workersLeave, what, func() (bool, string) {
		if pods := r.workerPods(pool); len(pods) > 0 {
			return false, names(pods)
		}
		leaving, err := r.inController("sinfo --noheader --Node --states=powering_down --format='%N %T'" + partition)
		if err != nil {
			return false, err.Error()
		}
		return strings.TrimSpace(leaving) == "", leaving
	})
}

// slurmctldStart identifies the running slurmctld's container: its pod, which start of the container it is, and when
// that was. A reconfigure changes none of it.
func (r *run) slurmctldStart() string {
	r.Helper()
	var p pod
	if err := r.get(&p, "pod", "-n", platform, controllerPod); err != nil {
		r.Fatal(err)
	}
	start := r.slurmctldStartOf(p)
	if start == "" {
		r.Fatalf("%s: container %s is not running", controllerPod, controllerContainer)
	}
	return start
}

// slurmctldStartOf is slurmctldStart of a pod; "" while the container does not run.
func (r *run) slurmctldStartOf(p pod) string {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == controllerContainer && c.State.Running != nil {
			return fmt.Sprintf("pod %s, restart %d, started %s", p.Metadata.UID, c.RestartCount, c.State.Running.StartedAt.Format(time.RFC3339))
		}
	}
	return ""
}

// mustBeUntouched fails the test if slurmctld has been started again since before.
func (r *run) mustBeUntouched(before string) {
	r.Helper()
	if now := r.slurmctldStart(); now != before {
		r.Errorf("slurmctld was restarted: before %s; now %s", before, now)
	}
}

type slurmConfig struct {
	Metadata metadata `json:"metadata"`
	Status   struct {
		ObservedGeneration int64       `json:"observedGeneration"`
		State              string      `json:"state"`
		Message            string      `json:"message"`
		AcceptedHash       string      `json:"acceptedHash"`
		Conditions         []condition `json:"conditions"`
	} `json:"status"`
}
