package scaler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// The faults that users of other autoscalers met, by the number that they have in the project's list of cases, as far as
// they show without a cluster. A1 is TestNoFreshAnswerNoAction, A14 and A15 are here and in slurmrest's tests, A4, A7 and A22
// are the guard's, A9 and A23 need a cluster (lab/e2e: TestNamespaceAnew, TestNewAddresses).

// A2, and the other half of it: a person's drain stays when its pod goes, and the person is told what waits.
func TestA2ForeignDrainIsNeverLifted(t *testing.T) {
	s := newStage(t)
	s.up(idle, off)
	s.nodes("IDLE+CLOUD+DRAIN fan broken", off)
	s.round()
	if err := s.kube.Delete(context.Background(), s.pod(node0)); err != nil {
		t.Fatal(err)
	}
	s.round()
	s.nodes("DOWN+CLOUD+DRAIN+NOT_RESPONDING fan broken", off)
	s.round()
	s.wantUpdates()
	if c := s.condition(conditionPlaced); !strings.Contains(c.Message, "fan broken") {
		t.Errorf("nobody is told: %+v", c)
	}
}

// A3: a node that stays in a state that it should leave is an event and a metric, once.
func TestA3StuckNodesAreReported(t *testing.T) {
	s := newStage(t)
	s.nodes(starting, off)
	for range 20 {
		s.round()
		s.clock = s.clock.Add(time.Minute)
	}
	if heard := s.heard(); strings.Count(heard, "Overdue") != 1 || !strings.Contains(heard, node0+": powering up for more than 15m") {
		t.Errorf("events:\n%s", heard)
	}
	if got := testutil.ToFloat64(s.loop.Metrics.Overdue.WithLabelValues("cpu")); got != 1 {
		t.Errorf("the metric counts %v", got)
	}
	s.nodes(idle, off)
	s.round()
	if got := testutil.ToFloat64(s.loop.Metrics.Overdue.WithLabelValues("cpu")); got != 0 {
		t.Errorf("the metric still counts %v", got)
	}
}

// A5, A24: whoever deletes a pod, Slurm is told at once, and by whom.
func TestA5EvictionDrainsTheNode(t *testing.T) {
	for _, test := range []struct{ name, reason, message, want string }{
		{"A5: an eviction", "EvictionByEvictionAPI", "Eviction API: evicting", "EvictionByEvictionAPI"},
		{"A24: a preemption", "PreemptionByScheduler", "Preempted by pod x on node ada", "Preempted by pod x"},
		{"A5: a node that shuts down", "TerminationByKubelet", "Pod was terminated in response to imminent node shutdown.", "node shutdown"},
		{"A5: a deletion by hand", "", "", "deleted by somebody else"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(t)
			s.up(busy, off)
			s.setPod(node0, func(pod *corev1.Pod) {
				pod.Finalizers = []string{"test/kubelet"} // it takes its grace
				if test.reason != "" {
					pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
						Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: test.reason, Message: test.message,
					})
				}
			})
			if err := s.kube.Delete(context.Background(), s.pod(node0)); err != nil {
				t.Fatal(err)
			}
			s.round()
			if len(s.slurm.updates) != 1 || !strings.HasPrefix(s.slurm.updates[0], node0+" POWER_DOWN+POWER_DRAIN berth:") || !strings.Contains(s.slurm.updates[0], test.want) {
				t.Errorf("asked slurmctld for %q, want %s drained because of %q", s.slurm.updates, node0, test.want)
			}
		})
	}
}

// A6, A15: what waits in the queue is nobody's business here: Slurm has allocated nothing, so nothing starts, and no list of
// jobs is asked for.
func TestA6DemandIsAllocation(t *testing.T) {
	s := newStage(t)
	s.slurm.jobs = map[string]*slurmrest.Job{}
	for i := range 10_000 {
		id := fmt.Sprint(i)
		s.slurm.jobs[id] = &slurmrest.Job{ID: id, States: []string{"PENDING"}}
	}
	s.up(busy, off)
	for range 5 {
		s.round()
	}
	if s.pod(node1) != nil || s.pod(node0) == nil || s.slurm.listed != 0 {
		t.Errorf("%d lists of jobs; pods %v, %v", s.slurm.listed, s.pod(node0) != nil, s.pod(node1) != nil)
	}
	s.wantUpdates()
}

// A8: a pod without a place, one whose image does not come, and one that only takes its time are told apart.
func TestA8SlowPodsAreToldApart(t *testing.T) {
	waiting := func(reason, message string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "slurmd", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
			}}
		}
	}
	for _, test := range []struct {
		name, want string
		is         func(*corev1.Pod)
	}{
		{"no room", "Kubernetes has no place for its pod: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu", func(pod *corev1.Pod) {
			pod.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available: 1 Insufficient nvidia.com/gpu",
			}}
		}},
		{"the image does not come", "container slurmd waits: ImagePullBackOff", waiting("ImagePullBackOff", "Back-off pulling image")},
		{"the image is being pulled", "", waiting("ContainerCreating", "")},
		{"it starts", "", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning }},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(t)
			s.nodes(starting, off)
			s.round()
			s.setPod(node0, test.is)
			s.heard()
			s.round()
			c := s.condition(conditionPlaced)
			if test.want == "" {
				if c.Status != metav1.ConditionTrue {
					t.Errorf("%+v", c)
				}
				return
			}
			if c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, test.want) {
				t.Errorf("%+v, want %q", c, test.want)
			}
			if heard := s.heard(); !strings.Contains(heard, test.want) {
				t.Errorf("events:\n%s", heard)
			}
			if got := testutil.ToFloat64(s.loop.Metrics.Unplaced.WithLabelValues("cpu")); got != 1 {
				t.Errorf("the metric counts %v", got)
			}
		})
	}
}

// A10: a host is cordoned: its workers take no new jobs and go when they are free, no new ones are sent there, and when it
// is uncordoned its nodes are given back.
func TestA10CordonedHost(t *testing.T) {
	s := newStage(t, func(p *v1alpha1.WorkerPool) { p.Spec.Hosts = []string{"ada"} })
	s.up(busy, off)
	s.setHost("ada", func(host *corev1.Node) { host.Spec.Unschedulable = true })
	s.round()
	s.wantUpdates(node0+" POWER_DOWN+POWER_DRAIN berth: host ada is cordoned", node1+" DRAIN berth: host ada is cordoned")
	drained := "IDLE+CLOUD+DRAIN+POWERED_DOWN berth: host ada is cordoned"
	s.nodes(asked+" berth: host ada is cordoned", drained)
	s.round()
	s.wantUpdates()
	if s.pod(node0) == nil {
		t.Fatal("the pod is gone before its job")
	}
	s.nodes(leaving, drained)
	s.round()
	if s.pod(node0) != nil {
		t.Error("the pod stays on a cordoned host")
	}
	s.nodes(off, drained)
	s.round()
	s.wantUpdates(node0 + " DRAIN berth: host ada is cordoned")
	s.nodes(drained, drained)
	s.round()
	s.wantUpdates()
	if c := s.condition(conditionPlaced); !strings.Contains(c.Message, "host ada is cordoned") {
		t.Errorf("the status does not say which host: %+v", c)
	}
	s.setHost("ada", func(host *corev1.Node) { host.Spec.Unschedulable = false })
	s.round()
	s.wantUpdates(node0+" RESUME", node1+" RESUME")
}

// A10: where another host can take the pool's pods, its nodes are not kept from Slurm.
func TestA10OtherHostsTakeOver(t *testing.T) {
	for _, hosts := range [][]string{nil, {"ada", "ampere", "turing"}} {
		s := newStage(t, func(p *v1alpha1.WorkerPool) { p.Spec.Hosts = hosts })
		if err := s.kube.Create(context.Background(), host("ampere")); err != nil {
			t.Fatal(err)
		}
		s.up(idle, off)
		s.setHost("ada", func(host *corev1.Node) { host.Spec.Unschedulable = true })
		s.round()
		s.wantUpdates(node0 + " POWER_DOWN+POWER_DRAIN berth: host ada is cordoned")
	}
}

// A11, A18: the pod did not come in time. Pod and Slurm agree again, the node says what is missing, and is tried again later.
func TestA11ResumeTimeout(t *testing.T) {
	s := newStage(t)
	s.nodes(starting, off)
	s.round()
	s.setPod(node0, func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "1 Insufficient nvidia.com/gpu"}}
	})
	s.nodes("DOWN+CLOUD+POWERED_DOWN ResumeTimeout reached", off)
	s.round()
	const reason = "berth: no pod in time: Kubernetes has no place for its pod: 1 Insufficient nvidia.com/gpu"
	s.wantUpdates(node0 + " DRAIN " + reason)
	if s.pod(node0) != nil {
		t.Error("the pod stays while Slurm says powered down")
	}
	s.nodes("DOWN+CLOUD+DRAIN+POWERED_DOWN "+reason, off)
	s.slurm.nodes[node0].ReasonAt = s.clock
	s.round()
	s.wantUpdates()
	s.clock = s.clock.Add(6 * time.Minute)
	s.round()
	s.wantUpdates(node0 + " RESUME")

	// A pod that was only slow: at once.
	s = newStage(t)
	s.nodes(starting, off)
	s.round()
	s.nodes("DOWN+CLOUD+POWERED_DOWN ResumeTimeout reached", off)
	s.round()
	s.round()
	s.wantUpdates(node0 + " RESUME")
}

// A12: a node is resumed only when it is powered down: a node that is up is given no jobs by us that it can't run.
// A13: a pod is deleted only when no job runs or completes on its node.
func TestA12A13OnlyWithProof(t *testing.T) {
	for _, state := range []string{
		"DOWN+CLOUD+DRAIN berth: x", "DOWN+CLOUD+NOT_RESPONDING Not responding", "IDLE+CLOUD+DRAIN berth: x", "MIXED+CLOUD+DRAIN+POWER_DOWN berth: x",
		"MIXED+CLOUD+COMPLETING+DRAIN+POWER_DOWN berth: x", "IDLE+CLOUD+COMPLETING+POWERING_DOWN", "ALLOCATED+CLOUD+DRAIN berth: x",
		"IDLE+CLOUD+MAINTENANCE", "ERROR+CLOUD", "UNKNOWN+CLOUD",
	} {
		s := newStage(t)
		s.up(busy, off)
		s.nodes(state, off)
		s.round()
		if s.pod(node0) == nil {
			t.Errorf("%s: the pod was deleted", state)
		}
		for _, update := range s.slurm.updates {
			if strings.Contains(update, "RESUME") {
				t.Errorf("%s: %s", state, update)
			}
		}
	}
}

// A14: slurmctld hangs. A round ends, is counted, and changes nothing.
func TestA14HangingSlurm(t *testing.T) {
	s := newStage(t)
	s.up(idle, off)
	s.slurm.hang = true
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.loop.round(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the deadline's", err)
	}
	if got := testutil.ToFloat64(s.loop.Metrics.SlurmAnswers); got != 0 {
		t.Errorf("the metric says that slurmctld answers: %v", got)
	}
	s.wantUpdates()
}

// A16: as long as the old pod has not ended, its place is not taken for free and no second pod of the name is made.
func TestA16FreedAtRealExit(t *testing.T) {
	s := newStage(t)
	s.up(idle, off)
	s.setPod(node0, func(pod *corev1.Pod) { pod.Finalizers = []string{"test/kubelet"} })
	s.nodes(leaving, off)
	s.round()
	ending := s.pod(node0)
	if ending == nil || ending.DeletionTimestamp == nil {
		t.Fatal("not asked to end")
	}
	s.nodes(starting, off) // Slurm wants it again at once
	s.round()
	if now := s.pod(node0); now.UID != ending.UID {
		t.Error("two pods of one node")
	}
	s.setPod(node0, func(pod *corev1.Pod) { pod.Finalizers = nil })
	s.round()
	if now := s.pod(node0); now == nil || now.UID == ending.UID {
		t.Error("no new pod once the old one has ended")
	}
}

// A17: whatever happened, there is a next round, within bounds.
func TestA17NextRoundIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		last := time.Duration(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "last"))
		if got := next(last, rapid.Bool().Draw(t, "moving")); got < fastest || got > slowest {
			t.Fatalf("after %s comes %s", last, got)
		}
	})
}

// A19: an ended pod holds its node's name: it is deleted, by its UID, and a new one is made.
func TestA19EndedPodsGoAway(t *testing.T) {
	for _, reason := range []string{"Evicted", "OutOfcpu", "NodeLost", ""} {
		s := newStage(t)
		s.nodes(starting, off)
		s.round()
		old := s.pod(node0).UID
		s.setPod(node0, func(pod *corev1.Pod) { pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, reason })
		s.round()
		s.round()
		if pod := s.pod(node0); pod == nil || pod.UID == old {
			t.Errorf("%q: no new pod", reason)
		}
	}
	// The same on a node that was up: its jobs must requeue first.
	s := newStage(t)
	s.up(busy, off)
	s.setPod(node0, func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodFailed
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "slurmd", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}}}
	})
	s.round()
	s.wantUpdates(node0 + " DOWN berth: its pod ended: slurmd exited with 137 (OOMKilled)")
	s.nodes("DOWN+CLOUD berth: its pod ended: slurmd exited with 137 (OOMKilled)", off)
	s.round()
	s.wantUpdates(node0 + " POWER_DOWN")
	s.nodes(leaving, off)
	s.round()
	if s.pod(node0) != nil {
		t.Error("the ended pod stays")
	}
}

// A20: the kubelet is dead and slurmd may live. Nothing is deleted by force; no new job goes there; the node comes back when
// Kubernetes is told that the host is gone.
func TestA20DeadKubelet(t *testing.T) {
	s := newStage(t, func(p *v1alpha1.WorkerPool) { p.Spec.Hosts = []string{"ada"} })
	s.up(busy, off)
	s.setPod(node0, func(pod *corev1.Pod) { pod.Finalizers = []string{"test/kubelet"} })
	s.setHost("ada", func(host *corev1.Node) { host.Status.Conditions[0].Status = corev1.ConditionUnknown })
	s.round()
	s.wantUpdates(node0+" POWER_DOWN+POWER_DRAIN berth: host ada does not answer", node1+" DRAIN berth: host ada does not answer")
	drained := "IDLE+CLOUD+DRAIN+POWERED_DOWN berth: host ada does not answer"
	s.nodes(leaving, drained)
	s.round()
	s.nodes(off, drained) // SuspendTimeout has passed, and the pod is still there
	s.round()
	if pod := s.pod(node0); pod == nil || pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0 {
		t.Fatalf("the pod is %v, want it ending in its own time", pod)
	}
	s.wantUpdates(node0 + " DRAIN berth: host ada does not answer, and its last pod has not ended there")
	// The host comes back, but the pod has not ended yet: still nothing to place there that could not have the name.
	s.setHost("ada", func(host *corev1.Node) { host.Status.Conditions[0].Status = corev1.ConditionTrue })
	s.nodes("IDLE+CLOUD+DRAIN+POWERED_DOWN berth: host ada does not answer, and its last pod has not ended there", drained)
	s.round()
	s.wantUpdates(node1 + " RESUME")
	s.setPod(node0, func(pod *corev1.Pod) { pod.Finalizers = nil })
	s.nodes("IDLE+CLOUD+DRAIN+POWERED_DOWN berth: host ada does not answer, and its last pod has not ended there", off)
	s.round()
	s.wantUpdates(node0 + " RESUME")
}

// A20: the ways in which a host is no place for a worker.
func TestA20Hosts(t *testing.T) {
	for want, change := range map[string]func(*corev1.Node){
		"": func(*corev1.Node) {},
		"host ada is out of service": func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
		},
		"host ada is cordoned":     func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"host ada does not answer": func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse },
	} {
		ada := host("ada")
		change(ada)
		if got := hostProblem(map[string]*corev1.Node{"ada": ada}, "ada"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := hostProblem(nil, "ada"); got != "host ada has left the cluster" {
		t.Error(got)
	}
	if got := hostProblem(nil, ""); got != "" {
		t.Errorf("a pod without a host is on one that %s", got)
	}
}

// A21: Kubernetes refuses pods of a new template: the one before stays, and everybody is told. A refusal at the pod itself is
// told too, and tried again.
func TestA21RefusedPods(t *testing.T) {
	s := newStage(t)
	s.round()
	s.refuse = func(pod *corev1.Pod, dryRun bool) error {
		if pod.Spec.Containers[0].Image == "image:2" {
			if !dryRun {
				t.Error("made a pod of a refused template")
			}
			return refusal(`violates PodSecurity "baseline:latest": privileged`)
		}
		return nil
	}
	s.editPool(func(p *v1alpha1.WorkerPool) { p.Spec.Template = template("image:2") })
	s.nodes(starting, off)
	s.round()
	if pod := s.pod(node0); pod == nil || pod.Spec.Containers[0].Image != "image:1" {
		t.Errorf("the pod is %v, want one of the template before", pod)
	}
	if c := s.condition(v1alpha1.ConditionStalled); c.Reason != "PodRefused" || !strings.Contains(c.Message, "PodSecurity") {
		t.Errorf("Stalled is %+v", c)
	}

	// The quota is full: room may be made, so the template is accepted, and the pod is tried every round.
	s = newStage(t)
	s.refuse = func(*corev1.Pod, bool) error { return refusal("exceeded quota: workers") }
	s.nodes(starting, off)
	s.round()
	if c := s.condition(v1alpha1.ConditionStalled); !strings.Contains(c.Message, "exceeded quota") {
		t.Errorf("Stalled is %+v", c)
	}
	if heard := s.heard(); !strings.Contains(heard, "Warning PodRefused") {
		t.Errorf("events:\n%s", heard)
	}
	if got := testutil.ToFloat64(s.loop.Metrics.Refused.WithLabelValues("cpu")); got != 1 {
		t.Errorf("the metric counts %v", got)
	}
	s.refuse = nil
	s.round()
	if s.pod(node0) == nil {
		t.Error("not tried again")
	}
	if c := s.condition(v1alpha1.ConditionStalled); c.Reason != "" {
		t.Errorf("still Stalled: %+v", c)
	}
}

// O17: an image that can't be pulled. One node tries it, one that was off; no worker is given up for it, however long that
// goes on, and Slurm is told to leave the node that tries it alone in between. A good image then reaches all.
func TestO17BrokenImageCondemnsNobody(t *testing.T) {
	s := newStage(t, func(p *v1alpha1.WorkerPool) { p.Spec.Max = 4 })
	s.nodes(off, off, off, off)
	s.up(busy, idle, idle, off)
	s.editPool(func(p *v1alpha1.WorkerPool) { p.Spec.Template = template("image:broken") })
	for range 10 { // a quarter of an hour each
		s.round()
		s.wantUpdates("slurm-worker-cpu-3 POWER_UP")
		s.nodes(busy, idle, idle, starting)
		s.round()
		s.setPod("slurm-worker-cpu-3", func(pod *corev1.Pod) {
			if pod.Spec.Containers[0].Image != "image:broken" {
				t.Fatalf("the node tries %s", pod.Spec.Containers[0].Image)
			}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "slurmd", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}}}
		})
		s.round()
		s.nodes(busy, idle, idle, "DOWN+CLOUD+POWERED_DOWN ResumeTimeout reached")
		s.round()
		s.nodes(busy, idle, idle, "DOWN+CLOUD+DRAIN+POWERED_DOWN berth: no pod in time: x")
		s.slurm.nodes["slurm-worker-cpu-3"].ReasonAt = s.clock
		s.clock = s.clock.Add(15 * time.Minute)
		s.wantUpdates("slurm-worker-cpu-3 DRAIN berth: no pod in time: container slurmd waits: ErrImagePull not found")
		s.round()
		s.wantUpdates("slurm-worker-cpu-3 RESUME")
		s.nodes(busy, idle, idle, off)
	}
	s.editPool(func(p *v1alpha1.WorkerPool) { p.Spec.Template = template("image:good") })
	s.round()
	s.wantUpdates("slurm-worker-cpu-3 POWER_UP")
	s.nodes(busy, idle, idle, starting)
	s.round()
	s.nodes(busy, idle, idle, idle)
	s.round()
	s.wantUpdates()
	s.round()
	s.wantUpdates("slurm-worker-cpu-1 POWER_DOWN+POWER_DRAIN berth: the pool's pod template is a new one")
}

// Busy workers are left alone as long as the site says, and are never ended.
func TestRenewalLeavesBusyWorkersTheirTime(t *testing.T) {
	s := newStage(t, func(p *v1alpha1.WorkerPool) { p.Spec.Renew = &v1alpha1.Renew{Percent: 100, BusyAfterSeconds: 3600} })
	s.up(busy, idle)
	s.editPool(func(p *v1alpha1.WorkerPool) { p.Spec.Template = template("image:2") })
	s.round()
	s.wantUpdates(node1 + " POWER_DOWN+POWER_DRAIN berth: the pool's pod template is a new one")
	s.nodes(busy, leaving)
	s.round()
	s.nodes(busy, off)
	s.round()
	s.wantUpdates(node1 + " POWER_UP") // to try it
	s.nodes(busy, starting)
	s.round()
	s.nodes(busy, idle)
	s.round()
	s.round()
	s.wantUpdates()
	s.clock = s.clock.Add(time.Hour)
	s.round()
	s.wantUpdates(node0 + " POWER_DOWN+POWER_DRAIN berth: the pool's pod template is a new one")
	if s.pod(node0) == nil {
		t.Error("a busy worker's pod is gone")
	}
}

// Headroom: two free shares beside the busy ones; when a card fills up the next one is started, and it stays for the damping
// time after it is needed no more.
func TestHeadroomInShares(t *testing.T) {
	s := newStage(t, func(p *v1alpha1.WorkerPool) {
		p.Spec.SharePercent, p.Spec.Headroom, p.Spec.DampSeconds = 25, &v1alpha1.Headroom{Shares: 2}, 300
	})
	gres := func(used ...string) {
		for i, text := range used {
			node := s.slurm.nodes[fmt.Sprintf("slurm-worker-cpu-%d", i)]
			node.Gres, node.GresUsed = "gpu:a:1,mps:a:100", text
		}
	}
	none, half, most := "gpu:a:0,mps:a:0", "gpu:a:0,mps:a:50(50/100)", "gpu:a:0,mps:a:75(75/100)"
	gres(none, none)
	s.round()
	s.wantUpdates(node0 + " POWER_UP")
	s.up(idle, off)
	gres(none, none)
	s.nodes(busy, off)
	gres(half, none)
	s.round()
	s.wantUpdates()
	gres(most, none)
	s.round()
	s.wantUpdates(node1 + " POWER_UP")
	if floor := s.pool().Status.Floor; floor.Nodes != 2 || !strings.Contains(floor.Because, "headroom") {
		t.Errorf("floor %+v", floor)
	}
	s.nodes(busy, "IDLE+CLOUD+NOT_RESPONDING+POWERED_DOWN+POWERING_UP+POWER_UP")
	gres(half, none)
	s.round()
	if floor := s.pool().Status.Floor; floor.Nodes != 2 || floor.LessSince == nil {
		t.Errorf("floor %+v, want 2 for a while", floor)
	}
	s.clock = s.clock.Add(301 * time.Second)
	s.nodes(busy, idle)
	gres(half, none)
	s.round()
	if floor := s.pool().Status.Floor; floor.Nodes != 1 {
		t.Errorf("floor %+v, want 1 in the end", floor)
	}
	if used := testutil.ToFloat64(s.loop.Metrics.Shares.WithLabelValues("cpu", "used")); used != 2 {
		t.Errorf("%v shares are used, want 2", used)
	}
	if free := testutil.ToFloat64(s.loop.Metrics.Shares.WithLabelValues("cpu", "free")); free != 6 {
		t.Errorf("%v shares are free, want 6", free)
	}
}

// A reservation with the flag MAINT: nodes in it are not woken, by no floor and no new template; the floor is kept beside them, and
// the pool is Ready although a floor that the window leaves no room for is not reached. A drain of the administrator's stays.
func TestMaintenanceWindow(t *testing.T) {
	s := newStage(t, func(p *v1alpha1.WorkerPool) { p.Spec.Min = 2 })
	const window = "+MAINTENANCE+RESERVED"
	s.nodes(off+window, "IDLE+CLOUD+DRAIN+POWERED_DOWN"+window)
	s.slurm.nodes[node1].Reason = "new fans"
	s.round()
	s.wantUpdates()
	if floor := s.pool().Status.Floor; floor.Nodes != 0 {
		t.Errorf("floor %+v with every node in the window", floor)
	}
	if c := s.condition(v1alpha1.ConditionReady); c.Status != metav1.ConditionTrue {
		t.Errorf("%+v", c)
	}
	s.nodes(off+window, off)
	s.round()
	s.wantUpdates(node1 + " POWER_UP")
	// One that is up when its window begins does not count, and slurmctld is told to keep another beside it.
	s.up(off, idle)
	s.nodes(off, idle+window)
	s.round()
	s.wantUpdates(node0 + " POWER_UP")
	if floor := s.pool().Status.Floor; floor.Nodes != 2 || floor.Because != "min, beside 1 in a maintenance window" {
		t.Errorf("floor %+v", floor)
	}
}

// Nodes out of service are counted by who took them out.
func TestDrainedNodesAreCounted(t *testing.T) {
	s := newStage(t)
	const drained = "IDLE+CLOUD+DRAIN "
	s.up("IDLE+CLOUD", "IDLE+CLOUD")
	for _, c := range []struct {
		reason string
		by     string
	}{
		{"mps: card GPU-1 takes no clients for 1m0s: the server is FAULT", "mps"}, {"guard: a change of the configuration waits", "guard"},
		{"berth: host box is cordoned", "berth"}, {"Duplicate jobid", "slurm"}, {"fan 2 is broken", "other"},
	} {
		s.nodes(drained+c.reason, "IDLE+CLOUD")
		s.round()
		for _, by := range []string{"berth", "guard", "mps", "slurm", "other"} {
			want := 0.0
			if by == c.by {
				want = 1
			}
			if got := testutil.ToFloat64(s.loop.Metrics.Drained.WithLabelValues("cpu", by)); got != want {
				t.Errorf("drained for %q: %v by %s, want %v", c.reason, got, by, want)
			}
		}
	}
}

// A node whose name or state words nobody understands is left alone, and said.
func TestUnknownWordsAreLeftAlone(t *testing.T) {
	s := newStage(t)
	s.up(busy, off)
	s.nodes(leaving, off)
	s.slurm.nodes[node0].UnknownWords = []string{"HIBERNATED"}
	s.slurm.nodes["login[0"] = &slurmrest.Node{Name: "login[0", State: slurmrest.Idle | slurmrest.PoweringUp}
	s.round()
	if s.pod(node0) == nil {
		t.Error("acted on a state that it does not know")
	}
	s.wantUpdates()
	if c := s.condition(conditionPlaced); !strings.Contains(c.Message, "HIBERNATED") {
		t.Errorf("%+v", c)
	}
}
