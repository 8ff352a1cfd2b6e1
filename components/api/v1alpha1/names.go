package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Labels, annotations and finalizers on the objects that Berth makes.
const (
	// LabelPool names the WorkerPool of a worker pod.
	LabelPool = Group + "/pool"
	// LabelNode is the Slurm node that a worker pod is.
	LabelNode = Group + "/node"
	// LabelBusy is "true" on a worker pod while its node has jobs. A PodDisruptionBudget selects it, so that an eviction
	// waits for the jobs.
	LabelBusy = Group + "/busy"
	// LabelTemplate is the hash of the pod template that a worker pod or a ControllerRevision was made from.
	LabelTemplate = Group + "/template"

	// AnnotationSeenUp is set on a worker pod once slurmctld said that its node is up. Such a pod cannot serve a later
	// power-up of the node: its slurmd booted before the request, and slurmctld waits for a boot that never comes.
	AnnotationSeenUp = Group + "/seen-up"
	// AnnotationAcceptedAt is set on the ControllerRevision of a template: since when pods are made from it. AnnotationProvenAt
	// says when the first of them was seen up.
	AnnotationAcceptedAt = Group + "/accepted-at"
	AnnotationProvenAt   = Group + "/proven-at"
	// AnnotationConfigHash carries the hash that whoever wrote the SlurmConfig gave its files. The guard echoes it as
	// status.acceptedHash, and a WorkerPool names it as spec.configHash.
	AnnotationConfigHash = Group + "/config-hash"

	// AnnotationRemoval with the value "allowed" lets an object of the platform be deleted although WorkerPools still need it.
	AnnotationRemoval = Group + "/removal"

	// FinalizerWorkers keeps a WorkerPool until no job runs on its nodes.
	FinalizerWorkers = Group + "/workers"
)

// Condition types, as Flux and kstatus read them. Reconciling and Stalled are present only while they are true.
const (
	ConditionReady       = "Ready"
	ConditionReconciling = "Reconciling"
	ConditionStalled     = "Stalled"
)

// Hash returns the SHA-256 of a configuration's files in hexadecimal, over their JSON with sorted keys. It equals what
// `.files | toJson | sha256sum` gives in a Helm template.
func (s *SlurmConfigSpec) Hash() string {
	encoded, err := json.Marshal(s.Files)
	if err != nil { // a map of strings always encodes
		panic(fmt.Sprintf("encode configuration files: %v", err))
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:])
}

// ConfigHash returns the hash that WorkerPools know this configuration by: the annotation where there is one, else the
// hash of its files.
func (c *SlurmConfig) ConfigHash() string {
	if hash := c.Annotations[AnnotationConfigHash]; hash != "" {
		return hash
	}
	return c.Spec.Hash()
}

// NodeName returns the name of the pool's i-th Slurm node, which is its pod's name too.
func (s *WorkerPoolSpec) NodeName(i int) string { return fmt.Sprintf("%s-%d", s.NodePrefix, i) }
