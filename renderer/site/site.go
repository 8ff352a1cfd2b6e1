// Package site holds a lab's site as typed Go values: what clusters/<site>.cue says, after the schema in cue/ has
// accepted it and filled in its defaults. It only describes; it never reads files and never renders.
package site

// Site is one complete site. The JSON names are the CUE field names, one to one.
type Site struct {
	// Name is the site's field name in package clusters ("lab"); the loader sets it.
	Name string `json:"-"`
	// SchemaVersion is the version of the schema that the site is written for: this berth's, or vet refuses it.
	SchemaVersion int `json:"schemaVersion"`
	// Variant is "production" or "box". A box site is another site made to run on one development machine: local
	// directories instead of NFS, small pod requests, Slurm told to believe the declared sizes.
	Variant string `json:"variant"`
	// VariantOf names the site that a box variant was derived from; empty for a site of its own.
	VariantOf string `json:"variantOf,omitempty"`

	Cluster    Cluster                `json:"cluster"`
	Namespaces Namespaces             `json:"namespaces"`
	Network    Network                `json:"network"`
	Hosts      map[string]Host        `json:"hosts"`
	Pools      map[string]Pool        `json:"pools"`
	Slurm      Slurm                  `json:"slurm"`
	Accounts   map[string]Account     `json:"accounts"`
	Users      map[string]User        `json:"users"`
	Groups     map[string]Group       `json:"groups,omitempty"`
	Reserved   map[string]Reservation `json:"reservations,omitempty"`
	Login      Login                  `json:"login"`
	Storage    Storage                `json:"storage"`
	Modules    Modules                `json:"modules"`
	Monitoring Monitoring             `json:"monitoring"`
	Advisor    Advisor                `json:"advisor"`
	Placement  Placement              `json:"placement"`
	Secrets    Secrets                `json:"secrets"`
	Images     Images                 `json:"images"`
	Delivery   Delivery               `json:"delivery"`
	// Acknowledge lists migrations the administrator has agreed to, by name.
	Acknowledge []string `json:"acknowledge,omitempty"`
}

// Cluster names the Slurm cluster and what all pods share.
type Cluster struct {
	Name     string `json:"name"`     // Slurm's ClusterName; never changed on a living cluster
	Domain   string `json:"domain"`   // cluster DNS domain, "cluster.local"
	TimeZone string `json:"timeZone"` // TZ of all pods, "Etc/UTC"
}

// Namespaces are the Kubernetes namespaces a site lives in.
type Namespaces struct {
	Slurm      string `json:"slurm"`      // control plane, pod security restricted
	Workers    string `json:"workers"`    // workers and login, pod security baseline
	Advisor    string `json:"advisor"`    // pod security restricted
	Monitoring string `json:"monitoring"` // pod security baseline
	Flux       string `json:"flux"`       // where Flux and the SOPS key live
}

// Network holds the address ranges, each in CIDR notation.
type Network struct {
	LAN       string `json:"lan"`
	Pods      string `json:"pods"`
	Services  string `json:"services"`
	APIServer string `json:"apiServer"` // range that the Kubernetes API server's endpoints lie in; defaults to LAN
}

// Host is one machine of the lab.
type Host struct {
	Address string   `json:"address"`        // LAN address
	Node    string   `json:"node"`           // Kubernetes node name; the host's own name unless said otherwise
	Rack    string   `json:"rack,omitempty"` // topology
	CPUs    int      `json:"cpus"`           // logical CPUs
	Memory  string   `json:"memory"`         // Kubernetes quantity
	GPUs    HostGPUs `json:"gpus"`           // Count 0: none
}

// HostGPUs are the cards of a host, all of one model.
type HostGPUs struct {
	Model  string  `json:"model,omitempty"`
	Count  int     `json:"count"`
	Memory string  `json:"memory,omitempty"` // of one card
	Speed  float64 `json:"speed,omitempty"`  // relative to other cards of the site; larger is faster
}

// Pool is a set of equal workers, each one pod and one Slurm node.
type Pool struct {
	Min          int               `json:"min"`
	Max          int               `json:"max"`
	Schedule     []KeepWindow      `json:"schedule,omitempty"`
	Headroom     *Headroom         `json:"headroom,omitempty"`
	Damping      string            `json:"damping"` // how long fewer must do before fewer stay up
	Renew        Renew             `json:"renew"`
	Hosts        []string          `json:"hosts,omitempty"` // worker i may run on any of these; empty: anywhere
	CPUs         int               `json:"cpus"`            // of one worker
	Memory       string            `json:"memory"`          // of one worker, Kubernetes quantity
	GPUs         int               `json:"gpus"`            // of one worker
	Model        string            `json:"model,omitempty"` // GPU model, derived from the hosts
	Speed        float64           `json:"speed,omitempty"` // derived from the hosts
	GPUMemory    string            `json:"gpuMemory,omitempty"`
	Sharing      Sharing           `json:"sharing"`
	Image        string            `json:"image,omitempty"` // own worker image, FROM ours
	Features     []string          `json:"features,omitempty"`
	Env          map[string]string `json:"env,omitempty"`
	Ulimits      Ulimits           `json:"ulimits,omitzero"`
	Idle         string            `json:"idle"`         // time before scale-in; Slurm time or Go duration
	DrainTimeout string            `json:"drainTimeout"` // grace that a worker has to end
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	Tolerations  []Toleration      `json:"tolerations,omitempty"`
	Partition    Partition         `json:"partition"` // the pool's own partition, named after the pool
}

// Ulimits are soft and hard limits of jobs' processes; zero values: the container runtime's.
type Ulimits struct {
	Memlock string `json:"memlock,omitempty"` // Kubernetes quantity or "unlimited", as are stack and core
	NoFile  int    `json:"nofile,omitempty"`
	Stack   string `json:"stack,omitempty"`
	Core    string `json:"core,omitempty"` // or "0"
}

// KeepWindow is a time of the week in which workers stay up.
type KeepWindow struct {
	Days []string `json:"days"` // Mon to Sun, on which it begins
	From string   `json:"from"` // 08:00
	To   string   `json:"to"`   // not part of it; not after From: on the next day
	Keep int      `json:"keep"`
}

// Headroom is what stays free beside the workers that have jobs.
type Headroom struct {
	Nodes  int `json:"nodes"`  // idle workers
	Shares int `json:"shares"` // free standard shares of cards
}

// Renew is how a new image or environment reaches a pool's workers.
type Renew struct {
	Percent   int    `json:"percent"`   // of the pool that may be away at a time
	BusyAfter string `json:"busyAfter"` // until when busy workers are left alone
}

// Sharing says how a card is divided among jobs. At most one of MPS and Shard is set; neither: whole cards.
type Sharing struct {
	MPS   *MPS   `json:"mps,omitempty"`
	Shard *Shard `json:"shard,omitempty"`
}

// MPS divides a card by CUDA MPS under Slurm's gres/mps.
type MPS struct {
	Share int    `json:"share"` // percent of the card in one standard share; divides 100
	Users string `json:"users"` // "one" user a card at a time, or "trusted" users together
}

// Shard time-slices a card under Slurm's gres/shard.
type Shard struct {
	Count int `json:"count"` // shards of one card
}

// Toleration is a Kubernetes toleration.
type Toleration struct {
	Key      string `json:"key,omitempty"`
	Operator string `json:"operator,omitempty"`
	Value    string `json:"value,omitempty"`
	Effect   string `json:"effect,omitempty"`
}

// Partition is a Slurm partition. For a pool's own partition Pools is empty.
type Partition struct {
	Pools         []string `json:"pools,omitempty"`
	Default       bool     `json:"default"`
	Hidden        bool     `json:"hidden"`
	State         string   `json:"state"` // UP, DOWN, DRAIN, INACTIVE
	MaxTime       string   `json:"maxTime"`
	DefaultTime   string   `json:"defaultTime"`
	MaxNodes      int      `json:"maxNodes,omitempty"`
	PriorityTier  int      `json:"priorityTier"`
	PreemptMode   string   `json:"preemptMode,omitempty"`
	QOS           string   `json:"qos,omitempty"`
	AllowAccounts []string `json:"allowAccounts,omitempty"`
	AllowQOS      []string `json:"allowQOS,omitempty"`
	OverSubscribe string   `json:"overSubscribe,omitempty"`
}

// Slurm is what slurm.conf says beyond nodes and partitions that pools imply.
type Slurm struct {
	Version        string               `json:"version"` // "24.11"
	Profile        string               `json:"profile"` // multifactor, fcfs or learned
	Partitions     map[string]Partition `json:"partitions,omitempty"`
	Priority       Priority             `json:"priority"`
	Backfill       Backfill             `json:"backfill"`
	Preemption     Preemption           `json:"preemption"`
	QOS            map[string]QOS       `json:"qos,omitempty"`
	TRESBilling    map[string]float64   `json:"tresBilling,omitempty"` // TRESBillingWeights of every partition
	PrivateData    []string             `json:"privateData,omitempty"`
	Licenses       map[string]int       `json:"licenses,omitempty"`
	MaxJobCount    int                  `json:"maxJobCount"`
	MaxArraySize   int                  `json:"maxArraySize"`
	DefMemPerCPU   string               `json:"defMemPerCPU"` // Kubernetes quantity
	KillWait       string               `json:"killWait"`
	ResumeTimeout  string               `json:"resumeTimeout"`
	SuspendTimeout string               `json:"suspendTimeout"`
	JobSubmit      JobSubmit            `json:"jobSubmit"`
	Hooks          Hooks                `json:"hooks"`
	Records        Records              `json:"records"`
	SrunPorts      PortRange            `json:"srunPorts"`
	ExtraLines     []string             `json:"extraLines,omitempty"` // checked escape hatch: Key=Value lines of slurm.conf
}

// JobSubmit is the site's own part of job_submit.lua: bodies of Lua functions, and what every job must say.
type JobSubmit struct {
	Before  string   `json:"before,omitempty"`
	After   string   `json:"after,omitempty"`
	Modify  string   `json:"modify,omitempty"`
	Require Required `json:"require"`
}

// Records are the ages from which slurmdbd deletes: "36months", "400days", "forever".
type Records struct {
	Jobs  string `json:"jobs"`
	Steps string `json:"steps"`
	Usage string `json:"usage"`
}

// Hooks are texts of programs that workers run as root, by name.
type Hooks struct {
	Prolog      map[string]string `json:"prolog,omitempty"`
	Epilog      map[string]string `json:"epilog,omitempty"`
	HealthCheck map[string]string `json:"healthCheck,omitempty"`
	Interval    string            `json:"interval"` // between two health checks
}

// Required are fields that a job must name.
type Required struct {
	TimeLimit bool `json:"timeLimit"`
	Account   bool `json:"account"`
}

// PortRange is inclusive on both ends.
type PortRange struct {
	First int `json:"first"`
	Last  int `json:"last"`
}

// Priority holds multifactor weights and times.
type Priority struct {
	Weights   PriorityWeights `json:"weights"`
	DecayHalf string          `json:"decayHalfLife"`
	MaxAge    string          `json:"maxAge"`
	FairTree  bool            `json:"fairTree"`
	FavorWide bool            `json:"favorLarge"`
}

// PriorityWeights are slurm.conf's PriorityWeight* values.
type PriorityWeights struct {
	Age       int            `json:"age"`
	FairShare int            `json:"fairShare"`
	JobSize   int            `json:"jobSize"`
	Partition int            `json:"partition"`
	QOS       int            `json:"qos"`
	Assoc     int            `json:"assoc"`
	TRES      map[string]int `json:"tres,omitempty"`
}

// Backfill tunes sched/backfill.
type Backfill struct {
	Enabled    bool   `json:"enabled"`
	Interval   string `json:"interval"`
	Window     string `json:"window"`
	Resolution string `json:"resolution"`
	MaxJobs    int    `json:"maxJobs"`
}

// Preemption is PreemptType and PreemptMode.
type Preemption struct {
	Type string `json:"type"` // none, qos, partition
	Mode string `json:"mode"` // off, requeue, suspend, cancel
}

// QOS is a quality of service with its limits.
type QOS struct {
	Priority    int            `json:"priority"`
	Preempt     []string       `json:"preempt,omitempty"`
	PreemptMode string         `json:"preemptMode,omitempty"`
	Flags       []string       `json:"flags,omitempty"`
	MaxWall     string         `json:"maxWall,omitempty"`
	GrpTRES     map[string]int `json:"grpTRES,omitempty"`
	MaxTRESUser map[string]int `json:"maxTRESPerUser,omitempty"`
	MaxJobsUser int            `json:"maxJobsPerUser,omitempty"`
	UsageFactor float64        `json:"usageFactor,omitempty"`
}

// Account is a Slurm account.
type Account struct {
	Parent      string         `json:"parent,omitempty"` // empty: root
	Description string         `json:"description,omitempty"`
	Shares      int            `json:"shares"`
	GrpTRES     map[string]int `json:"grpTRES,omitempty"`
	GrpTRESMins map[string]int `json:"grpTRESMins,omitempty"`
	MaxJobs     int            `json:"maxJobs,omitempty"`
	MaxSubmit   int            `json:"maxSubmit,omitempty"`
	QOS         []string       `json:"qos,omitempty"`
}

// User is a person's login: the same name, uid and groups in every pod.
type User struct {
	UID      int            `json:"uid"`
	GID      int            `json:"gid"` // the uid unless said otherwise
	FullName string         `json:"fullName,omitempty"`
	Shell    string         `json:"shell"`
	Groups   []string       `json:"groups,omitempty"`
	Account  string         `json:"account"`            // default account
	Accounts []string       `json:"accounts,omitempty"` // further ones
	Shares   int            `json:"shares"`
	GrpTRES  map[string]int `json:"grpTRES,omitempty"`
	MaxJobs  int            `json:"maxJobs,omitempty"`
	Admin    bool           `json:"admin"` // AdminLevel=Administrator
	Keys     []string       `json:"keys,omitempty"`
}

// Group is a supplementary group.
type Group struct {
	GID int `json:"gid"`
}

// Reservation is a maintenance or class window.
type Reservation struct {
	Start    string   `json:"start"`
	Duration string   `json:"duration"`
	Pools    []string `json:"pools,omitempty"`
	Users    []string `json:"users,omitempty"`
	Accounts []string `json:"accounts,omitempty"`
	Flags    []string `json:"flags,omitempty"`
}

// Login is where people arrive by SSH.
type Login struct {
	Replicas int    `json:"replicas"`
	NodePort int    `json:"nodePort,omitempty"` // 0: ClusterIP only
	Image    string `json:"image,omitempty"`
}

// Storage says where homes, shared data, Slurm's state and the database live.
type Storage struct {
	Type     string `json:"type"` // nfs or local
	NFS      *NFS   `json:"nfs,omitempty"`
	Local    *Local `json:"local,omitempty"`
	Class    string `json:"class"`    // StorageClass of the ReadWriteOnce claims (state, database)
	Home     string `json:"home"`     // size of the homes' claim
	Shared   string `json:"shared"`   // size of the shared claim (data, modules, job checkpoints)
	State    string `json:"state"`    // size of slurmctld's state
	Database string `json:"database"` // size of the accounting database
}

// NFS is the lab's file server.
type NFS struct {
	Server       string   `json:"server"`
	Path         string   `json:"path"`
	AllowedCIDRs []string `json:"allowedCIDRs"` // what the export lets in; must cover LAN and pods
	Options      []string `json:"options,omitempty"`
}

// Local is a directory on the one host of a laptop-size site or of the box.
type Local struct {
	Path string `json:"path"`
}

// Modules is the Lmod module environment.
type Modules struct {
	Enabled bool     `json:"enabled"`
	Paths   []string `json:"paths,omitempty"` // below the shared claim; at least one where Enabled
}

// Monitoring is Prometheus, Grafana, alerting and OpenTelemetry.
type Monitoring struct {
	Enabled   bool             `json:"enabled"`
	Retention string           `json:"retention"`
	Size      string           `json:"size"`
	Grafana   bool             `json:"grafana"`
	Receivers map[string]Alert `json:"receivers,omitempty"`
	OTel      string           `json:"otel,omitempty"` // OTLP endpoint; empty: none
}

// Alert is one alert receiver; exactly one field is set.
type Alert struct {
	Email   string `json:"email,omitempty"`
	Webhook string `json:"webhook,omitempty"`
	Slack   string `json:"slack,omitempty"` // name of the secret with the URL
}

// Advisor is the learned advisor's mode and bounds.
type Advisor struct {
	Mode       string `json:"mode"` // off, shadow, live
	Checkpoint string `json:"checkpoint,omitempty"`
	// Topology is what the advisor sees, derived by the schema: <model>:<workers>x<cards of one> per GPU pool, fastest first.
	Topology   string     `json:"topology"`
	Guardrails Guardrails `json:"guardrails"`
	Watch      *Watch     `json:"watch,omitempty"`
	Rerank     Rerank     `json:"rerank"`
	Evidence   *Evidence  `json:"evidence,omitempty"`
}

// Guardrails bound what the advisor may do.
type Guardrails struct {
	DeadlineMS         int      `json:"deadlineMilliseconds"`
	MaxBoost           int      `json:"maxBoost"`
	SnapshotTTLSeconds int      `json:"snapshotTTLSeconds"`
	ValueAbstain       *float64 `json:"valueAbstain,omitempty"` // nil: as the checkpoint was calibrated
	AbstainAlertShare  float64  `json:"abstainAlertShare"`
}

// Rerank is how much jobs that wait may be ranked anew.
type Rerank struct {
	Mode             string `json:"mode"` // off, shadow, live
	UpdatesPerMinute int    `json:"updatesPerMinute"`
	LeaseSeconds     int    `json:"leaseSeconds"`
}

// Watch is the line at which live makes itself shadow.
type Watch struct {
	QOS            []string `json:"qos,omitempty"`
	Partitions     []string `json:"partitions,omitempty"`
	P95Wait        string   `json:"p95Wait,omitempty"`
	TargetWait     string   `json:"targetWait,omitempty"`
	ViolationShare float64  `json:"violationShare,omitempty"`
	Window         string   `json:"window"`
	MinJobs        int      `json:"minJobs"`
}

// Evidence is what live mode needs: the record of an evaluation.
type Evidence struct {
	Checkpoint string `json:"checkpoint"`
	Topology   string `json:"topology"`
	Report     string `json:"report"`
}

// Placement is the placement controller's own switch.
type Placement struct {
	Mode          string   `json:"mode"` // off, shadow, live
	JobNamePrefix string   `json:"jobNamePrefix"`
	Accounts      []string `json:"accounts,omitempty"`
	QOS           []string `json:"qos,omitempty"`
	Comments      []string `json:"comments,omitempty"`
	GiveUpSeconds int      `json:"giveUpSeconds"`
	StartSeconds  int      `json:"startSeconds"`
}

// Secrets says who can read the site's sealed secrets and what they are called.
type Secrets struct {
	Recipients []string    `json:"recipients,omitempty"` // age public keys
	Names      SecretNames `json:"names"`
}

// SecretNames are the Secret objects' names.
type SecretNames struct {
	AuthKey  string `json:"authKey"`
	JWTKey   string `json:"jwtKey"`
	Database string `json:"database"`
	SSHHost  string `json:"sshHostKeys"`
	AgeKey   string `json:"ageKey"` // in the Flux namespace: what Flux decrypts with
}

// Images is where images come from.
type Images struct {
	Registry   string            `json:"registry"`
	Tag        string            `json:"tag"`
	Digests    map[string]string `json:"digests,omitempty"` // by image name: sha256:…; wins over the tag
	PullPolicy string            `json:"pullPolicy"`
}

// Delivery is how the site reaches the cluster.
type Delivery struct {
	Mode      string `json:"mode"` // helm or manifests
	URL       string `json:"url"`
	Branch    string `json:"branch"`
	Path      string `json:"path"` // of the repository's root in the Git tree, "."
	SecretRef string `json:"secretRef,omitempty"`
	// SourceInterval is how often Flux looks at the repository, Interval how often it applies what is there; Go durations.
	SourceInterval string `json:"sourceInterval"`
	Interval       string `json:"interval"`
	Timeout        string `json:"timeout"`
}
