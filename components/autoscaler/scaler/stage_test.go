package scaler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/autoscaler/record"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// stage is a Kubernetes API and a slurmctld of a test's making around one loop.
type stage struct {
	*testing.T
	loop   *Loop
	kube   client.Client
	slurm  *fakeSlurm
	events *events.FakeRecorder
	clock  time.Time
	log    *strings.Builder

	// refuse, if set, is the API server's answer to the creation of a pod.
	refuse func(pod *corev1.Pod, dryRun bool) error
	// broken, if set, is what every call to the API server fails with.
	broken error
	uids   int
}

const (
	node0 = "slurm-worker-cpu-0"
	node1 = "slurm-worker-cpu-1"

	off      = "IDLE+CLOUD+POWERED_DOWN"
	starting = "MIXED+CLOUD+NOT_RESPONDING+POWERING_UP"
	leaving  = "IDLE+CLOUD+POWERING_DOWN"
	idle     = "IDLE+CLOUD"
	busy     = "MIXED+CLOUD"
	asked    = "MIXED+CLOUD+DRAIN+POWER_DOWN"
)

// newStage makes a pool cpu of two nodes that are off, whose configuration slurmctld runs with, and a host.
func newStage(t *testing.T, change ...func(*v1alpha1.WorkerPool)) *stage {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	pool := &v1alpha1.WorkerPool{
		ObjectMeta: metav1.ObjectMeta{Name: "cpu", Namespace: "slurm-workers", UID: "pool", Generation: 1},
		Spec: v1alpha1.WorkerPoolSpec{
			Pool: "cpu", NodePrefix: "slurm-worker-cpu", Max: 2, ConfigHash: "c1", DrainSeconds: 90,
			Template: template("image:1"),
		},
	}
	for _, f := range change {
		f(pool)
	}
	config := &v1alpha1.SlurmConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "slurm", Namespace: "slurm"},
		Spec:       v1alpha1.SlurmConfigSpec{ClusterName: "berth"},
		Status:     v1alpha1.SlurmConfigStatus{AcceptedHash: "c1"},
	}
	s := &stage{T: t, slurm: &fakeSlurm{cluster: "berth", nodes: map[string]*slurmrest.Node{}}, events: events.NewFakeRecorder(1000), clock: time.Unix(1_800_000_000, 0), log: &strings.Builder{}}
	s.slurm.stage = s
	s.kube = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.WorkerPool{}).
		WithObjects(pool, config, host("ada")).WithInterceptorFuncs(s.apiServer()).Build()
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	s.loop = &Loop{
		Slurm: s.slurm, Kubernetes: s.kube, Live: s.kube, Events: s.events, Metrics: metrics,
		Log: slog.New(slog.NewTextHandler(s.log, nil)), Now: func() time.Time { return s.clock },
		ConfigNamespace: "slurm", ConfigName: "slurm", WorkersNamespace: "slurm-workers",
	}
	s.nodes(off, off)
	s.loop.Record = new(record.Recorder)
	t.Cleanup(s.replay)
	return s
}

// replay decides all rounds of the test again, from what was recorded of them.
func (s *stage) replay() {
	s.Helper()
	var log bytes.Buffer
	if err := s.loop.Record.WriteSince(&log, time.Time{}); err != nil {
		s.Fatal(err)
	}
	err := record.Read(&log, func(round record.Round, state record.State) error {
		if difference := record.Difference(round, state); difference != "" {
			return errors.New(difference)
		}
		return nil
	})
	if err != nil {
		s.Errorf("replayed: %v", err)
	}
}

// apiServer gives the fake client what it lacks of a real one: UIDs, and preconditions on them.
func (s *stage) apiServer() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if s.broken != nil {
				return s.broken
			}
			return c.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if s.broken != nil {
				return s.broken
			}
			return c.List(ctx, list, options...)
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			var o client.CreateOptions
			o.ApplyOptions(options)
			if pod, ok := object.(*corev1.Pod); ok {
				if s.refuse != nil {
					if err := s.refuse(pod, len(o.DryRun) > 0); err != nil {
						return err
					}
				}
			}
			if object.GetUID() == "" && len(o.DryRun) == 0 {
				s.uids++
				object.SetUID(types.UID(fmt.Sprintf("u%d", s.uids)))
			}
			return c.Create(ctx, object, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			var o client.DeleteOptions
			o.ApplyOptions(options)
			if o.Preconditions != nil && o.Preconditions.UID != nil {
				if err := s.sameUID(ctx, c, object, *o.Preconditions.UID); err != nil {
					return err
				}
			}
			return c.Delete(ctx, object, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			data, err := patch.Data(object)
			if err != nil {
				return err
			}
			if _, rest, found := strings.Cut(string(data), `"uid":"`); found && patch.Type() == types.MergePatchType {
				if err := s.sameUID(ctx, c, object, types.UID(rest[:strings.IndexByte(rest, '"')])); err != nil {
					return err
				}
			}
			return c.Patch(ctx, object, patch, options...)
		},
	}
}

func (s *stage) sameUID(ctx context.Context, c client.Client, object client.Object, uid types.UID) error {
	pod := new(corev1.Pod)
	if _, ok := object.(*corev1.Pod); !ok {
		return nil
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(object), pod); err != nil {
		return err
	}
	if pod.UID != uid {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, object.GetName(), fmt.Errorf("uid %s is not %s", pod.UID, uid))
	}
	return nil
}

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "slurmd", Image: image}}}}
}

func host(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

// nodes sets what slurmctld says of the pool's nodes: a state, and a reason after a blank.
func (s *stage) nodes(states ...string) {
	for i, text := range states {
		words, reason, _ := strings.Cut(text, " ")
		name := fmt.Sprintf("slurm-worker-cpu-%d", i)
		s.slurm.nodes[name] = &slurmrest.Node{Name: name, State: state(s.T, words), Reason: reason}
	}
}

func state(t testing.TB, text string) (state slurmrest.NodeState) {
	t.Helper()
	for word := range strings.SplitSeq(text, "+") {
		known := false
		for bit := slurmrest.Invalid; bit <= slurmrest.DynamicNorm; bit <<= 1 {
			if bit.String() == word {
				state, known = state|bit, true
			}
		}
		if !known {
			t.Fatalf("%s is no state", word)
		}
	}
	return state
}

// round runs one round, which must not fail.
func (s *stage) round() {
	s.Helper()
	if _, err := s.loop.round(context.Background()); err != nil {
		s.Fatalf("round: %v", err)
	}
}

// pod is a worker's pod as the API server has it; nil: none.
func (s *stage) pod(name string) *corev1.Pod {
	s.Helper()
	pod := new(corev1.Pod)
	err := s.kube.Get(context.Background(), client.ObjectKey{Namespace: "slurm-workers", Name: name}, pod)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		s.Fatal(err)
	}
	return pod
}

func (s *stage) pool() *v1alpha1.WorkerPool {
	s.Helper()
	pool := new(v1alpha1.WorkerPool)
	if err := s.kube.Get(context.Background(), client.ObjectKey{Namespace: "slurm-workers", Name: "cpu"}, pool); err != nil {
		s.Fatal(err)
	}
	return pool
}

func (s *stage) editPool(change func(*v1alpha1.WorkerPool)) {
	s.Helper()
	pool := s.pool()
	change(pool)
	pool.Generation++
	if err := s.kube.Update(context.Background(), pool); err != nil {
		s.Fatal(err)
	}
}

// setPod changes a pod's status, as kubelet and scheduler do.
func (s *stage) setPod(name string, change func(*corev1.Pod)) {
	s.Helper()
	pod := s.pod(name)
	change(pod)
	status := pod.Status
	if err := s.kube.Update(context.Background(), pod); err != nil {
		s.Fatal(err)
	}
	if s.pod(name) == nil { // its last finalizer was taken off
		return
	}
	pod.Status = status
	if err := s.kube.Status().Update(context.Background(), pod); err != nil {
		s.Fatal(err)
	}
}

func (s *stage) setHost(name string, change func(*corev1.Node)) {
	s.Helper()
	node := new(corev1.Node)
	if err := s.kube.Get(context.Background(), client.ObjectKey{Name: name}, node); err != nil {
		s.Fatal(err)
	}
	change(node)
	status := node.Status
	if err := s.kube.Update(context.Background(), node); err != nil {
		s.Fatal(err)
	}
	node.Status = status
	if err := s.kube.Status().Update(context.Background(), node); err != nil {
		s.Fatal(err)
	}
}

// up brings node 0 into service with a pod that was seen up, on host ada.
func (s *stage) up(states ...string) {
	s.Helper()
	wanted := make([]string, len(states))
	for i, text := range states {
		wanted[i] = starting
		if text == off {
			wanted[i] = off
		}
	}
	s.nodes(wanted...)
	s.round()
	for i := range states {
		if name := fmt.Sprintf("slurm-worker-cpu-%d", i); s.pod(name) != nil {
			s.setPod(name, func(pod *corev1.Pod) {
				pod.Spec.NodeName = "ada"
				pod.Status.Phase = corev1.PodRunning
			})
		}
	}
	s.nodes(states...)
	s.round()
	s.slurm.updates = nil
}

func (s *stage) condition(kind string) metav1.Condition {
	s.Helper()
	if c := meta.FindStatusCondition(s.pool().Status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// heard are the events until now, and forgets them.
func (s *stage) heard() string {
	var all []string
	for {
		select {
		case event := <-s.events.Events:
			all = append(all, event)
		default:
			return strings.Join(all, "\n")
		}
	}
}

// wantUpdates compares what was asked of slurmctld since the last call.
func (s *stage) wantUpdates(want ...string) {
	s.Helper()
	slices.Sort(s.slurm.updates)
	if !slices.Equal(s.slurm.updates, want) {
		s.Errorf("asked slurmctld for %q, want %q", s.slurm.updates, want)
	}
	s.slurm.updates = nil
}

func (s *stage) revisions() []appsv1.ControllerRevision {
	s.Helper()
	var list appsv1.ControllerRevisionList
	if err := s.kube.List(context.Background(), &list); err != nil {
		s.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b appsv1.ControllerRevision) int { return int(a.Revision - b.Revision) })
	return list.Items
}

// fakeSlurm answers as a slurmctld with the given nodes would.
type fakeSlurm struct {
	stage   *stage
	mu      sync.Mutex
	cluster string
	nodes   map[string]*slurmrest.Node
	// fail, if set, is the answer; skew is how far slurmctld's clock is ahead; after is called when the nodes were given.
	fail      error
	skew      time.Duration
	after     func()
	unchanged bool
	updates   []string
	refuse    error
	jobs      map[string]*slurmrest.Job
	listed    int
	hang      bool
}

func (f *fakeSlurm) Nodes(ctx context.Context, since time.Time) (*slurmrest.NodeList, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if f.after != nil {
		defer f.after()
	}
	if f.fail != nil {
		return nil, f.fail
	}
	if f.unchanged && !since.IsZero() {
		return nil, slurmrest.ErrUnchanged
	}
	list := &slurmrest.NodeList{AsOf: f.stage.clock.Add(f.skew), Cluster: f.cluster}
	for _, node := range f.nodes {
		list.Nodes = append(list.Nodes, *node)
	}
	return list, nil
}

func (f *fakeSlurm) UpdateNode(_ context.Context, name string, state slurmrest.NodeState, reason string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.updates = append(f.updates, strings.TrimSpace(fmt.Sprintf("%s %s %s", name, state, reason)))
	return f.refuse
}

func (f *fakeSlurm) JobStates(context.Context) (states []slurmrest.JobState, err error) {
	f.listed++
	for id, job := range f.jobs {
		states = append(states, slurmrest.JobState{ID: id, States: job.States})
	}
	return states, nil
}

func (f *fakeSlurm) Job(_ context.Context, id string) (*slurmrest.Job, error) { return f.jobs[id], nil }
