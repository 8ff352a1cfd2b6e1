package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SlurmConfig is the configuration of one Slurm cluster. The guard in the controller pod tries each new generation on a
// scratch slurmctld, then applies it, waits for jobs that it would kill, or refuses it with Slurm's own words.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=slurmcfg
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Accepted",type=date,JSONPath=`.status.acceptedAt`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SlurmConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SlurmConfigSpec `json:"spec"`
	// Until a controller has written it, observedGeneration is -1: without that, kstatus (and so Flux) would take an object
	// that nobody has looked at for Ready.
	//
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status SlurmConfigStatus `json:"status,omitempty"`
}

// SlurmConfigList is a list of SlurmConfigs.
//
// +kubebuilder:object:root=true
type SlurmConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SlurmConfig `json:"items"`
}

// SlurmConfigSpec is what the cluster should be configured as.
type SlurmConfigSpec struct {
	// ClusterName is slurm.conf's ClusterName. It never changes: slurmctld does not start on another cluster's state.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterName cannot change: slurmctld does not start on the state of another cluster"
	ClusterName string `json:"clusterName"`
	// Files are the files of Slurm's configuration directory, name to text. slurm.conf is needed.
	//
	// +kubebuilder:validation:MaxProperties=100
	// +kubebuilder:validation:XValidation:rule="'slurm.conf' in self",message="files must hold slurm.conf"
	Files map[string]string `json:"files"`
	// Accounts are the accounts, users and qualities of service of Slurm's database. What is not named here stays as it is.
	//
	// +optional
	Accounts Accounts `json:"accounts,omitempty"`
	// Acknowledge names changes that are applied although they kill jobs: the name is in the message of a configuration that
	// waits for jobs.
	//
	// +optional
	Acknowledge []string `json:"acknowledge,omitempty"`
	// Reservations are the reservations of slurmctld that the guard makes, keeps and, once they are not named here any more,
	// deletes. Reservations that people made by hand stay as they are.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Reservations []Reservation `json:"reservations,omitempty"`
}

// Reservation is a set of nodes that is kept for some users for a time: a class, a maintenance window.
type Reservation struct {
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9_-]{0,62}$`
	Name string `json:"name"`
	// Start is the first moment in the cluster's time zone, 2026-10-01T08:00:00.
	//
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}$`
	Start string `json:"start"`
	// Duration is in seconds.
	//
	// +kubebuilder:validation:Minimum=60
	Duration int64 `json:"duration"`
	// Nodes is a host list; left out: all nodes.
	//
	// +optional
	Nodes string `json:"nodes,omitempty"`
	// Users and Accounts may run in it.
	//
	// +optional
	Users []string `json:"users,omitempty"`
	// +optional
	Accounts []string `json:"accounts,omitempty"`
	// Flags are scontrol's reservation flags, such as MAINT or WEEKLY.
	//
	// +optional
	Flags []string `json:"flags,omitempty"`
}

// Accounts is what the guard adds to and modifies in Slurm's database. Users and accounts that leave are deleted when no job of theirs is
// left.
type Accounts struct {
	// +optional
	// +listType=map
	// +listMapKey=name
	Accounts []Account `json:"accounts,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=name
	Users []User `json:"users,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=name
	QOS []QOS `json:"qos,omitempty"`
}

// Account is a Slurm account.
type Account struct {
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9_.-]*$`
	Name string `json:"name"`
	// Parent is the account above; left out: root.
	//
	// +optional
	Parent string `json:"parent,omitempty"`
	// +optional
	Description string `json:"description,omitempty"`
	// Shares is the fair share, relative to the account's siblings; left out: 1.
	//
	// +optional
	Shares int64 `json:"shares,omitempty"`
	// GrpTRES limits what all jobs of the account use at one time, TRES name to amount.
	//
	// +optional
	GrpTRES map[string]int64 `json:"grpTRES,omitempty"`
	// GrpTRESMins limits what all jobs of the account use in total, TRES name to minutes.
	//
	// +optional
	GrpTRESMins map[string]int64 `json:"grpTRESMins,omitempty"`
	// MaxJobs limits each user's running jobs; 0: no limit.
	//
	// +optional
	MaxJobs int64 `json:"maxJobs,omitempty"`
	// MaxSubmit limits each user's running and pending jobs; 0: no limit.
	//
	// +optional
	MaxSubmit int64 `json:"maxSubmit,omitempty"`
	// QOS are the qualities of service that the account may use; empty: all that are named here, and "normal".
	//
	// +optional
	QOS []string `json:"qos,omitempty"`
}

// User is a person's (or a service's) associations with accounts.
type User struct {
	// +kubebuilder:validation:Pattern=`^[a-z_][a-z0-9_.-]*$`
	Name string `json:"name"`
	// DefaultAccount is charged when a job names none.
	//
	// +kubebuilder:validation:MinLength=1
	DefaultAccount string `json:"defaultAccount"`
	// Accounts are further accounts that the user may charge.
	//
	// +optional
	Accounts []string `json:"accounts,omitempty"`
	// Shares is the fair share within each account; left out: 1.
	//
	// +optional
	Shares int64 `json:"shares,omitempty"`
	// GrpTRES limits what all jobs of the user use at one time in one account, TRES name to amount.
	//
	// +optional
	GrpTRES map[string]int64 `json:"grpTRES,omitempty"`
	// MaxJobs limits the user's running jobs in one account; 0: no limit.
	//
	// +optional
	MaxJobs int64 `json:"maxJobs,omitempty"`
	// Admin gives Slurm's AdminLevel=Administrator.
	//
	// +optional
	Admin bool `json:"admin,omitempty"`
}

// QOS is a quality of service.
type QOS struct {
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9_.-]*$`
	Name string `json:"name"`
	// +optional
	Priority int64 `json:"priority,omitempty"`
	// Preempt names the qualities of service whose jobs this one's may preempt.
	//
	// +optional
	Preempt []string `json:"preempt,omitempty"`
	// PreemptMode is what happens to a preempted job.
	//
	// +optional
	// +kubebuilder:validation:Enum=off;cluster;requeue;suspend;cancel
	PreemptMode string `json:"preemptMode,omitempty"`
	// Flags are sacctmgr's QOS flags, such as DenyOnLimit.
	//
	// +optional
	Flags []string `json:"flags,omitempty"`
	// MaxWall is the longest time of one job, in Slurm's form (7-00:00:00).
	//
	// +optional
	MaxWall string `json:"maxWall,omitempty"`
	// GrpTRES limits what all jobs of the QOS use at one time, TRES name to amount.
	//
	// +optional
	GrpTRES map[string]int64 `json:"grpTRES,omitempty"`
	// MaxTRESPerUser limits what one user's jobs of the QOS use at one time, TRES name to amount.
	//
	// +optional
	MaxTRESPerUser map[string]int64 `json:"maxTRESPerUser,omitempty"`
	// MaxJobsPerUser limits one user's running jobs of the QOS; 0: no limit.
	//
	// +optional
	MaxJobsPerUser int64 `json:"maxJobsPerUser,omitempty"`
	// UsageFactor multiplies the usage that jobs of the QOS are charged, a decimal number ("0.5"); left out: 1.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9]+(\.[0-9]+)?$`
	UsageFactor string `json:"usageFactor,omitempty"`
}

// ConfigState says what the guard did with the newest generation of a SlurmConfig.
//
// +kubebuilder:validation:Enum=Pending;Applied;WaitingForJobs;Refused
type ConfigState string

const (
	// ConfigPending: the generation is being tried, or slurmctld does not answer yet.
	ConfigPending ConfigState = "Pending"
	// ConfigApplied: slurmctld runs with it.
	ConfigApplied ConfigState = "Applied"
	// ConfigWaitingForJobs: Slurm accepts it, but applying it now would kill or lose the jobs named in the message. It is
	// tried again until they have ended; slurmctld keeps the accepted one meanwhile.
	ConfigWaitingForJobs ConfigState = "WaitingForJobs"
	// ConfigRefused: Slurm does not accept it. slurmctld keeps the accepted one.
	ConfigRefused ConfigState = "Refused"
)

// SlurmConfigStatus is what the guard says.
type SlurmConfigStatus struct {
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
	// +optional
	State ConfigState `json:"state,omitempty"`
	// AcceptedHash is the hash of the configuration that slurmctld runs with.
	//
	// +optional
	AcceptedHash string `json:"acceptedHash,omitempty"`
	// AcceptedAt is when that configuration was applied.
	//
	// +optional
	AcceptedAt *metav1.Time `json:"acceptedAt,omitempty"`
	// Message is why, in Slurm's own words where Slurm spoke.
	//
	// +optional
	Message string `json:"message,omitempty"`
	// AccountsGeneration is the generation whose accounts, users and QOS are in Slurm's database.
	//
	// +optional
	AccountsGeneration int64 `json:"accountsGeneration,omitempty"`
}
