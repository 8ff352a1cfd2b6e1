// Package storage makes the claims that outlive every release (Slurm's state, the accounting database, homes, shared data)
// and the volumes behind them. Everything that holds data is marked so that neither Helm nor Flux removes it.
package storage

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-hpc/berth/renderer/compile/flux"
	"github.com/berth-hpc/berth/renderer/compile/foundation"
	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/site"
)

// provisionerName links our StorageClass to the NFS provisioner's deployment.
const provisionerName = "berth-hpc.github.io/nfs"

type claim struct {
	name      string
	directory string // below the local path or the NFS export
	namespace string
	size      string
	field     string
	mode      corev1.PersistentVolumeAccessMode
}

func claims(s *site.Site) []claim {
	return []claim{
		{naming.ClaimState, "state", s.Namespaces.Slurm, s.Storage.State, "storage.state", corev1.ReadWriteOnce},
		{naming.ClaimDatabase, "database", s.Namespaces.Slurm, s.Storage.Database, "storage.database", corev1.ReadWriteOnce},
		{naming.ClaimHome, "home", s.Namespaces.Workers, s.Storage.Home, "storage.home", corev1.ReadWriteMany},
		{naming.ClaimShared, "shared", s.Namespaces.Workers, s.Storage.Shared, "storage.shared", corev1.ReadWriteMany},
	}
}

// Objects are the layer's objects. The local type binds all four claims to directories of the one host, which must exist. The
// nfs type takes state and database from the site's StorageClass; homes and shared data come from the provisioner (helm
// delivery), or from directories of the export that must exist (manifests delivery).
func Objects(s *site.Site) ([]manifest.Object, error) {
	var typed []any
	for _, c := range claims(s) {
		size, err := resource.ParseQuantity(c.size)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is not a size: %w; write for example 100Gi", c.field, c.size, err)
		}
		source, err := volumeSource(s, c)
		if err != nil {
			return nil, err
		}
		if source == nil {
			class := s.Storage.Class
			if c.mode == corev1.ReadWriteMany {
				class = naming.SharedClass
			}
			typed = append(typed, persistentVolumeClaim(c, size, class, ""))
			continue
		}
		volume := persistentVolume(s, c, size, *source)
		typed = append(typed, volume, persistentVolumeClaim(c, size, "", volume.Name))
	}
	objects, err := manifest.All(typed...)
	if err != nil {
		return nil, err
	}
	if s.Storage.Type == "nfs" && s.Delivery.Mode == "helm" {
		provisioner, err := nfsProvisioner(s)
		if err != nil {
			return nil, err
		}
		objects = append(objects, provisioner...)
	}
	return objects, nil
}

// volumeSource is where a claim's volume lies, or nil if a StorageClass makes it.
func volumeSource(s *site.Site, c claim) (*corev1.PersistentVolumeSource, error) {
	switch s.Storage.Type {
	case "local":
		if s.Storage.Local == nil {
			return nil, fmt.Errorf("storage.local: type local needs storage.local.path")
		}
		// Directory, not DirectoryOrCreate: one that the kubelet made would belong to root and Slurm could not write to it.
		exists := corev1.HostPathDirectory
		return &corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path.Join(s.Storage.Local.Path, c.directory), Type: &exists}}, nil
	case "nfs":
		if s.Storage.NFS == nil {
			return nil, fmt.Errorf("storage.nfs: type nfs needs storage.nfs.server and storage.nfs.path")
		}
		if s.Delivery.Mode == "helm" || c.mode != corev1.ReadWriteMany {
			return nil, nil
		}
		return &corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: s.Storage.NFS.Server, Path: path.Join(s.Storage.NFS.Path, c.directory)}}, nil
	}
	return nil, fmt.Errorf("storage.type: %q is not a kind of storage; use nfs or local", s.Storage.Type)
}

func persistentVolume(s *site.Site, c claim, size resource.Quantity, source corev1.PersistentVolumeSource) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{Name: c.namespace + "-" + c.name, Labels: naming.Labels(c.name), Annotations: naming.Keep()},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: size},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{c.mode},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        source,
			// The claim is named on both sides, so that no other claim takes the volume.
			ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.namespace, Name: c.name},
		},
	}
	if source.NFS != nil {
		volume.Spec.MountOptions = s.Storage.NFS.Options
	}
	return volume
}

func persistentVolumeClaim(c claim, size resource.Quantity, class, volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Name: c.name, Namespace: c.namespace, Labels: naming.Labels(c.name), Annotations: naming.Keep()},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{c.mode},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
			StorageClassName: &class,
			VolumeName:       volume,
		},
	}
}

// nfsProvisioner is the upstream provisioner with a StorageClass of ours: what is deleted is kept aside on the server.
func nfsProvisioner(s *site.Site) ([]manifest.Object, error) {
	retain := corev1.PersistentVolumeReclaimRetain
	immediate := storagev1.VolumeBindingImmediate
	class := &storagev1.StorageClass{
		TypeMeta:          metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"},
		ObjectMeta:        metav1.ObjectMeta{Name: naming.SharedClass, Labels: naming.Labels("storage-class")},
		Provisioner:       provisionerName,
		Parameters:        map[string]string{"archiveOnDelete": "true"},
		ReclaimPolicy:     &retain,
		VolumeBindingMode: &immediate,
		MountOptions:      s.Storage.NFS.Options,
	}
	values := map[string]any{
		"nfs":          map[string]any{"server": s.Storage.NFS.Server, "path": s.Storage.NFS.Path, "reclaimPolicy": "Retain"},
		"storageClass": map[string]any{"create": false, "provisionerName": provisionerName},
	}
	if len(s.Storage.NFS.Options) > 0 {
		values["nfs"].(map[string]any)["mountOptions"] = s.Storage.NFS.Options
	}
	objects, err := manifest.All(
		foundation.Namespace(naming.StorageNamespace, foundation.Baseline),
		foundation.DefaultDeny(naming.StorageNamespace),
		foundation.AllowAPIServer(s, naming.StorageNamespace),
		class,
	)
	if err != nil {
		return nil, err
	}
	release, err := flux.UpstreamRelease(s, flux.Upstream{
		Name: "nfs-provisioner", Namespace: naming.StorageNamespace,
		Repository: "https://kubernetes-sigs.github.io/nfs-subdir-external-provisioner/",
		Chart:      "nfs-subdir-external-provisioner", Version: "4.0.18", Values: values,
	})
	return append(objects, release...), err
}
