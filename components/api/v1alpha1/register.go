package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of Berth's resources and the prefix of its labels and annotations.
const Group = "berth-hpc.github.io"

// GroupVersion is the group and version of this package's kinds.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&SlurmConfig{}, &SlurmConfigList{},
		&WorkerPool{}, &WorkerPoolList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
