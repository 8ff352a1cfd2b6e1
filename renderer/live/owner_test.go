package live_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/berth-hpc/berth/renderer/live"
)

// From a pod to its ReplicaSet to its Deployment, a container's field becoming the template's.
func TestOwner(t *testing.T) {
	yes := true
	made := func(apiVersion, kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: "1", Controller: &yes}}
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cluster := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(testrestmapper.TestOnlyStaticRESTMapper(scheme)).WithObjects(
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm-workers", Name: "slurm-login-1-a", OwnerReferences: made("apps/v1", "ReplicaSet", "slurm-login-1")}},
		&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm-workers", Name: "slurm-login-1", OwnerReferences: made("apps/v1", "Deployment", "slurm-login")}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "slurm-workers", Name: "slurm-login"}},
	).Build()
	at := live.Object{Kind: "pods", Namespace: "slurm-workers", Name: "slurm-login-1-a", Field: "spec.containers[0].image"}
	for _, want := range []string{
		"replicaset.apps/slurm-workers/slurm-login-1 spec.template.spec.containers[0].image",
		"deployment.apps/slurm-workers/slurm-login spec.template.spec.containers[0].image",
	} {
		next, err := live.Owner(t.Context(), cluster, at)
		if err != nil || next.String() != want {
			t.Fatalf("the owner of %s: %s (%v), want %s", at, next, err, want)
		}
		at = next
	}
	if _, err := live.Owner(t.Context(), cluster, at); err == nil || !strings.Contains(err.Error(), "no controller made it") {
		t.Errorf("the owner of %s: %v", at, err)
	}
}
