package status

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/renderer/site"
)

const (
	desired = "main@sha1:0123456789abcdef0123456789abcdef01234567" // what source() has fetched
	older   = "main@sha1:76543210fedcba9876543210fedcba9876543210"
)

// attempt is an entry of the history that Flux keeps.
func attempt(outcome, revision string, times int64) meta.Snapshot {
	began := metav1.NewTime(time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC))
	return meta.Snapshot{FirstReconciled: began, LastReconciled: began, LastReconciledStatus: outcome, TotalReconciliations: times,
		Metadata: map[string]string{"revision": revision}}
}

// A first attempt is told from one that Flux makes again and again.
func TestFirstAttemptOrRetry(t *testing.T) {
	inProgress := conditions("Unknown", "Progressing", "Running health checks")
	failed := conditions("False", "HealthCheckFailed", "timeout waiting for: [Deployment/slurm/slurm-rest status: 'InProgress']")
	for name, c := range map[string]struct {
		condition []metav1.Condition
		applied   string
		history   meta.History
		state     string
		phase     string
		attempts  int64
	}{
		"the first of all":                 {inProgress, "", nil, Working, First, 0},
		"the first of this revision":       {inProgress, older, meta.History{attempt("ReconciliationSucceeded", older, 40)}, Working, First, 0},
		"the first after one that failed":  {inProgress, older, meta.History{attempt("HealthCheckFailed", older, 3)}, Working, First, 0},
		"another attempt in progress":      {inProgress, older, meta.History{attempt("HealthCheckFailed", desired, 3)}, Working, Retrying, 3},
		"between two attempts":             {failed, older, meta.History{attempt("HealthCheckFailed", desired, 17)}, Failed, Retrying, 17},
		"failed, from a Flux of before":    {failed, older, nil, Failed, First, 0},
		"applied, but not yet what is new": {conditions("True", "ReconciliationSucceeded", "Applied"), older, nil, Working, First, 0},
		"applied":                          {conditions("True", "ReconciliationSucceeded", "Applied"), desired, meta.History{attempt("ReconciliationSucceeded", desired, 2)}, Ready, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			k := layer("slurm", c.condition)
			k.Status.LastAppliedRevision, k.Status.History = c.applied, c.history
			r := readWith(t, source(), k)
			got := r.Layers[0]
			if r.Desired != desired || got.State != c.state || got.Phase != c.phase || got.Attempts != c.attempts {
				t.Errorf("desired %s; state %q, phase %q, %d attempts; want %q, %q, %d", r.Desired, got.State, got.Phase, got.Attempts, c.state, c.phase, c.attempts)
			}
			if c.attempts > 1 && c.state == Failed && !strings.Contains(r.Stuck[0].Why, "tried 17 times since 2026-03-01 08:00 UTC") {
				t.Errorf("stuck says %q", r.Stuck[0].Why)
			}
		})
	}
}

func TestTree(t *testing.T) {
	yes := true
	k := layer("slurm", conditions("True", "ReconciliationSucceeded", "Applied"))
	k.Status.Inventory = &kustomizev1.ResourceInventory{Entries: []kustomizev1.ResourceRef{
		{ID: "slurm-workers_cpu_berth-hpc.github.io_WorkerPool", Version: "v1alpha1"}, {ID: "_slurm__reader_rbac.authorization.k8s.io_ClusterRole", Version: "v1"},
		{ID: "flux-system_slurm-platform_helm.toolkit.fluxcd.io_HelmRelease", Version: "v2"},
	}}
	release := &helmv2.HelmRelease{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "slurm-platform"}}
	release.Status.Inventory = &helmv2.ResourceInventory{Entries: []helmv2.ResourceRef{{ID: "slurm_slurm-rest_apps_Deployment", Version: "v1"}}}
	worker := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm-workers", Name: "slurm-worker-cpu-0",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "berth-hpc.github.io/v1alpha1", Kind: "WorkerPool", Name: "cpu", UID: "1", Controller: &yes}}}}
	worker.Status.Phase = corev1.PodRunning
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(source(), k, release, worker).Build()
	r, err := Read(t.Context(), cluster, labSite())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.ReadTree(t.Context(), cluster, labSite()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range r.Layers[0].Objects {
		got = append(got, o.Object+": "+strings.Join(o.Made, ", "))
	}
	want := "ClusterRole slurm:reader: | HelmRelease flux-system/slurm-platform: Deployment slurm/slurm-rest | WorkerPool slurm-workers/cpu: Pod slurm-workers/slurm-worker-cpu-0 (Running)"
	if text := strings.ReplaceAll(strings.Join(got, " | "), ":  |", ": |"); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// Why jobs wait, in the site's terms, and what would help.
func TestWhyJobsWait(t *testing.T) {
	s := labSite()
	s.Slurm.Partitions = map[string]site.Partition{"all": {Pools: []string{"cpu", "gpu"}}}
	full, growing := pool("cpu", 4, 0, 4), pool("gpu", 0, 0, 2)
	growing.Status.Nodes.PoweringUp = 1
	queue := "11|cpu|Resources\n12|cpu|Resources\n13|cpu|Priority\n14|gpu|Resources\n15|cpu|QOSMaxJobsPerUserLimit\n16_[1-9]|cpu|JobHeldUser\n17|cpu|None\n" +
		"18|cpu|ReqNodeNotAvail, UnavailableNodes:slurm-worker-cpu-0\n19|cpu|SomethingNew\n"
	r := readWith(t, source(), config(v1alpha1.ConfigApplied, ""), full, growing)
	r.AskSlurm(t.Context(), s, func(_ context.Context, container string, argv ...string) (string, error) {
		if argv[0] == "sinfo" {
			return "", nil // all nodes take jobs
		}
		if container != "slurmctld" || argv[0] != "squeue" {
			return "", errors.New("not asked for")
		}
		return queue, nil
	})
	if r.Advisor.Effective != "off" || r.Unasked != "" {
		t.Errorf("advisor %+v, unasked %q", r.Advisor, r.Unasked)
	}
	want := []struct {
		reason, means, help string
		jobs                int
	}{
		{"Resources", "every worker is there, and they do not fit beside what runs: cpu has its 4", "pools.cpu.max", 2},
		{"Priority", "jobs of higher priority are before them", "sprio --jobs=13 ", 1},
		{"Resources", "workers are on their way: gpu starts 1", "", 1},
		{"QOSMaxJobsPerUserLimit", "a limit of their QOS is reached", "slurm.qos", 1},
		{"JobHeldUser", "their users hold them", "scontrol release 16_[1-9]", 1},
		{"ReqNodeNotAvail, UnavailableNodes:slurm-worker-cpu-0", "nodes that they need are down, drained or reserved", "sinfo --list-reasons", 1},
		{"SomethingNew", "Slurm's own word", "scontrol show job 19", 1},
	}
	if len(r.Waiting) != len(want) {
		t.Fatalf("%d kinds of waiting, want %d: %+v", len(r.Waiting), len(want), r.Waiting)
	}
	for i, w := range want {
		got := r.Waiting[i]
		if got.Reason != w.reason || got.Jobs != w.jobs || !strings.HasPrefix(got.Means, w.means) || !strings.Contains(got.Help, w.help) {
			t.Errorf("got %+v, want %+v", got, w)
		}
	}
}

// The advisor's mode is what it says itself. That Slurm cannot be asked is told, and no error.
func TestAdvisorMode(t *testing.T) {
	s := labSite()
	s.Advisor.Mode, s.Advisor.Guardrails.AbstainAlertShare = "live", 0.5
	for name, c := range map[string]struct{ answer, effective, why, stuck string }{
		"as wanted": {`{"mode":"live","wanted_mode":"live","snapshot_age_seconds":3}`, "live", "", ""},
		"demoted":   {`{"mode":"shadow","wanted_mode":"live","demoted":"p95 wait 2h0m0s is above 1h0m0s","snapshot_age_seconds":3}`, "shadow", "it made itself shadow: p95 wait", "advisor"},
		"abstains":  {`{"mode":"shadow","wanted_mode":"live","abstain_share":0.9,"abstain_of":40,"snapshot_age_seconds":3}`, "shadow", "it gave no advice on 90 % of the last ten minutes' 40 jobs", ""},
		"two jobs":  {`{"mode":"shadow","wanted_mode":"live","abstain_share":1,"abstain_of":2,"snapshot_age_seconds":3}`, "shadow", "", ""},
		"refused":   {`{"mode":"live","wanted_mode":"live","refused_checkpoint":"no such file","snapshot_age_seconds":3}`, "live", "the checkpoint is refused: no such file", "advisor"},
		"away":      {"", "unknown", "the pod is gone", ""},
		"no answer": {"nonsense", "unknown", "its answer is not one: nonsense", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := readWith(t, source(), config(v1alpha1.ConfigApplied, ""))
			r.AskSlurm(t.Context(), s, func(_ context.Context, container string, _ ...string) (string, error) {
				if container == "slurmctld" && c.answer != "" {
					return "", nil
				}
				if c.answer == "" {
					return "", errors.New("the pod is gone")
				}
				return c.answer, nil
			})
			if r.Advisor.Effective != c.effective || !strings.HasPrefix(r.Advisor.Why, c.why) || r.Advisor.Wanted != "live" {
				t.Errorf("%+v", r.Advisor)
			}
			if c.why == "" && r.Advisor.Why != "" {
				t.Errorf("nothing is wrong, and it says %q", r.Advisor.Why)
			}
			if (c.stuck != "") != (len(r.Stuck) == 1) {
				t.Errorf("stuck: %+v", r.Stuck)
			}
			if c.answer == "" && r.Unasked != "the pod is gone" {
				t.Errorf("unasked: %q", r.Unasked)
			}
		})
	}
}

// S26: a release whose upgrade fails again and again is told of with the count, and with the error that began it: what Flux says last is
// that it rolled back.
func TestS26FailuresAreCounted(t *testing.T) {
	release := &helmv2.HelmRelease{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "slurm-platform", Labels: map[string]string{"app.kubernetes.io/managed-by": "berth"}}}
	release.Status.Conditions = append(conditions("False", "RollbackSucceeded", "Helm rollback to previous release slurm/slurm.v3 succeeded"),
		metav1.Condition{Type: helmv2.ReleasedCondition, Status: "False", Reason: "UpgradeFailed", Message: "Helm upgrade failed: timeout waiting for:\n[Deployment/slurm/slurm-rest]"},
		metav1.Condition{Type: helmv2.RemediatedCondition, Status: "True", Reason: "RollbackSucceeded"})
	release.Status.Failures = 41
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	s := labSite()
	s.Delivery.Mode = "helm"
	r, err := Read(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(source(), release).Build(), s)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Stuck) != 1 || r.Stuck[0].Why != "Helm upgrade failed: timeout waiting for: [Deployment/slurm/slurm-rest] (41 failures)" || !strings.Contains(r.Stuck[0].Mend, "flux reconcile helmrelease") {
		t.Errorf("stuck: %+v", r.Stuck)
	}
}
