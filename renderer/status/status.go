// Package status reads from a cluster how far a site has come, and says it in the site's words: layers, Slurm's configuration,
// pools, and what is stuck with the command that mends it. It only reads.
package status

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/compile/flux"
	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/site"
)

// States of a part of the site.
const (
	Ready     = "Ready"
	Blocked   = "Waiting"   // for a part before it
	Working   = "Working"   // on its way, no failure seen
	Failed    = "Failed"    // stays so until somebody acts
	Suspended = "Suspended" // by a person
	Missing   = "Missing"   // not in the cluster
)

// Report is a site as the cluster has it.
type Report struct {
	Site  string `json:"site"`
	Ready bool   `json:"ready"`
	// Desired is the revision that Flux fetched last: what every layer should be at.
	Desired string `json:"desired,omitempty"`
	Source  Part   `json:"source"`
	Layers  []Part `json:"layers"`
	// Slurm is nil where the cluster has no SlurmConfig.
	Slurm *Config `json:"slurm,omitempty"`
	Pools []Pool  `json:"pools"`
	// Advisor, Away and Waiting are Slurm's own word, where it was asked; Unasked says why it was not.
	Advisor *Advisor  `json:"advisor,omitempty"`
	Away    []Away    `json:"away"`
	Waiting []Waiting `json:"waiting"`
	Unasked string    `json:"unasked,omitempty"`
	Stuck   []Stuck   `json:"stuck"`
}

// Part is the Git source or one layer.
type Part struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	Revision string `json:"revision,omitempty"` // that is in force
	// Attempted is the revision that was tried last, where that is another one.
	Attempted string `json:"attempted,omitempty"`
	// Phase tells a first attempt (First) from one that is made again and again (Retrying); empty: neither.
	Phase string `json:"phase,omitempty"`
	// Attempts that failed alike, and since when.
	Attempts int64        `json:"attempts,omitempty"`
	Since    *metav1.Time `json:"since,omitempty"`
	Reason   string       `json:"reason,omitempty"` // one line; empty when Ready
	// Objects are what the layer made in the cluster, where Read was asked for them.
	Objects []Owned `json:"objects,omitempty"`
}

// Owned is an object of the site, with those that its controller made.
type Owned struct {
	Object string   `json:"object"` // "WorkerPool slurm-workers/cpu"
	Made   []string `json:"made,omitempty"`
}

// Phases of a part that is not Ready.
const (
	First    = "first attempt" // of this revision: it may simply take its time
	Retrying = "retrying"      // it failed before, and Flux tries the same again
)

// Config is Slurm's configuration: what the guard said of the newest.
type Config struct {
	State        string `json:"state"`
	AcceptedHash string `json:"acceptedHash,omitempty"`
	Message      string `json:"message,omitempty"`
}

// Pool counts a pool's nodes.
type Pool struct {
	Name     string `json:"name"`
	Up       int32  `json:"up"`
	Starting int32  `json:"starting"`
	Busy     int32  `json:"busy"`
	Min      int32  `json:"min"`
	Max      int32  `json:"max"`
	State    string `json:"state"`
	Reason   string `json:"reason,omitempty"`
}

// Stuck is something that does not mend itself, and the command that does or that shows more.
type Stuck struct {
	What string `json:"what"`
	Why  string `json:"why"`
	Mend string `json:"mend"`
}

// Scheme knows every kind that Read asks for.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	var errs []error
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, kustomizev1.AddToScheme, sourcev1.AddToScheme, helmv2.AddToScheme, v1alpha1.AddToScheme,
	} {
		errs = append(errs, add(scheme))
	}
	return scheme, errors.Join(errs...)
}

// Read asks the cluster about the site. Kinds and objects that are not there yet are part of the report; an error means that
// the cluster could not be asked.
func Read(ctx context.Context, cluster client.Reader, s *site.Site) (*Report, error) {
	r := &Report{Site: s.Name, Layers: []Part{}, Pools: []Pool{}, Away: []Away{}, Waiting: []Waiting{}, Stuck: []Stuck{}}
	for _, step := range []func(context.Context, client.Reader, *site.Site) error{
		r.readSource, r.readLayers, r.readReleases, r.readConfig, r.readPools, r.readPods,
	} {
		if err := step(ctx, cluster, s); err != nil {
			return nil, err
		}
	}
	r.Ready = r.Source.State == Ready && len(r.Stuck) == 0
	for _, layer := range r.Layers {
		r.Ready = r.Ready && layer.State == Ready
	}
	if r.Slurm != nil {
		r.Ready = r.Ready && r.Slurm.State == string(v1alpha1.ConfigApplied)
	}
	return r, nil
}

// absent says whether an object, or its kind, is not in the cluster.
func absent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

func (r *Report) stuck(what, why, mend string, args ...any) {
	r.Stuck = append(r.Stuck, Stuck{What: what, Why: why, Mend: fmt.Sprintf(mend, args...)})
}

func (r *Report) readSource(ctx context.Context, cluster client.Reader, s *site.Site) error {
	r.Source = Part{Name: s.Delivery.URL, State: Missing}
	var source sourcev1.GitRepository
	err := cluster.Get(ctx, client.ObjectKey{Namespace: s.Namespaces.Flux, Name: naming.SourceName}, &source)
	if absent(err) {
		r.stuck("source", "the cluster knows nothing of this site", "kubectl apply -k %s (with Flux installed)", naming.Cluster(s.Name))
		return nil
	}
	if err != nil {
		return err
	}
	r.Source.State, r.Source.Reason = stateOf(source.Status.Conditions, source.Generation, source.Status.ObservedGeneration, source.Spec.Suspend)
	if source.Status.Artifact != nil {
		r.Source.Revision = source.Status.Artifact.Revision
		r.Desired = r.Source.Revision
	}
	switch r.Source.State {
	case Failed:
		r.stuck("source", r.Source.Reason, "check delivery.url, branch and secretRef of the site; kubectl -n %s describe gitrepository %s", s.Namespaces.Flux, naming.SourceName)
	case Suspended:
		r.stuck("source", "somebody suspended it", "flux resume source git %s -n %s", naming.SourceName, s.Namespaces.Flux)
	}
	return nil
}

func (r *Report) readLayers(ctx context.Context, cluster client.Reader, s *site.Site) error {
	var list kustomizev1.KustomizationList
	if err := cluster.List(ctx, &list, client.InNamespace(s.Namespaces.Flux)); err != nil && !absent(err) {
		return err
	}
	there := map[string]kustomizev1.Kustomization{}
	for _, k := range list.Items {
		there[k.Name] = k
	}
	for _, layer := range compile.LayerNames() {
		k, ok := there[flux.KustomizationName(layer)]
		if !ok {
			continue // A site leaves out the layers that it has no use for.
		}
		r.addLayer(s, layer, k)
	}
	if own, ok := there[naming.SourceName]; ok {
		if state, reason := stateOf(own.Status.Conditions, own.Generation, own.Status.ObservedGeneration, own.Spec.Suspend); state == Failed {
			r.stuck("entry points", reason, "berth render %s --check; then push", s.Name)
		}
	}
	return nil
}

func (r *Report) addLayer(s *site.Site, layer string, k kustomizev1.Kustomization) {
	part := Part{Name: layer, Revision: k.Status.LastAppliedRevision}
	part.State, part.Reason = stateOf(k.Status.Conditions, k.Generation, k.Status.ObservedGeneration, k.Spec.Suspend)
	if ready := meta.FindStatusCondition(k.Status.Conditions, "Ready"); ready != nil && ready.Reason == "DependencyNotReady" {
		part.State = Blocked
	}
	part.progress(k, r.Desired)
	r.Layers = append(r.Layers, part)
	what := "layer " + layer
	switch part.State {
	case Suspended:
		r.stuck(what, "somebody suspended it", "flux resume kustomization %s -n %s", k.Name, k.Namespace)
	case Failed:
		why := part.Reason
		if part.Attempts > 1 {
			why = fmt.Sprintf("%s (tried %d times since %s; nothing changes by itself)", why, part.Attempts, part.Since.UTC().Format("2006-01-02 15:04 MST"))
		}
		r.stuck(what, why, "%s", mendLayer(s, k, part.Reason))
	}
}

// progress says of a layer how far it is with the desired revision, from the history that Flux keeps: one entry for each content and
// outcome, with how often it came to that.
func (p *Part) progress(k kustomizev1.Kustomization, desired string) {
	if k.Status.LastAttemptedRevision != p.Revision {
		p.Attempted = k.Status.LastAttemptedRevision
	}
	if p.State == Ready && desired != "" && p.Revision != desired {
		p.State, p.Reason = Working, "Flux has not come to the desired revision yet"
	}
	if p.State != Working && p.State != Failed {
		return
	}
	p.Phase = First
	latest := k.Status.History.Latest()
	if latest == nil || latest.LastReconciledStatus == succeeded {
		return
	}
	if tried := latest.Metadata["revision"]; tried != "" && desired != "" && tried != desired {
		return // it failed at another revision
	}
	p.Phase, p.Attempts, p.Since = Retrying, latest.TotalReconciliations, latest.FirstReconciled.DeepCopy()
}

// succeeded is the outcome of an attempt that brought its revision in force.
const succeeded = "ReconciliationSucceeded"

// mendLayer is what to do about a layer that Flux could not bring in force.
func mendLayer(s *site.Site, k kustomizev1.Kustomization, reason string) string {
	ready := meta.FindStatusCondition(k.Status.Conditions, "Ready")
	lower := strings.ToLower(reason)
	switch {
	case strings.Contains(lower, "decrypt") || strings.Contains(lower, "sops") || strings.Contains(lower, s.Secrets.Names.AgeKey):
		return fmt.Sprintf("kubectl -n %s create secret generic %s --from-file=berth.agekey=IDENTITY_FILE (the identity that the secrets are sealed for)",
			s.Namespaces.Flux, s.Secrets.Names.AgeKey)
	case ready != nil && ready.Reason == "BuildFailed":
		return fmt.Sprintf("berth render %s --check; mend the site or the patch, render and push", s.Name)
	case ready != nil && ready.Reason == "ArtifactFailed":
		return fmt.Sprintf("push the rendered folder %s", strings.TrimPrefix(k.Spec.Path, "./"))
	}
	return fmt.Sprintf("mend the site and push; or try again: flux reconcile kustomization %s -n %s --with-source", k.Name, k.Namespace)
}

func (r *Report) readReleases(ctx context.Context, cluster client.Reader, s *site.Site) error {
	if s.Delivery.Mode != "helm" {
		return nil
	}
	var list helmv2.HelmReleaseList
	if err := cluster.List(ctx, &list, client.InNamespace(s.Namespaces.Flux)); err != nil {
		if absent(err) {
			return nil
		}
		return err
	}
	sort.Slice(list.Items, func(i, j int) bool { return list.Items[i].Name < list.Items[j].Name })
	for _, release := range list.Items {
		if release.Labels["app.kubernetes.io/managed-by"] != naming.PartOf {
			continue
		}
		state, reason := stateOf(release.Status.Conditions, release.Generation, release.Status.ObservedGeneration, release.Spec.Suspend)
		if first := firstError(release.Status.Conditions); first != "" && state != Ready {
			reason = first
		}
		if n := release.Status.Failures; n > 1 {
			reason = fmt.Sprintf("%s (%d failures)", reason, n)
		}
		if state == Failed {
			r.stuck("release "+release.Name, reason, "flux reconcile helmrelease %s -n %s --reset --force", release.Name, release.Namespace)
		}
	}
	return nil
}

// firstError is why a release came to nothing: the remediation that follows speaks of itself alone.
func firstError(conditions []metav1.Condition) string {
	for _, kind := range []string{helmv2.ReleasedCondition, helmv2.TestSuccessCondition} {
		if c := meta.FindStatusCondition(conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
			return oneLine(c.Message)
		}
	}
	return ""
}

func (r *Report) readConfig(ctx context.Context, cluster client.Reader, s *site.Site) error {
	var config v1alpha1.SlurmConfig
	err := cluster.Get(ctx, client.ObjectKey{Namespace: s.Namespaces.Slurm, Name: naming.SlurmConfigName}, &config)
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	state := config.Status.State
	if config.Status.ObservedGeneration != config.Generation || state == "" {
		state = v1alpha1.ConfigPending
	}
	r.Slurm = &Config{State: string(state), AcceptedHash: config.Status.AcceptedHash, Message: oneLine(config.Status.Message)}
	switch state {
	case v1alpha1.ConfigRefused:
		r.stuck("Slurm's configuration", "refused, the accepted one stays in force: "+r.Slurm.Message, "mend the site %s, berth render %s, push", s.Name, s.Name)
	case v1alpha1.ConfigWaitingForJobs:
		r.stuck("Slurm's configuration", "waits for jobs that it would end: "+r.Slurm.Message, "wait for them, or scancel them; git revert takes the change back")
	}
	return nil
}

func (r *Report) readPools(ctx context.Context, cluster client.Reader, s *site.Site) error {
	var list v1alpha1.WorkerPoolList
	if err := cluster.List(ctx, &list, client.InNamespace(s.Namespaces.Workers)); err != nil {
		if absent(err) {
			return nil
		}
		return err
	}
	sort.Slice(list.Items, func(i, j int) bool { return list.Items[i].Name < list.Items[j].Name })
	for _, p := range list.Items {
		pool := Pool{Name: p.Name, Min: p.Spec.Min, Max: p.Spec.Max}
		if nodes := p.Status.Nodes; nodes != nil { // nil until the autoscaler has looked once
			pool.Up, pool.Starting, pool.Busy = nodes.Up, nodes.PoweringUp, nodes.Busy
		}
		pool.State, pool.Reason = stateOf(p.Status.Conditions, p.Generation, p.Status.ObservedGeneration, false)
		if p.DeletionTimestamp != nil {
			pool.State, pool.Reason = Working, "the pool is being removed, and waits for its jobs"
		}
		r.Pools = append(r.Pools, pool)
		if pool.State == Failed {
			r.stuck("pool "+pool.Name, pool.Reason, "kubectl -n %s describe workerpool %s", p.Namespace, p.Name)
		}
	}
	return nil
}

// stateOf reads the conditions that Flux and our own controllers set alike.
func stateOf(conditions []metav1.Condition, generation, observed int64, suspended bool) (state, reason string) {
	ready := meta.FindStatusCondition(conditions, "Ready")
	stalled := meta.FindStatusCondition(conditions, "Stalled")
	switch {
	case suspended:
		return Suspended, "suspended"
	case stalled != nil && stalled.Status == metav1.ConditionTrue:
		return Failed, oneLine(stalled.Message)
	case ready == nil:
		return Working, "no word from its controller yet"
	case ready.Status == metav1.ConditionTrue && observed == generation:
		return Ready, ""
	case ready.Status == metav1.ConditionFalse && ready.Reason != "Progressing":
		return Failed, oneLine(ready.Message)
	}
	return Working, oneLine(ready.Message)
}

// longest is how much of a message fits a line of a report.
const longest = 240

// oneLine makes one line of a message, and cuts it where it goes on for too long.
func oneLine(message string) string {
	line := []rune(strings.Join(strings.Fields(message), " "))
	if len(line) > longest {
		return string(line[:longest]) + "…"
	}
	return string(line)
}
