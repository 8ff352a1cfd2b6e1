// Package platform turns a site into the values of the slurm-platform chart. It decides what the chart cannot know: Slurm's
// configuration, the accounting tree, users, and how large each worker's pod is.
package platform

import (
	"fmt"
	"path"
	"sort"
	"strconv"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/renderer/compile/foundation"
	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/compile/slurmconf"
	"github.com/berth-hpc/berth/renderer/compile/users"
	"github.com/berth-hpc/berth/renderer/compile/values"
	"github.com/berth-hpc/berth/renderer/site"
)

// Requests of every pod on the box. The machine has none of the declared sizes, and Slurm is told to believe them anyway.
const (
	boxCPU    = "50m"
	boxMemory = "64Mi"
)

// Values are the chart's values for the site. An error names the site's field and what to write instead.
func Values(s *site.Site) (*values.Values, error) {
	files, err := slurmconf.Files(s)
	if err != nil {
		return nil, err
	}
	people, err := users.Build(s)
	if err != nil {
		return nil, err
	}
	accounts, err := Accounts(s)
	if err != nil {
		return nil, err
	}
	reservations, err := Reservations(s)
	if err != nil {
		return nil, err
	}
	v := &values.Values{
		ClusterName: s.Cluster.Name,
		TimeZone:    s.Cluster.TimeZone,
		Domain:      s.Cluster.Domain,
		Namespaces:  values.Namespaces{Slurm: s.Namespaces.Slurm, Workers: s.Namespaces.Workers},
		Network:     values.Network{Pods: s.Network.Pods, Services: s.Network.Services, LAN: s.Network.LAN, APIServer: s.Network.APIServer},
		Images:      values.Images{Registry: s.Images.Registry, Tag: s.Images.Tag, PullPolicy: s.Images.PullPolicy, Digests: orEmpty(s.Images.Digests)},
		Slurm:       values.Slurm{Version: s.Slurm.Version, Profile: s.Slurm.Profile, Config: values.Config{Files: files}, Accounts: accounts, Acknowledge: s.Acknowledge, Reservations: reservations},
		Users:       values.Users{Passwd: people.Passwd, Group: people.Group, Keys: people.Keys},
		Secrets:     values.Secrets{AuthKey: s.Secrets.Names.AuthKey, JWTKey: s.Secrets.Names.JWTKey, Database: s.Secrets.Names.Database, SSHHostKeys: s.Secrets.Names.SSHHost},
		Claims:      values.Claims{State: naming.ClaimState, Database: naming.ClaimDatabase, Home: naming.ClaimHome, Shared: naming.ClaimShared},
		Ports:       values.Ports{SrunFirst: s.Slurm.SrunPorts.First, SrunLast: s.Slurm.SrunPorts.Last},
		Login:       values.Login{Replicas: s.Login.Replicas, NodePort: s.Login.NodePort, Image: s.Login.Image},
		Modules:     modules(s),
	}
	if v.Advisor, err = advisor(s); err != nil {
		return nil, err
	}
	if s.Monitoring.Enabled {
		v.Namespaces.Monitoring = s.Namespaces.Monitoring
	}
	v.Accounting.Purge = purge(s.Slurm.Records)
	v.PriorityClasses = values.PriorityClasses{Control: naming.ControlPriority, Workers: naming.WorkerPriority}
	if s.Variant == "box" {
		shrink(v)
	}
	for _, name := range slurmconf.PoolOrder(s.Pools) {
		pool, err := poolValues(s, name)
		if err != nil {
			return nil, err
		}
		v.Pools = append(v.Pools, pool)
	}
	return v, nil
}

// shrink gives the control plane the box's small requests; limits stay the chart's.
func shrink(v *values.Values) {
	small := func() *values.Resources { return &values.Resources{Requests: boxRequests()} }
	v.Controller = &values.Component{Resources: small(), GuardResources: small()}
	v.Database = &values.Component{Resources: small()}
	v.Accounting.Resources = small()
	v.Rest = &values.Component{Resources: small()}
	v.Autoscaler = &values.Component{Resources: small()}
	v.Advisor.Resources = small()
	v.Login.Resources = small()
}

// modules are the site's directories of module files where pods mount them.
func modules(s *site.Site) values.Modules {
	paths := []string{}
	if s.Modules.Enabled {
		for _, directory := range s.Modules.Paths {
			paths = append(paths, path.Join("/shared", directory))
		}
	}
	return values.Modules{Paths: paths}
}

func boxRequests() map[string]string { return map[string]string{"cpu": boxCPU, "memory": boxMemory} }

func poolValues(s *site.Site, name string) (values.Pool, error) {
	pool := s.Pools[name]
	field := "pools." + name
	idle, err := slurmconf.ParseTime(pool.Idle)
	if err != nil {
		return values.Pool{}, fmt.Errorf("%s.idle: %w", field, err)
	}
	if idle.IsUnlimited() {
		idle = slurmconf.Seconds(0) // The chart's and the autoscaler's word for "never".
	}
	drain, err := slurmconf.ParseTime(pool.DrainTimeout)
	if err != nil {
		return values.Pool{}, fmt.Errorf("%s.drainTimeout: %w", field, err)
	}
	if drain.IsUnlimited() {
		return values.Pool{}, fmt.Errorf("%s.drainTimeout: a pod cannot be given unlimited time to end; write for example 2m", field)
	}
	hosts := []string{}
	for i, host := range pool.Hosts {
		h, ok := s.Hosts[host]
		if !ok {
			return values.Pool{}, fmt.Errorf("%s.hosts[%d]: host %q is not in hosts", field, i, host)
		}
		hosts = append(hosts, h.Node)
	}
	v := values.Pool{
		Name: name, Min: pool.Min, Max: pool.Max, Hosts: hosts, Image: pool.Image,
		CPUs: pool.CPUs, Memory: pool.Memory, GPUs: pool.GPUs,
		Env: orEmpty(pool.Env), Ulimits: ulimits(pool.Ulimits), NodeSelector: orEmpty(pool.NodeSelector), Tolerations: []values.Toleration{},
		Idle: int64(idle.Duration().Seconds()), DrainSeconds: int64(drain.Duration().Seconds()),
	}
	if err := keepValues(&v, pool, field); err != nil {
		return values.Pool{}, err
	}
	for _, t := range pool.Tolerations {
		v.Tolerations = append(v.Tolerations, values.Toleration(t))
	}
	if pool.Sharing.MPS != nil {
		v.Sharing.MPS = &values.MPS{Share: pool.Sharing.MPS.Share, Users: pool.Sharing.MPS.Users, CardMemory: pool.GPUMemory}
	}
	if pool.Sharing.Shard != nil {
		v.Sharing.Shard = &values.Shard{Count: pool.Sharing.Shard.Count}
	}
	if pool.GPUs > 0 && foundation.UsesRuntimeClass(s) {
		v.RuntimeClassName = naming.RuntimeClass
	}
	v.Requests, v.Limits = map[string]string{}, map[string]string{}
	if s.Variant == "box" {
		v.Requests = boxRequests()
		if pool.GPUs > 0 {
			v.Limits["nvidia.com/gpu"] = strconv.Itoa(pool.GPUs)
		}
	}
	return v, nil
}

// ulimits writes the limits as ulimit of dash takes them, which start-slurmd runs in: memory in KiB, core dumps in blocks of 512 bytes.
func ulimits(u site.Ulimits) map[string]string {
	limits := map[string]string{}
	for _, limit := range []struct {
		name, size string
		inMiB      int64
	}{{"memlock", u.Memlock, 1 << 10}, {"stack", u.Stack, 1 << 10}, {"core", u.Core, 1 << 11}} {
		size := limit.size
		if mib, err := slurmconf.Mebibytes(size); err == nil {
			size = strconv.FormatInt(mib*limit.inMiB, 10)
		}
		if size != "" { // a number now, or one of the words that the schema lets through: unlimited, 0
			limits[limit.name] = size
		}
	}
	if u.NoFile > 0 {
		limits["nofile"] = strconv.Itoa(u.NoFile)
	}
	return limits
}

// purge are the ages of records in slurmdbd.conf's words.
func purge(r site.Records) map[string]string {
	ages := map[string]string{"job": r.Jobs, "step": r.Steps, "usage": r.Usage}
	for kind, age := range ages {
		if age == "forever" {
			ages[kind] = ""
		}
	}
	return ages
}

// keepValues says which workers stay up, and how they are renewed.
func keepValues(v *values.Pool, pool site.Pool, field string) error {
	damping, err := slurmconf.ParseTime(pool.Damping)
	if err != nil {
		return fmt.Errorf("%s.damping: %w", field, err)
	}
	busyAfter, err := slurmconf.ParseTime(pool.Renew.BusyAfter)
	if err != nil {
		return fmt.Errorf("%s.renew.busyAfter: %w", field, err)
	}
	if damping.IsUnlimited() || busyAfter.IsUnlimited() {
		return fmt.Errorf("%s: damping and renew.busyAfter are times with an end; write for example 5m", field)
	}
	v.DampSeconds = int64(damping.Duration().Seconds())
	v.Renew = values.Renew{Percent: pool.Renew.Percent, BusyAfterSeconds: int64(busyAfter.Duration().Seconds())}
	v.Schedule = []values.KeepWindow{}
	for _, window := range pool.Schedule {
		v.Schedule = append(v.Schedule, values.KeepWindow(window))
	}
	if pool.Headroom != nil {
		v.Headroom = values.Headroom(*pool.Headroom)
	}
	return nil
}

// Accounts is the accounting tree: accounts with parents before children, users and qualities of service by name.
func Accounts(s *site.Site) (v1alpha1.Accounts, error) {
	var tree v1alpha1.Accounts
	order, err := accountOrder(s.Accounts)
	if err != nil {
		return tree, err
	}
	for _, name := range order {
		a := s.Accounts[name]
		tree.Accounts = append(tree.Accounts, v1alpha1.Account{
			Name: name, Parent: a.Parent, Description: a.Description, Shares: int64(a.Shares),
			GrpTRES: wide(a.GrpTRES), GrpTRESMins: wide(a.GrpTRESMins), MaxJobs: int64(a.MaxJobs), MaxSubmit: int64(a.MaxSubmit), QOS: a.QOS,
		})
	}
	for _, name := range sortedNames(s.Users) {
		u := s.Users[name]
		tree.Users = append(tree.Users, v1alpha1.User{
			Name: name, DefaultAccount: u.Account, Accounts: u.Accounts, Shares: int64(u.Shares),
			GrpTRES: wide(u.GrpTRES), MaxJobs: int64(u.MaxJobs), Admin: u.Admin,
		})
	}
	for _, name := range sortedNames(s.Slurm.QOS) {
		q := s.Slurm.QOS[name]
		out := v1alpha1.QOS{
			Name: name, Priority: int64(q.Priority), Preempt: q.Preempt, PreemptMode: q.PreemptMode, Flags: q.Flags,
			GrpTRES: wide(q.GrpTRES), MaxTRESPerUser: wide(q.MaxTRESUser), MaxJobsPerUser: int64(q.MaxJobsUser),
		}
		if q.MaxWall != "" {
			wall, err := slurmconf.ParseTime(q.MaxWall)
			if err != nil {
				return tree, fmt.Errorf("slurm.qos.%s.maxWall: %w", name, err)
			}
			out.MaxWall = wall.String()
		}
		if q.UsageFactor != 0 {
			out.UsageFactor = strconv.FormatFloat(q.UsageFactor, 'f', -1, 64)
		}
		tree.QOS = append(tree.QOS, out)
	}
	return tree, nil
}

// accountOrder lists accounts so that each comes after its parent, siblings by name; a loop is an error.
func accountOrder(accounts map[string]site.Account) ([]string, error) {
	children := map[string][]string{}
	for _, name := range sortedNames(accounts) {
		parent := accounts[name].Parent
		if parent == "root" {
			parent = ""
		}
		if _, known := accounts[parent]; parent != "" && !known {
			return nil, fmt.Errorf("accounts.%s.parent: account %q is not in accounts", name, parent)
		}
		children[parent] = append(children[parent], name)
	}
	var order []string
	var walk func(parent string)
	walk = func(parent string) {
		for _, name := range children[parent] {
			order = append(order, name)
			walk(name)
		}
	}
	walk("")
	if len(order) < len(accounts) {
		placed := map[string]bool{}
		for _, name := range order {
			placed[name] = true
		}
		for _, name := range sortedNames(accounts) {
			if !placed[name] {
				return nil, fmt.Errorf("accounts.%s.parent: the account is its own ancestor; give one of them the parent root", name)
			}
		}
	}
	return order, nil
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func wide(m map[string]int) map[string]int64 {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]int64, len(m))
	for k, v := range m {
		out[k] = int64(v)
	}
	return out
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}
