// Package values types the slurm-platform chart's values: what values.yaml documents, field by field. The chart's README says
// what each means; here they only have names and types, so that the renderer cannot misspell one.
package values

import "github.com/berth-hpc/berth/components/api/v1alpha1"

// Values are the chart's values.
type Values struct {
	ClusterName string     `json:"clusterName"`
	TimeZone    string     `json:"timeZone"`
	Domain      string     `json:"domain"`
	Namespaces  Namespaces `json:"namespaces"`
	Network     Network    `json:"network"`
	Images      Images     `json:"images"`
	Slurm       Slurm      `json:"slurm"`
	Users       Users      `json:"users"`
	Secrets     Secrets    `json:"secrets"`
	Claims      Claims     `json:"claims"`
	Ports       Ports      `json:"ports"`
	Login       Login      `json:"login"`
	Modules     Modules    `json:"modules"`
	Controller  *Component `json:"controller,omitempty"`
	Database    *Component `json:"database,omitempty"`
	Accounting  Accounting `json:"accounting"`
	Rest        *Component `json:"rest,omitempty"`
	Autoscaler  *Component `json:"autoscaler,omitempty"`
	Advisor     Advisor    `json:"advisor"`
	// PriorityClasses are those that the foundation layer makes.
	PriorityClasses PriorityClasses `json:"priorityClasses"`
	Pools           []Pool          `json:"pools"`
}

// PriorityClasses are the names of the pods' PriorityClasses.
type PriorityClasses struct {
	Control string `json:"control"`
	Workers string `json:"workers"`
}

// Namespaces are those of the control plane, of the workers, and of the Prometheus that may read metrics, if there is one.
type Namespaces struct {
	Slurm      string `json:"slurm"`
	Workers    string `json:"workers"`
	Monitoring string `json:"monitoring,omitempty"`
}

// Network holds address ranges in CIDR notation.
type Network struct {
	Pods      string `json:"pods"`
	Services  string `json:"services"`
	LAN       string `json:"lan"`
	APIServer string `json:"apiServer"`
}

// Images says where images come from.
type Images struct {
	Registry   string            `json:"registry"`
	Tag        string            `json:"tag"`
	PullPolicy string            `json:"pullPolicy"`
	Digests    map[string]string `json:"digests"`
}

// Slurm is the cluster's configuration and accounting tree.
type Slurm struct {
	Version string `json:"version"`
	Profile string `json:"profile"`
	Config  Config `json:"config"`
	// Accounts is SlurmConfig.spec.accounts as it stands.
	Accounts v1alpha1.Accounts `json:"accounts"`
	// Acknowledge is SlurmConfig.spec.acknowledge as it stands.
	Acknowledge []string `json:"acknowledge,omitempty"`
	// Reservations is SlurmConfig.spec.reservations as it stands.
	Reservations []v1alpha1.Reservation `json:"reservations,omitempty"`
}

// Config is Slurm's configuration directory.
type Config struct {
	Files map[string]string `json:"files"`
}

// Users are the texts of libnss-extrausers, and keys by user name.
type Users struct {
	Passwd string            `json:"passwd"`
	Group  string            `json:"group"`
	Keys   map[string]string `json:"keys"`
}

// Secrets are names of Secrets that the sealed secrets make.
type Secrets struct {
	AuthKey     string `json:"authKey"`
	JWTKey      string `json:"jwtKey"`
	Database    string `json:"database"`
	SSHHostKeys string `json:"sshHostKeys"`
}

// Claims are names of claims that the storage layer makes.
type Claims struct {
	State    string `json:"state"`
	Database string `json:"database"`
	Home     string `json:"home"`
	Shared   string `json:"shared"`
}

// Ports is SrunPortRange.
type Ports struct {
	SrunFirst int `json:"srunFirst"`
	SrunLast  int `json:"srunLast"`
}

// Component are the settings of one part of the control plane.
type Component struct {
	Resources      *Resources `json:"resources,omitempty"`
	GuardResources *Resources `json:"guardResources,omitempty"` // the controller's second container
}

// Accounting is slurmdbd.
type Accounting struct {
	Resources *Resources `json:"resources,omitempty"`
	// Purge are ages in slurmdbd.conf's words by kind of record; "": kept for ever.
	Purge map[string]string `json:"purge"`
}

// Advisor are the advisor's settings, which its file has under the same names.
type Advisor struct {
	Mode               string     `json:"mode"`
	Checkpoint         string     `json:"checkpoint"`
	Topology           string     `json:"topology"`
	NodeOrder          []string   `json:"nodeOrder"`
	MaxBoost           int        `json:"maxBoost"`
	SnapshotTTLSeconds int        `json:"snapshotTtlSeconds"`
	ValueAbstain       *float64   `json:"valueAbstain,omitempty"`
	AbstainAlertShare  float64    `json:"abstainAlertShare"`
	Watch              *Watch     `json:"watch,omitempty"`
	Rerank             Rerank     `json:"rerank"`
	Placement          Placement  `json:"placement"`
	Resources          *Resources `json:"resources,omitempty"`
}

// Rerank is how much jobs that wait may be ranked anew.
type Rerank struct {
	Mode             string `json:"mode"`
	UpdatesPerMinute int    `json:"updatesPerMinute"`
	LeaseSeconds     int    `json:"leaseSeconds"`
}

// Placement is how much the placement controller may do, and with which jobs.
type Placement struct {
	Mode          string   `json:"mode"`
	JobNamePrefix string   `json:"jobNamePrefix"`
	Accounts      []string `json:"accounts,omitempty"`
	QOS           []string `json:"qos,omitempty"`
	Comments      []string `json:"comments,omitempty"`
	GiveUpSeconds int      `json:"giveUpSeconds"`
	StartSeconds  int      `json:"startSeconds"`
}

// Watch is the line at which live makes itself shadow.
type Watch struct {
	QOS               []string `json:"qos,omitempty"`
	Partitions        []string `json:"partitions,omitempty"`
	P95WaitSeconds    float64  `json:"p95WaitSeconds,omitempty"`
	TargetWaitSeconds float64  `json:"targetWaitSeconds,omitempty"`
	ViolationShare    float64  `json:"violationShare,omitempty"`
	WindowSeconds     float64  `json:"windowSeconds"`
	MinJobs           int      `json:"minJobs"`
}

// Modules are the absolute directories of module files, as MODULEPATH has them; none: no module environment.
type Modules struct {
	Paths []string `json:"paths"`
}

// Login are the login pods' settings.
type Login struct {
	Replicas  int        `json:"replicas"`
	NodePort  int        `json:"nodePort"`
	Image     string     `json:"image"`
	Resources *Resources `json:"resources,omitempty"`
}

// Resources are Kubernetes requests and limits, resource name to quantity.
type Resources struct {
	Requests map[string]string `json:"requests,omitempty"`
	Limits   map[string]string `json:"limits,omitempty"`
}

// Pool is one pool of workers.
type Pool struct {
	Name             string            `json:"name"`
	Min              int               `json:"min"`
	Max              int               `json:"max"`
	Schedule         []KeepWindow      `json:"schedule"`
	Headroom         Headroom          `json:"headroom"`
	DampSeconds      int64             `json:"dampSeconds"`
	Renew            Renew             `json:"renew"`
	Hosts            []string          `json:"hosts"`
	Image            string            `json:"image"`
	CPUs             int               `json:"cpus"`
	Memory           string            `json:"memory"`
	GPUs             int               `json:"gpus"`
	Requests         map[string]string `json:"requests"`
	Limits           map[string]string `json:"limits"`
	Env              map[string]string `json:"env"`
	Ulimits          map[string]string `json:"ulimits,omitempty"` // in KiB but for nofile, or "unlimited"
	NodeSelector     map[string]string `json:"nodeSelector"`
	Tolerations      []Toleration      `json:"tolerations"`
	RuntimeClassName string            `json:"runtimeClassName"`
	Idle             int64             `json:"idle"`         // seconds
	DrainSeconds     int64             `json:"drainSeconds"` // seconds
	Sharing          Sharing           `json:"sharing"`
}

// KeepWindow is a time of the week in which workers stay up.
type KeepWindow struct {
	Days []string `json:"days"`
	From string   `json:"from"`
	To   string   `json:"to"`
	Keep int      `json:"keep"`
}

// Headroom is what stays free; zeros: nothing.
type Headroom struct {
	Nodes  int `json:"nodes"`
	Shares int `json:"shares"`
}

// Renew is how a new template reaches the workers.
type Renew struct {
	Percent          int   `json:"percent"`
	BusyAfterSeconds int64 `json:"busyAfterSeconds"`
}

// Toleration is a Kubernetes toleration.
type Toleration struct {
	Key      string `json:"key,omitempty"`
	Operator string `json:"operator,omitempty"`
	Value    string `json:"value,omitempty"`
	Effect   string `json:"effect,omitempty"`
}

// Sharing says how a worker's card is divided.
type Sharing struct {
	MPS   *MPS   `json:"mps,omitempty"`
	Shard *Shard `json:"shard,omitempty"`
}

// MPS is gres/mps.
type MPS struct {
	Share int    `json:"share"`
	Users string `json:"users"`
	// CardMemory is the whole card's.
	CardMemory string `json:"cardMemory,omitempty"`
}

// Shard is gres/shard.
type Shard struct {
	Count int `json:"count"`
}
