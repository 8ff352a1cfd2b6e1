// Package maintenance takes a host out of service and gives it back. No job ends by it, except those that Slurm may requeue, and
// only when that is asked for.
package maintenance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/site"
)

// Annotation is on a host that Drain cordoned: since when, in RFC 3339. A host that a person cordoned otherwise has none.
const Annotation = "berth-hpc.github.io/drained"

// Ask runs a Slurm client and gives what it printed.
type Ask func(ctx context.Context, argv ...string) (string, error)

// Job is one that runs on the host.
type Job struct {
	ID    string `json:"id"`
	User  string `json:"user"`
	Nodes string `json:"nodes"` // all of its nodes, as Slurm writes a list
	Left  string `json:"left"`  // of its time limit, as Slurm writes a time
	// Requeues: Slurm may requeue it (a batch job without --no-requeue).
	Requeues bool `json:"requeues"`
}

// Host is what runs on one.
type Host struct {
	Name    string   `json:"host"`
	Workers []string `json:"workers"` // Slurm's nodes whose pods are on it
	Jobs    []Job    `json:"jobs"`
	Others  []string `json:"others"` // the platform's other pods on it, as namespace/name
}

// Find is the Kubernetes node of that name, or with that hostname.
func Find(ctx context.Context, cluster client.Reader, name string) (*corev1.Node, error) {
	var node corev1.Node
	err := cluster.Get(ctx, client.ObjectKey{Name: name}, &node)
	if err == nil {
		return &node, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, err
	}
	var all corev1.NodeList
	if err := cluster.List(ctx, &all); err != nil {
		return nil, err
	}
	var known []string
	for i := range all.Items {
		if all.Items[i].Labels[corev1.LabelHostname] == name {
			return &all.Items[i], nil
		}
		known = append(known, all.Items[i].Name)
	}
	slices.Sort(known)
	return nil, fmt.Errorf("the cluster has no host %s; it has %s", name, strings.Join(known, ", "))
}

// Cordon keeps new pods from the host, which makes the autoscaler power its workers down as they become free. It tells whether the
// host was cordoned before, by whomever.
func Cordon(ctx context.Context, cluster client.Client, node *corev1.Node, now time.Time) (before bool, err error) {
	if node.Spec.Unschedulable {
		return true, nil
	}
	was := client.MergeFrom(node.DeepCopy())
	node.Spec.Unschedulable = true
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[Annotation] = now.UTC().Format(time.RFC3339)
	return false, cluster.Patch(ctx, node, was)
}

// Uncordon undoes Cordon, and nobody else's cordon.
func Uncordon(ctx context.Context, cluster client.Client, node *corev1.Node) (since string, err error) {
	since, ours := node.Annotations[Annotation]
	switch {
	case !node.Spec.Unschedulable && !ours:
		return "", nil
	case !ours:
		return "", fmt.Errorf("host %s was cordoned by somebody else; if that is over: kubectl uncordon %s", node.Name, node.Name)
	}
	was := client.MergeFrom(node.DeepCopy())
	node.Spec.Unschedulable = false
	delete(node.Annotations, Annotation)
	return since, cluster.Patch(ctx, node, was)
}

// Look says what runs on the host now.
func Look(ctx context.Context, cluster client.Reader, ask Ask, s *site.Site, host string) (*Host, error) {
	h := &Host{Name: host, Workers: []string{}, Jobs: []Job{}, Others: []string{}}
	for _, namespace := range []string{s.Namespaces.Slurm, s.Namespaces.Workers} {
		var pods corev1.PodList
		if err := cluster.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/part-of": naming.PartOf}); err != nil {
			return nil, err
		}
		for _, pod := range pods.Items {
			switch {
			case pod.Spec.NodeName != host || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
			case pod.Labels["app.kubernetes.io/component"] == "worker":
				h.Workers = append(h.Workers, pod.Name)
			default:
				h.Others = append(h.Others, namespace+"/"+pod.Name)
			}
		}
	}
	slices.Sort(h.Workers)
	slices.Sort(h.Others)
	if len(h.Workers) == 0 {
		return h, nil
	}
	out, err := ask(ctx, "squeue", "--all", "--noheader", "--states=RUNNING,SUSPENDED,COMPLETING", "--nodelist="+strings.Join(h.Workers, ","),
		"--Format=jobid:|,username:|,nodelist:|,timeleft:|,requeue:|,batchflag:|")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) < 6 {
			return nil, fmt.Errorf("squeue's line %q has %d fields, not 6", strings.TrimSpace(line), len(f))
		}
		h.Jobs = append(h.Jobs, Job{ID: f[0], User: f[1], Nodes: f[2], Left: f[3], Requeues: f[4] == "1" && f[5] == "1"})
	}
	return h, nil
}

// Signal is what a job gets before it is requeued, as sbatch's --signal says it: [B:]SIGNAL[@SECONDS].
type Signal struct {
	Name  string
	Batch bool // to the batch script, not to the steps
	Grace time.Duration
}

// ParseSignal reads sbatch's form; without a time it is Slurm's own 60 s.
func ParseSignal(text string) (Signal, error) {
	wrong := fmt.Errorf("--signal %q: write [B:]SIGNAL[@SECONDS] as for sbatch, for example B:USR1@120", text)
	s := Signal{Grace: time.Minute}
	rest, batch := strings.CutPrefix(text, "B:")
	s.Batch = batch
	name, seconds, timed := strings.Cut(rest, "@")
	if timed {
		grace, err := time.ParseDuration(seconds + "s")
		if err != nil || grace < 0 || grace > 65535*time.Second { // sbatch's own bound
			return s, wrong
		}
		s.Grace = grace
	}
	s.Name = strings.TrimPrefix(strings.ToUpper(name), "SIG")
	if s.Name == "" || strings.Trim(s.Name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") != "" {
		return s, wrong
	}
	return s, nil
}

// Tell sends the signal to a job.
func (s Signal) Tell(ctx context.Context, ask Ask, job Job) error {
	argv := []string{"scancel", "--signal=" + s.Name}
	if s.Batch {
		argv = append(argv, "--batch")
	}
	_, err := ask(ctx, append(argv, job.ID)...)
	return err
}

// Requeue ends a job that Slurm may requeue, with the TERM and the KillWait that every job has, and puts it into the queue again.
func Requeue(ctx context.Context, ask Ask, job Job) error {
	_, err := ask(ctx, "scontrol", "requeue", job.ID)
	return err
}
