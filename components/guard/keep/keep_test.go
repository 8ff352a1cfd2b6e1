package keep_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/guard/keep"
)

// slurm remembers its list as slurmctld does: what it goes by outlives an empty list, but not a reconfigure.
type slurm struct {
	list string
	file string
	// obeyed is the list that nodes are kept up by.
	obeyed string
	sets   int
	fail   error
}

func (s *slurm) Run(_ context.Context, _ time.Duration, name string, args ...string) (string, error) {
	if s.fail != nil {
		return "", s.fail
	}
	words := strings.Join(args, " ")
	if words == "show config" {
		list := s.list
		if list == "" {
			list = "(null)"
		}
		return fmt.Sprintf("StateSaveLocation       = /var/spool\nSuspendExcNodes         = %s\nSuspendExcParts         = (null)\n", list), nil
	}
	list, found := strings.CutPrefix(words, "update SuspendExcNodes=")
	if !found || name != "scontrol" {
		return "", fmt.Errorf("unexpected: %s %s", name, words)
	}
	s.list, s.sets = list, s.sets+1
	if list != "" {
		s.obeyed = list
	}
	return "", nil
}

func (s *slurm) Reconfigure(context.Context) error {
	s.list, s.obeyed = s.file, s.file
	return nil
}

func pool(name string, max int32, floor *v1alpha1.Floor) *v1alpha1.WorkerPool {
	return &v1alpha1.WorkerPool{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "slurm-workers"},
		Spec:       v1alpha1.WorkerPoolSpec{NodePrefix: "slurm-worker-" + name, Max: max},
		Status:     v1alpha1.WorkerPoolStatus{Floor: floor},
	}
}

func TestSlurmctldKeepsWhatThePoolsSay(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		pool("gpu", 1, &v1alpha1.Floor{Nodes: 1}), pool("cpu", 4, &v1alpha1.Floor{Nodes: 2}), pool("big", 9, &v1alpha1.Floor{}),
	).Build()
	daemon := &slurm{list: "slurm-worker-cpu-[0-3]:1"} // the file's
	keeper := &keep.Keeper{Slurm: daemon, Kubernetes: kube, Namespace: "slurm-workers", Log: slog.New(slog.DiscardHandler)}
	now := time.Now()
	round := func(after time.Duration) {
		t.Helper()
		now = now.Add(after)
		if err := keeper.Round(context.Background(), now); err != nil {
			t.Fatal(err)
		}
	}
	round(0)
	const want = "slurm-worker-cpu-[0-3]:2,slurm-worker-gpu-0:1"
	if daemon.list != want {
		t.Fatalf("slurmctld keeps %q, want %q", daemon.list, want)
	}
	round(5 * time.Second)
	round(time.Minute)
	if daemon.sets != 1 {
		t.Errorf("set %d times, want once", daemon.sets)
	}
	daemon.list = "slurm-worker-cpu-[0-3]:1" // a reconfigure
	round(time.Minute)
	if daemon.list != want {
		t.Errorf("after a reconfigure slurmctld keeps %q, want %q", daemon.list, want)
	}

	// A pool that nobody has looked at yet: nothing is changed.
	if err := kube.Create(context.Background(), pool("new", 2, nil)); err != nil {
		t.Fatal(err)
	}
	daemon.list = "the file's"
	round(time.Minute)
	if daemon.list != "the file's" {
		t.Errorf("set to %q while a pool's floor is unknown", daemon.list)
	}

	// The floor falls to nothing.
	var pools v1alpha1.WorkerPoolList
	if err := kube.List(context.Background(), &pools); err != nil {
		t.Fatal(err)
	}
	for i := range pools.Items {
		pools.Items[i].Status.Floor = &v1alpha1.Floor{}
		if err := kube.Update(context.Background(), &pools.Items[i], &client.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	round(time.Minute)
	if daemon.list != "" || daemon.obeyed != "" {
		t.Errorf("keeps %q by %q, want nothing", daemon.list, daemon.obeyed)
	}
	daemon.fail = errors.New("Unable to contact slurm controller")
	if err := keeper.Round(context.Background(), now.Add(time.Hour)); err == nil {
		t.Error("no error while slurmctld is away")
	}
}
