package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkerPool is a range of Slurm nodes whose pods come and go as Slurm powers the nodes up and down. The autoscaler is
// its controller.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=wpool
// +kubebuilder:printcolumn:name="Min",type=integer,JSONPath=`.spec.min`
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.spec.max`
// +kubebuilder:printcolumn:name="Up",type=integer,JSONPath=`.status.nodes.up`
// +kubebuilder:printcolumn:name="Starting",type=integer,JSONPath=`.status.nodes.poweringUp`
// +kubebuilder:printcolumn:name="Busy",type=integer,JSONPath=`.status.nodes.busy`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type WorkerPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec WorkerPoolSpec `json:"spec"`
	// Until a controller has written it, observedGeneration is -1: without that, kstatus (and so Flux) would take an object
	// that nobody has looked at for Ready.
	//
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status WorkerPoolStatus `json:"status,omitempty"`
}

// WorkerPoolList is a list of WorkerPools.
//
// +kubebuilder:object:root=true
type WorkerPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WorkerPool `json:"items"`
}

// WorkerPoolSpec is what a pool's nodes are.
//
// +kubebuilder:validation:XValidation:rule="self.min <= self.max",message="min must not be above max"
type WorkerPoolSpec struct {
	// Pool is the pool's name in the site.
	//
	// +kubebuilder:validation:MinLength=1
	Pool string `json:"pool"`
	// NodePrefix is the node names' part before "-<i>": slurm-worker-cpu for slurm-worker-cpu-0. It never changes.
	//
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=57
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodePrefix cannot change: it is the name of the pool's nodes in Slurm"
	NodePrefix string `json:"nodePrefix"`
	// Min is how many nodes stay up without work.
	//
	// +kubebuilder:validation:Minimum=0
	Min int32 `json:"min"`
	// Max is how many nodes the pool has: i from 0 to Max-1.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Max int32 `json:"max"`
	// Hosts are the Kubernetes nodes that the pods may run on; empty: any that the template allows. Slurm node i is
	// pinned to Hosts[i] where there are as many hosts as nodes; else Kubernetes chooses among them.
	//
	// +optional
	Hosts []string `json:"hosts,omitempty"`
	// ConfigHash is the configuration that Template belongs to (SlurmConfig.status.acceptedHash). Until the guard has
	// accepted it, pods are made from the template before. Empty: Template belongs to every configuration.
	//
	// +optional
	ConfigHash string `json:"configHash,omitempty"`
	// Idle is the idle time in seconds after which Slurm powers a node down. Slurm acts by slurm.conf's SuspendTime; here
	// it is for people and messages.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Idle int32 `json:"idle,omitempty"`
	// DrainSeconds is how long a worker may take to end once its pod is told to stop.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	DrainSeconds int32 `json:"drainSeconds,omitempty"`
	// TimeZone is the IANA zone of Schedule; empty: UTC.
	//
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
	// Schedule are times of the week in which more nodes than Min stay up.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Schedule []KeepWindow `json:"schedule,omitempty"`
	// Headroom is what stays free beside the nodes that have work.
	//
	// +optional
	Headroom *Headroom `json:"headroom,omitempty"`
	// DampSeconds is how long less must do before the number of nodes that stay up falls.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	DampSeconds int32 `json:"dampSeconds,omitempty"`
	// SharePercent is one standard share of a card in percent, where the pool's cards are shared by MPS; 0: they are not.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	SharePercent int32 `json:"sharePercent,omitempty"`
	// Renew says how workers of an older template are replaced; left out: a quarter of the pool at a time, busy ones too.
	//
	// +optional
	Renew *Renew `json:"renew,omitempty"`
	// Template is the worker pod. The autoscaler sets its name, hostname, subdomain where the template has none, labels,
	// owner and restartPolicy.
	//
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Template corev1.PodTemplateSpec `json:"template"`
}

// KeepWindow is a time of the week.
type KeepWindow struct {
	// Days are the days that it begins on.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=7
	// +kubebuilder:validation:items:Enum=Mon;Tue;Wed;Thu;Fri;Sat;Sun
	Days []string `json:"days"`
	// From and To are times of the day. To is not part of it; one that is not after From is on the next day.
	//
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	From string `json:"from"`
	// +kubebuilder:validation:Pattern=`^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$`
	To string `json:"to"`
	// Keep is how many nodes stay up then.
	//
	// +kubebuilder:validation:Minimum=0
	Keep int32 `json:"keep"`
}

// Headroom is free capacity that is there before anybody asks for it.
type Headroom struct {
	// Nodes are idle nodes.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Nodes int32 `json:"nodes,omitempty"`
	// Shares are free standard shares of cards (SharePercent).
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Shares int32 `json:"shares,omitempty"`
}

// Renew is how a new template reaches a pool.
type Renew struct {
	// Percent of the pool that may be away at a time, at least one node; 0: 25.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent int32 `json:"percent,omitempty"`
	// BusyAfterSeconds is how long after the template was accepted busy workers are left to become idle by themselves. Then
	// they take no new jobs; the ones that run always end by themselves.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	BusyAfterSeconds int32 `json:"busyAfterSeconds,omitempty"`
}

// WorkerPoolStatus is what the autoscaler says.
type WorkerPoolStatus struct {
	// ObservedGeneration is the generation that the rest of the status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Ready, Reconciling and Stalled.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Nodes counts the pool's nodes as Slurm last said.
	//
	// +optional
	Nodes *NodeCounts `json:"nodes,omitempty"`
	// Floor is how many nodes stay up now. The guard keeps Slurm from powering them down.
	//
	// +optional
	Floor *Floor `json:"floor,omitempty"`
	// AcceptedTemplateHash is the hash of the template that pods are made from.
	//
	// +optional
	AcceptedTemplateHash string `json:"acceptedTemplateHash,omitempty"`
}

// Floor is a number of nodes that stay up, work or none.
type Floor struct {
	// Nodes is the number, busy ones counted.
	Nodes int32 `json:"nodes"`
	// Because says which rule asks for them.
	//
	// +optional
	Because string `json:"because,omitempty"`
	// LessSince is since when fewer would do.
	//
	// +optional
	LessSince *metav1.Time `json:"lessSince,omitempty"`
}

// NodeCounts counts the nodes of a pool by what they do.
type NodeCounts struct {
	// Up nodes are registered and in service (idle, busy or draining).
	Up int32 `json:"up"`
	// PoweringUp nodes were asked for and have not registered yet.
	PoweringUp int32 `json:"poweringUp"`
	// Busy nodes have jobs.
	Busy int32 `json:"busy"`
	// Idle nodes are up, without jobs, and take some.
	Idle int32 `json:"idle"`
}
