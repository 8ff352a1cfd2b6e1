// Package v1alpha1 holds Berth's two custom resources: SlurmConfig, the configuration of a Slurm cluster that the guard
// tries and applies, and WorkerPool, a pool of Slurm nodes whose pods the autoscaler makes.
// It holds types and their registration only; what acts on them lives in components/guard and components/autoscaler.
//
// +kubebuilder:object:generate=true
// +groupName=berth-hpc.github.io
package v1alpha1

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.19.0 object crd:generateEmbeddedObjectMeta=true,maxDescLen=400 paths=. output:crd:dir=../crds
