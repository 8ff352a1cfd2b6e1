package scaler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/guard/slurmtest"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// From a gang's allocation to its end: both pods at once, as Slurm wants them, and away when Slurm says so.
func TestPodsFollowSlurm(t *testing.T) {
	s := newStage(t, func(p *v1alpha1.WorkerPool) { p.Spec.Hosts = []string{"ada", "ada"} })
	s.round()
	if s.pod(node0) != nil {
		t.Fatal("a pod that nobody asked for")
	}
	s.nodes(starting, starting)
	s.round()
	pod := s.pod(node0)
	if pod == nil || s.pod(node1) == nil {
		t.Fatal("a gang's pods were not made in one round")
	}
	wantLabels := map[string]string{v1alpha1.LabelPool: "cpu", v1alpha1.LabelNode: node0, v1alpha1.LabelBusy: "true"}
	for label, want := range wantLabels {
		if pod.Labels[label] != want {
			t.Errorf("label %s is %q, want %q", label, pod.Labels[label], want)
		}
	}
	if pod.Spec.Hostname != node0 || pod.Spec.Subdomain != "slurm-workers" || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("the pod is %q in %q, restarted %s", pod.Spec.Hostname, pod.Spec.Subdomain, pod.Spec.RestartPolicy)
	}
	if grace := pod.Spec.TerminationGracePeriodSeconds; grace == nil || *grace != 90 {
		t.Errorf("grace %v, want 90 s", grace)
	}
	if owner := metav1.GetControllerOf(pod); owner == nil || owner.Kind != "WorkerPool" || owner.UID != "pool" {
		t.Errorf("owner %+v, want the pool: kubectl drain asks for one", owner)
	}
	if terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms; len(terms) != 1 || terms[0].MatchExpressions[0].Values[0] != "ada" {
		t.Errorf("pinned by %v, want its host", terms)
	}
	if heard := s.heard(); strings.Count(heard, "CreatePod") != 2 || !strings.Contains(heard, node0+": Slurm powers it up") {
		t.Errorf("events:\n%s", heard)
	}
	if !strings.Contains(s.log.String(), `msg=CreatePod node=slurm-worker-cpu-0 pool=cpu why="Slurm powers it up"`) {
		t.Errorf("log:\n%s", s.log)
	}
	if got := testutil.ToFloat64(s.loop.Metrics.Actions.WithLabelValues("cpu", "CreatePod")); got != 2 {
		t.Errorf("the metric counts %v pods made, want 2", got)
	}

	s.nodes(busy, idle)
	s.round()
	s.round() // the busy label follows one round after, where it changed
	if s.pod(node0).Annotations[v1alpha1.AnnotationSeenUp] == "" || s.pod(node1).Labels[v1alpha1.LabelBusy] != "" {
		t.Errorf("not marked: %v, %v", s.pod(node0).Annotations, s.pod(node1).Labels)
	}
	counts := s.pool().Status.Nodes
	if counts.Up != 2 || counts.Busy != 1 || counts.Idle != 1 {
		t.Errorf("the status counts %+v", counts)
	}
	if ready := s.condition(v1alpha1.ConditionReady); ready.Status != metav1.ConditionTrue {
		t.Errorf("Ready is %+v", ready)
	}

	s.nodes(leaving, leaving)
	s.round()
	if s.pod(node0) != nil || s.pod(node1) != nil {
		t.Error("pods of nodes that power down stay")
	}
	s.wantUpdates()
}

// Slurm wants a node again whose pod is from before: that one goes, and a new one comes.
func TestPodFromBeforeAPowerUpIsReplaced(t *testing.T) {
	s := newStage(t)
	s.up(busy, off)
	old := s.pod(node0).UID
	s.nodes(starting, off)
	s.round()
	s.round()
	if pod := s.pod(node0); pod == nil || pod.UID == old {
		t.Errorf("the pod is %v, want a new one", pod)
	}
}

// Between the look and the deed another pod has taken the name: it is not touched.
func TestActsOnExactlyThePodThatItSaw(t *testing.T) {
	s := newStage(t)
	s.up(idle, off)
	s.nodes(leaving, off)
	s.slurm.after = func() { // while slurmctld answers
		s.slurm.after = nil
		pod := s.pod(node0)
		if err := s.kube.Delete(context.Background(), pod); err != nil {
			t.Fatal(err)
		}
		again := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, Labels: pod.Labels}}
		if err := s.kube.Create(context.Background(), again); err != nil {
			t.Fatal(err)
		}
	}
	s.round()
	if s.pod(node0) == nil {
		t.Error("deleted a pod that it never saw")
	}
}

// What a round may not rest on: no answer, a lie, an old one, another cluster's, a clock that is wrong. Nothing changes,
// the pool says so, and the next good answer goes on.
func TestNoFreshAnswerNoAction(t *testing.T) {
	for _, test := range []struct {
		name, want string
		spoil      func(*stage)
	}{
		{"slurmrestd refuses the connection", "connection refused", func(s *stage) { s.slurm.fail = errors.New("connection refused") }},
		{"no nodes where there were some", "no nodes", func(s *stage) { s.slurm.fail = slurmrest.ErrNoNodes }},
		{"an expired token", "HTTP 401", func(s *stage) {
			s.slurm.fail = &slurmrest.APIError{Status: 401, Messages: []string{"Authentication failure"}}
		}},
		{"another cluster", `answers for cluster "other"`, func(s *stage) { s.slurm.cluster = "other" }},
		{"slurmctld's clock is ahead", "off this machine's clock", func(s *stage) { s.slurm.skew = 3 * time.Minute }},
		{"an answer of yesterday", "off this machine's clock", func(s *stage) { s.slurm.skew = -24 * time.Hour }},
		{"slurmctld gave the states long ago", "became old", func(s *stage) { s.slurm.after = func() { s.clock = s.clock.Add(10 * time.Second) } }},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(t)
			s.up(idle, off)
			pod := s.pod(node0)
			s.nodes(leaving, starting) // there would be much to do
			test.spoil(s)
			var err error
			for range 3 {
				_, err = s.loop.round(context.Background())
				s.clock = s.clock.Add(4 * time.Second)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if now := s.pod(node0); now == nil || now.UID != pod.UID || s.pod(node1) != nil {
				t.Error("pods changed without a fresh answer")
			}
			s.wantUpdates()
			if ready := s.condition(v1alpha1.ConditionReady); test.name != "slurmctld gave the states long ago" &&
				(ready.Status != metav1.ConditionUnknown || !strings.Contains(ready.Message, test.want)) {
				t.Errorf("Ready is %+v, want Unknown and why", ready)
			}
			s.slurm.fail, s.slurm.cluster, s.slurm.skew, s.slurm.after = nil, "berth", 0, nil
			s.round()
			if s.pod(node0) != nil || s.pod(node1) == nil {
				t.Error("does not go on once slurmctld answers")
			}
		})
	}
}

// The API server is away: nothing is asked of slurmctld either.
func TestNoKubernetesNoAction(t *testing.T) {
	s := newStage(t)
	s.up(busy, off)
	s.broken = errors.New("connection refused")
	s.nodes("DOWN+CLOUD Not responding", off)
	if _, err := s.loop.round(context.Background()); err == nil {
		t.Error("no error")
	}
	s.wantUpdates()
}

// The cache does not have the pod, the API server does: DOWN would kill its jobs.
func TestDownNeedsTheAPIServersWord(t *testing.T) {
	s := newStage(t)
	s.up(busy, off)
	behind := newStage(t) // a cache that has not seen the pod
	behind.slurm = s.slurm
	behind.loop.Slurm, behind.loop.Live = s.slurm, s.kube
	behind.round()
	s.wantUpdates()
	if err := s.kube.Delete(context.Background(), s.pod(node0)); err != nil {
		t.Fatal(err)
	}
	behind.round()
	s.wantUpdates(node0 + " DOWN berth: its pod is gone")
}

// An unchanged answer is the last one, and costs no decoding.
func TestUnchangedAnswer(t *testing.T) {
	s := newStage(t)
	s.up(idle, off)
	s.slurm.unchanged = true
	s.clock = s.clock.Add(time.Hour)
	s.round()
	if s.pool().Status.Nodes.Up != 1 {
		t.Errorf("counts %+v", s.pool().Status.Nodes)
	}
}

// A pod is made from the template of the configuration that slurmctld runs with, also after a restart.
func TestTemplateOfTheAcceptedConfiguration(t *testing.T) {
	s := newStage(t)
	s.round()
	s.editPool(func(p *v1alpha1.WorkerPool) { p.Spec.Template, p.Spec.ConfigHash = template("image:2"), "c2" })
	s.nodes(starting, off)
	s.loop.last = nil // another process
	s.round()
	if image := s.pod(node0).Spec.Containers[0].Image; image != "image:1" {
		t.Errorf("made from %s before its configuration was accepted", image)
	}
	if c := s.condition(v1alpha1.ConditionReconciling); !strings.Contains(c.Message, "not applied yet") {
		t.Errorf("Reconciling is %+v", c)
	}
	config := new(v1alpha1.SlurmConfig)
	key := client.ObjectKey{Namespace: "slurm", Name: "slurm"}
	if err := s.kube.Get(context.Background(), key, config); err != nil {
		t.Fatal(err)
	}
	config.Status.AcceptedHash = "c2"
	if err := s.kube.Update(context.Background(), config); err != nil {
		t.Fatal(err)
	}
	s.nodes(starting, starting)
	s.round()
	if image := s.pod(node1).Spec.Containers[0].Image; image != "image:2" {
		t.Errorf("made from %s after its configuration was accepted", image)
	}
	if revisions := s.revisions(); len(revisions) != 2 || revisions[1].Annotations[v1alpha1.AnnotationAcceptedAt] == "" {
		t.Errorf("%d revisions", len(revisions))
	}
	// Of many templates a few are kept; going back to one makes it the newest.
	for i := range 5 {
		s.editPool(func(p *v1alpha1.WorkerPool) { p.Spec.Template = template(fmt.Sprintf("image:%d", 3+i)) })
		s.round()
	}
	s.editPool(func(p *v1alpha1.WorkerPool) { p.Spec.Template = template("image:6") })
	s.round()
	revisions := s.revisions()
	if len(revisions) != keptRevisions || !strings.Contains(string(revisions[len(revisions)-1].Data.Raw), "image:6") {
		t.Errorf("%d revisions, the newest is %s", len(revisions), revisions[len(revisions)-1].Data.Raw)
	}
}

// The first pool of a site: its configuration is not accepted yet, so there is no template, and no pod.
func TestNoTemplateYet(t *testing.T) {
	s := newStage(t, func(p *v1alpha1.WorkerPool) { p.Spec.ConfigHash = "c2" })
	s.nodes(starting, off)
	s.round()
	if s.pod(node0) != nil {
		t.Error("a pod of a template that belongs to another configuration")
	}
}

// The pool is deleted: its nodes take no new jobs, running ones end, and only then it goes.
func TestRemovalWaitsForJobs(t *testing.T) {
	s := newStage(t)
	s.up(busy, off)
	if len(s.pool().Finalizers) != 1 {
		t.Fatal("no finalizer")
	}
	if err := s.kube.Delete(context.Background(), s.pool()); err != nil {
		t.Fatal(err)
	}
	s.slurm.jobs = map[string]*slurmrest.Job{
		"42": {ID: "42", User: "student", Name: "train", States: []string{"RUNNING"}, Nodes: []string{node0}},
		"43": {ID: "43", User: "student", Name: "wait", States: []string{"PENDING"}},
	}
	s.round()
	s.wantUpdates(node0+" POWER_DOWN+POWER_DRAIN berth: the pool is removed", node1+" DRAIN berth: the pool is removed")
	if c := s.condition(v1alpha1.ConditionReconciling); !strings.Contains(c.Message, "job 42 (student, train) on "+node0) || !strings.Contains(c.Message, "scancel") {
		t.Errorf("Reconciling is %+v, want the job and what forces it", c)
	}
	s.nodes(asked, "IDLE+CLOUD+DRAIN+POWERED_DOWN berth: the pool is removed")
	s.round()
	s.wantUpdates()
	if s.pod(node0) == nil {
		t.Fatal("the pod is gone before its job")
	}
	s.nodes(leaving, off)
	s.round() // the pod goes
	s.round() // and then the pool
	err := s.kube.Get(context.Background(), client.ObjectKey{Namespace: "slurm-workers", Name: "cpu"}, new(v1alpha1.WorkerPool))
	if !apierrors.IsNotFound(err) {
		t.Errorf("the pool is still there: %v", err)
	}
}

// Slurm is gone with the pool (an uninstall): without pods nothing could lose a job, so the pool goes.
func TestRemovalWithoutSlurm(t *testing.T) {
	s := newStage(t)
	s.round()
	if err := s.kube.Delete(context.Background(), s.pool()); err != nil {
		t.Fatal(err)
	}
	s.slurm.fail = errors.New("connection refused")
	for range 3 {
		_, _ = s.loop.round(context.Background())
		s.clock = s.clock.Add(4 * time.Second)
	}
	err := s.kube.Get(context.Background(), client.ObjectKey{Namespace: "slurm-workers", Name: "cpu"}, new(v1alpha1.WorkerPool))
	if !apierrors.IsNotFound(err) {
		t.Errorf("the pool is still there: %v", err)
	}
}

// Slurm is gone and pods are there: only a person can say that their jobs may end, and is told how.
func TestRemovalWithoutSlurmKeepsPods(t *testing.T) {
	s := newStage(t)
	s.up(busy, off)
	if err := s.kube.Delete(context.Background(), s.pool()); err != nil {
		t.Fatal(err)
	}
	s.slurm.fail = errors.New("connection refused")
	for range 3 {
		_, _ = s.loop.round(context.Background())
		s.clock = s.clock.Add(4 * time.Second)
	}
	if s.pod(node0) == nil {
		t.Fatal("the pod is gone, and its job with it")
	}
	said := s.condition(v1alpha1.ConditionReady).Message
	for _, part := range []string{"1 pods", "connection refused", "kubectl patch workerpool cpu --namespace slurm-workers", `"finalizers":null`} {
		if !strings.Contains(said, part) {
			t.Errorf("Ready says %q, want %q in it", said, part)
		}
	}
}

// Pods of two pools whose names begin alike are kept apart, and foreign pods are nobody's.
func TestForeignPodsAreLeftAlone(t *testing.T) {
	s := newStage(t)
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: node0, Namespace: "slurm-workers"}}
	if err := s.kube.Create(context.Background(), foreign); err != nil {
		t.Fatal(err)
	}
	s.nodes(starting, off)
	s.round()
	if placed := s.condition(conditionPlaced); !strings.Contains(placed.Message, "a pod of that name exists that Berth did not make; delete it") {
		t.Errorf("%+v", placed)
	}
	s.nodes(off, off)
	s.round()
	if s.pod(node0) == nil {
		t.Error("deleted a pod that is not its own")
	}
}

// Rounds come every second while something moves, and every fifteen when nothing does.
func TestPace(t *testing.T) {
	var paces []string
	interval := fastest
	for _, moving := range []bool{true, false, false, false, false, false, true, false} {
		interval = next(interval, moving)
		paces = append(paces, interval.String())
	}
	if got := strings.Join(paces, " "); got != "1s 2s 4s 8s 15s 15s 1s 2s" {
		t.Error(got)
	}
	s := newStage(t)
	for _, test := range []struct {
		state  string
		moving bool
	}{{off, false}, {starting, true}, {busy, true}, {busy, false}, {asked, true}, {leaving, true}} {
		s.nodes(test.state, off)
		if moving, err := s.loop.round(context.Background()); err != nil || moving != test.moving {
			t.Errorf("%s: moving %v, %v, want %v", test.state, moving, err, test.moving)
		}
	}
}

func TestHints(t *testing.T) {
	var hints Hints
	server := httptest.NewServer(&hints)
	defer server.Close()
	for _, body := range []string{"resume slurm-worker-cpu-[0-1]", "", "\x00\x01", strings.Repeat("x", 100)} {
		response, err := http.Post(server.URL, "text/plain", strings.NewReader(body))
		if err != nil || response.StatusCode != http.StatusAccepted {
			t.Fatalf("%q: %v, %v", body, response, err)
		}
		_ = response.Body.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if began := time.Now(); !hints.wait(ctx, time.Hour) || time.Since(began) > 4*time.Second {
		t.Error("a hint wakes nobody")
	}
	if hints.wait(canceled(), time.Hour) {
		t.Error("waits beyond its end")
	}
	response, err := http.Get(server.URL)
	if err != nil || response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %v, %v", response, err)
	}
	response, err = http.Post(server.URL, "text/plain", strings.NewReader(strings.Repeat("x", maxHint+1)))
	if err != nil || response.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a megabyte: %v, %v", response, err)
	}
}

// Slurm's resume file tells for which jobs nodes are powered up. People read it in the event and in the log; a node that was up
// since is powered up for something else.
func TestPodSaysForWhichJob(t *testing.T) {
	s := newStage(t)
	poke := func(body string) {
		answer := httptest.NewRecorder()
		s.loop.Hints().ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/poke", strings.NewReader(body)))
		if answer.Code != http.StatusAccepted {
			t.Fatalf("%q: %d %s", body, answer.Code, answer.Body)
		}
	}
	poke("resume x\n{\"jobs\":[{\"job_id\":7,\"nodes_resume\":\"slurm-worker-cpu-[0\"}]}") // no list of nodes
	poke("resume slurm-worker-cpu-[0-1]\n" + `{"all_nodes_resume":"slurm-worker-cpu-[0-1]","jobs":[` +
		`{"job_id":42,"nodes_alloc":"slurm-worker-cpu-[0-1]","nodes_resume":"slurm-worker-cpu-[0-1]","oversubscribe":"OK","partition":"cpu","reservation":null},` +
		`{"job_id":43,"nodes_resume":"slurm-worker-cpu-1"}]}`)
	s.nodes(starting, starting)
	s.slurm.nodes[node0].GresUsed = "gpu:a:0(IDX:N/A),mps:a:25(25/100)"
	s.round()
	heard := s.heard()
	for _, want := range []string{node0 + ": Slurm powers it up for job 42, gres/mps:25", node1 + ": Slurm powers it up for jobs 42, 43"} {
		if !strings.Contains(heard, want) {
			t.Errorf("%q is not in the events:\n%s", want, heard)
		}
	}
	s.nodes(busy, leaving)
	s.round() // deletes the pod of node 1, which is gone at once here
	s.nodes(busy, starting)
	s.round()
	if heard := s.heard(); !strings.Contains(heard, node1+": Slurm powers it up") || strings.Contains(heard, "job") {
		t.Errorf("powered up again:\n%s", heard)
	}
}

// The resume file as a real slurmctld writes it.
func TestRealResumeFile(t *testing.T) {
	s := slurmtest.Start(t).Configure(`SuspendProgram=/bin/true
ResumeProgram=/resume
SuspendTime=600
ResumeRate=0
NodeName=slurm-worker-cpu-[0-1] CPUs=2 RealMemory=1000 State=CLOUD
PartitionName=cpu Nodes=ALL Default=YES State=UP
`, nil)
	s.Run("sh", "-ec", "printf '#!/bin/sh\n{ echo resume $1; cat $SLURM_RESUME_FILE; } > "+s.Dir+"/told.new; mv "+s.Dir+"/told.new "+s.Dir+"/told\n' > /resume; chmod 755 /resume")
	s.Slurmctld()
	job := s.Client("sbatch", "--parsable", "--nodes=2", "--chdir=/tmp", "--output=/dev/null", "--wrap", "true")
	var told []byte
	slurmtest.Eventually(t, time.Minute, "slurmctld resumes the nodes", func() (bool, string) {
		var err error
		told, err = os.ReadFile(s.Dir + "/told")
		return err == nil, fmt.Sprint(err, s.Log("slurmctld.log"))
	})
	var hints Hints
	hints.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/poke", bytes.NewReader(told)))
	for _, node := range []string{node0, node1} {
		if got := hints.jobs(node); got != "job "+job {
			t.Errorf("%s is powered up for %q, want job %s; slurmctld said\n%s", node, got, job, told)
		}
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// The loop begins at once, ends with its context, and acts in one replica only.
func TestStart(t *testing.T) {
	s := newStage(t)
	s.nodes(starting, off)
	if !s.loop.NeedLeaderElection() {
		t.Error("two replicas would act")
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.loop.Start(ctx) }()
	for deadline := time.Now().Add(20 * time.Second); s.pod(node0) == nil && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil || s.pod(node0) == nil {
		t.Errorf("ended with %v, pod %v", err, s.pod(node0))
	}
}

func TestMetricsAreWellNamed(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	metrics.nodes("cpu", v1alpha1.NodeCounts{}, 0, 0)
	metrics.Actions.WithLabelValues("cpu", "CreatePod").Inc()
	metrics.Refused.WithLabelValues("cpu").Inc()
	metrics.Overdue.WithLabelValues("cpu").Set(0)
	metrics.Drained.WithLabelValues("cpu", "mps").Set(0)
	metrics.Shares.WithLabelValues("cpu", "used").Set(0)
	metrics.IdleCards.WithLabelValues("cpu").Add(0)
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	if _, err := NewMetrics(registry); err == nil {
		t.Error("registered twice")
	}
}

// refusal is an API server's answer that no retry changes.
func refusal(text string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, node0, errors.New(text))
}
