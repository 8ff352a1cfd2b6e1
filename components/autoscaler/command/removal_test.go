package command

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
)

func pool(name string) *v1alpha1.WorkerPool {
	return &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "slurm-workers", Finalizers: []string{v1alpha1.FinalizerWorkers},
	}}
}

// cluster is an API server with the pools; list, if set, comes before each list of them.
func cluster(t *testing.T, list func() error, pools ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.WorkerPool{}).WithObjects(pools...).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
				if list != nil {
					if err := list(); err != nil {
						return err
					}
				}
				return c.List(ctx, into, options...)
			},
		}).Build()
}

// The pools are deleted, and the command ends when the autoscaler has let the last of them go; until then it says for which
// jobs. An API server that is away for a moment is asked again.
func TestRemovePoolsWaitsForTheirJobs(t *testing.T) {
	ctx := context.Background()
	rounds := 0
	var kubernetes client.Client
	kubernetes = cluster(t, func() error {
		rounds++
		cpu := new(v1alpha1.WorkerPool)
		if err := kubernetes.Get(ctx, client.ObjectKey{Namespace: "slurm-workers", Name: "cpu"}, cpu); err != nil {
			return client.IgnoreNotFound(err)
		}
		switch rounds {
		case 2: // what the autoscaler does
			meta.SetStatusCondition(&cpu.Status.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Removing", Message: "waits for job 42 (student, train) on slurm-worker-cpu-0",
			})
			return kubernetes.Status().Update(ctx, cpu)
		case 3:
			return errors.New("connection refused")
		case 5:
			cpu.Finalizers = nil
			return kubernetes.Update(ctx, cpu)
		}
		return nil
	}, pool("cpu"))
	var out strings.Builder
	if err := removePools(ctx, kubernetes, "slurm-workers", time.Millisecond, &out); err != nil {
		t.Fatal(err)
	}
	want := `cpu: waits for the autoscaler to see that it is deleted
cpu: waits for job 42 (student, train) on slurm-worker-cpu-0
the Kubernetes API: list the WorkerPools of slurm-workers: connection refused
cpu: waits for job 42 (student, train) on slurm-worker-cpu-0
no worker pool is left
`
	if out.String() != want {
		t.Errorf("it said\n%s\nwant\n%s", out.String(), want)
	}
}

// Without pools, and without their kind, there is nothing to wait for.
func TestRemovePoolsOfNobody(t *testing.T) {
	resource := schema.GroupResource{Group: v1alpha1.Group, Resource: "workerpools"}
	for name, err := range map[string]error{
		"no pool": nil,
		"no kind": &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: v1alpha1.Group, Kind: "WorkerPool"}},
		"no URL":  apierrors.NewNotFound(resource, ""),
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := removePools(context.Background(), cluster(t, func() error { return err }), "slurm-workers", time.Millisecond, &out); err != nil {
				t.Error(err)
			}
		})
	}
}

// Whoever waits no longer is told what is left; a refusal is told at once.
func TestRemovePoolsEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	var out strings.Builder
	err := removePools(ctx, cluster(t, nil, pool("cpu"), pool("gpu")), "slurm-workers", time.Millisecond, &out)
	if err == nil || !strings.Contains(err.Error(), "cpu (waits for the autoscaler") || !strings.Contains(err.Error(), "gpu (") {
		t.Errorf("%v, want the two pools", err)
	}
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "workerpools"}, "", errors.New("no right"))
	if err := removePools(context.Background(), cluster(t, func() error { return refused }), "slurm-workers", time.Hour, &out); err == nil || !strings.Contains(err.Error(), "no right") {
		t.Errorf("%v, want the refusal", err)
	}
}

// Without a namespace nothing is deleted: the empty one stands for all.
func TestRemovePoolsNeedsANamespace(t *testing.T) {
	command := newRemovePools()
	command.SetArgs([]string{"--workers-namespace="})
	command.SetOut(io.Discard)
	command.SetErr(io.Discard)
	if err := command.Execute(); err == nil || !strings.Contains(err.Error(), "--workers-namespace is empty; name the namespace") {
		t.Error(err)
	}
}
