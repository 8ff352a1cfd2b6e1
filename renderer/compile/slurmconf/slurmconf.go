// Package slurmconf writes a site's Slurm configuration: slurm.conf, gres.conf, cgroup.conf, plugstack.conf and, where they are
// needed, topology.conf, job_submit.lua and the site's hooks as text from typed values. It holds the one place for Slurm's times,
// for GRES strings and for host lists. It never reads a file and knows nothing of Kubernetes objects.
package slurmconf

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/berth-hpc/berth/components/jobsubmit"
	"github.com/berth-hpc/berth/renderer/site"
)

// Names of the services and paths that the chart and the images provide.
const (
	controllerPod     = "slurm-controller-0"
	controllerService = "slurm-controller"
	accountingService = "slurm-accounting"
	programs          = "/usr/libexec/berth"
	jwtKeyFile        = "/etc/slurm-keys/jwt/jwt_hs256.key"
	slurmctldPort     = 6817
	slurmdPort        = 6818
	slurmdbdPort      = 6819
)

// Files builds the configuration directory of the site's cluster, file name to text. The scheduler profile is not in it: the
// chart appends the profile's lines to slurm.conf. An error names the site's field and what to write instead.
func Files(s *site.Site) (map[string]string, error) {
	topology, err := topologyConf(s)
	if err != nil {
		return nil, err
	}
	conf, err := slurmConf(s, topology != "")
	if err != nil {
		return nil, err
	}
	files := map[string]string{
		"slurm.conf": conf,
		"gres.conf":  gresConf(s),
		// Worker pods have no right to make cgroups; limits come from the pod and from jobacct_gather.
		"cgroup.conf": "CgroupPlugin=disabled\n",
		// Debian's own file includes an empty directory, and every slurmd logs an error for it.
		"plugstack.conf": "# No SPANK plugins.\n",
	}
	if topology != "" {
		files[topologyFile] = topology
	}
	if files[hooksFile], err = hooks(s.Slurm.Hooks); err != nil {
		return nil, err
	}
	script, err := jobSubmit(s)
	if err != nil {
		return nil, err
	}
	if script != "" {
		files[jobsubmit.FileName] = script
	}
	return files, nil
}

func slurmConf(s *site.Site, topology bool) (string, error) {
	power, err := powerSaving(s)
	if err != nil {
		return "", err
	}
	scheduling, err := scheduling(s)
	if err != nil {
		return "", err
	}
	if topology {
		scheduling.parameters = append(scheduling.parameters, parameter{"TopologyPlugin", "topology/tree"})
	}
	processes, err := processes(s)
	if err != nil {
		return "", err
	}
	priority, err := priority(s)
	if err != nil {
		return "", err
	}
	limits, err := limits(s)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("# Made by berth from the site. Changes belong in the site; extra lines in slurm.extraLines.\n")
	writeSections(&b, []section{identity(s), processes, power, scheduling, priority, limits, accounting(s)})
	if len(s.Slurm.ExtraLines) > 0 {
		b.WriteString("\n# The site's own lines.\n")
		for i, extra := range s.Slurm.ExtraLines {
			if err := checkText(fmt.Sprintf("slurm.extraLines[%d]", i), extra); err != nil {
				return "", err
			}
			b.WriteString(extra + "\n")
		}
	}
	b.WriteString("\n# Workers, those with the fastest cards first; they exist in Slurm before their pods do.\n")
	weight := weights(s.Pools)
	for _, name := range PoolOrder(s.Pools) {
		l, err := nodeLine(name, s.Pools[name], weight[name])
		if err != nil {
			return "", err
		}
		b.WriteString(l.String() + "\n")
	}
	partitions, err := partitionLines(s)
	if err != nil {
		return "", err
	}
	b.WriteString("\n# Partitions.\n")
	for _, l := range partitions {
		b.WriteString(l.String() + "\n")
	}
	return b.String(), nil
}

func identity(s *site.Site) section {
	inNamespace := func(service string) string {
		return fmt.Sprintf("%s.%s.svc.%s", service, s.Namespaces.Slurm, s.Cluster.Domain)
	}
	return section{"The cluster and how its parts find and trust each other.", []parameter{
		{"ClusterName", s.Cluster.Name},
		{"SlurmctldHost", fmt.Sprintf("%s(%s)", controllerPod, inNamespace(controllerService))},
		{"SlurmctldPort", strconv.Itoa(slurmctldPort)},
		{"SlurmdPort", strconv.Itoa(slurmdPort)},
		{"SlurmUser", "slurm"},
		{"AuthType", "auth/slurm"},
		{"CredType", "cred/slurm"},
		{"AuthAltTypes", "auth/jwt"},
		{"AuthAltParameters", "jwt_key=" + jwtKeyFile},
		{"AuthInfo", "use_client_ids"},
		// Workers have no configuration of their own. The new address that a worker's pod has each time slurmctld takes from
		// the registration; since 24.05 it does so for CLOUD nodes without being told.
		// Every second, not every ten, slurmctld looks which nodes jobs wait for and which have powered down.
		{"SlurmctldParameters", "enable_configless,power_save_interval=1"},
		{"AccountingStorageType", "accounting_storage/slurmdbd"},
		{"AccountingStorageHost", inNamespace(accountingService)},
		{"AccountingStoragePort", strconv.Itoa(slurmdbdPort)},
	}}
}

func processes(s *site.Site) (section, error) {
	hooks, err := hookParameters(s.Slurm.Hooks)
	if err != nil {
		return section{}, err
	}
	parameters := []parameter{
		{"StateSaveLocation", "/var/spool/slurm/state"},
		{"SlurmdSpoolDir", "/var/spool/slurmd"},
		{"SlurmctldPidFile", "/run/slurm/slurmctld.pid"},
		{"SlurmdPidFile", "/run/slurm/slurmd.pid"},
		// A slurmd that comes back without having been asked to has lost its jobs: with 1 slurmctld notices and requeues
		// them, with 2 they stay RUNNING for ever without a process.
		{"ReturnToService", "1"},
		{"ProctrackType", "proctrack/linuxproc"},
		{"TaskPlugin", "task/none"},
		{"JobAcctGatherType", "jobacct_gather/linux"},
		{"JobAcctGatherFrequency", "30"},
		// Without cgroups nothing else ends a job that takes more memory than it asked for, before the pod's limit ends
		// the worker with all its jobs.
		{"JobAcctGatherParams", "OverMemoryKill"},
	}
	parameters = append(append(parameters, hooks...), []parameter{
		// The home directory must exist before a job's first process, srun's and salloc's included.
		{"PrologFlags", "Alloc"},
		{"LaunchParameters", "use_interactive_step"},
		// What a job was not submitted with: its own TMPDIR, a locale, the command module, MPS's pipes.
		{"TaskProlog", programs + "/task-prolog"},
		{"MpiDefault", "none"},
		{"MailProg", "/bin/true"},
		// The login pod's limits say nothing about the workers'.
		{"PropagateResourceLimits", "NONE"},
		{"DisableRootJobs", "YES"},
		{"SrunPortRange", fmt.Sprintf("%d-%d", s.Slurm.SrunPorts.First, s.Slurm.SrunPorts.Last)},
	}...)
	if knowsGetEnvTimeout(s) {
		// For a job with the user's environment (sbatch --get-user-env, every scrontab job) slurmd would start a login shell in
		// a PID namespace of its own. A pod without privilege may not make one, and slurmd ends: any user could end any
		// worker. With 0 it does not try, and the job has the environment that it was submitted with.
		parameters = append(parameters, parameter{"GetEnvTimeout", "0"})
	}
	if s.Variant == "box" {
		// The development machine has none of the declared sizes; slurmctld and slurmd believe slurm.conf.
		parameters = append(parameters, parameter{"SlurmdParameters", "config_overrides"})
	}
	if types := gresTypes(s.Pools); types != "" {
		parameters = append(parameters, parameter{"GresTypes", types})
	}
	return section{"Processes.", parameters}, nil
}

// knowsGetEnvTimeout: since 25.05 Slurm has no such parameter, and job_submit.lua does what it was for (jobsubmit.Settings.NoLoginShell).
func knowsGetEnvTimeout(s *site.Site) bool { return s.Slurm.Version != "26.05" }

func powerSaving(s *site.Site) (section, error) {
	resume, err := ParseTime(s.Slurm.ResumeTimeout)
	if err != nil {
		return section{}, fmt.Errorf("slurm.resumeTimeout: %w", err)
	}
	suspend, err := ParseTime(s.Slurm.SuspendTimeout)
	if err != nil {
		return section{}, fmt.Errorf("slurm.suspendTimeout: %w", err)
	}
	idle := Time{}
	for name, pool := range s.Pools {
		t, err := ParseTime(pool.Idle)
		if err != nil {
			return section{}, fmt.Errorf("pools.%s.idle: %w", name, err)
		}
		if t.unlimited || t.seconds > idle.seconds {
			idle = t
		}
		if idle.unlimited {
			break
		}
	}
	parameters := []parameter{
		{"SuspendProgram", programs + "/suspend"},
		{"ResumeProgram", programs + "/resume"},
		{"ResumeFailProgram", programs + "/resume-fail"},
		// The longest of the pools; each pool's partition has its own.
		{"SuspendTime", idle.SecondsText()},
		{"SuspendTimeout", suspend.SecondsText()},
		{"ResumeTimeout", resume.SecondsText()},
		// What a person drained or set down stays as they left it: powering a node down forgets both.
		{"SuspendExcStates", "DOWN,DRAIN"},
		// slurmctld looks at nodes that power up every 30 s only; a job whose prolog ends starts at once.
		{"PrologSlurmctld", programs + "/prolog-slurmctld"},
		// 0 is no limit. The defaults count jobs, not nodes, and hand a gang its nodes over many seconds.
		{"SuspendRate", "0"},
		{"ResumeRate", "0"},
	}
	var floors []string
	for _, name := range PoolOrder(s.Pools) {
		if pool := s.Pools[name]; pool.Min > 0 {
			floors = append(floors, fmt.Sprintf("%s:%d", PoolNodes(name, pool.Max), pool.Min))
		}
	}
	if len(floors) > 0 {
		parameters = append(parameters, parameter{"SuspendExcNodes", joinComma(floors)})
	}
	return section{"Power saving: Slurm decides which workers are up, their pods follow.", parameters}, nil
}

func limits(s *site.Site) (section, error) {
	killWait, err := ParseTime(s.Slurm.KillWait)
	if err != nil {
		return section{}, fmt.Errorf("slurm.killWait: %w", err)
	}
	parameters := []parameter{
		{"KillWait", killWait.SecondsText()},
		{"SlurmdTimeout", "120"},
		{"MessageTimeout", "30"},
		{"MinJobAge", "300"},
		// A job over its partition's limits is refused when it is submitted, not left to wait for ever.
		{"EnforcePartLimits", "ANY"},
		{"ScronParameters", "enable"},
		{"MaxJobCount", strconv.Itoa(s.Slurm.MaxJobCount)},
		{"MaxArraySize", strconv.Itoa(s.Slurm.MaxArraySize)},
	}
	if len(s.Slurm.PrivateData) > 0 {
		parameters = append(parameters, parameter{"PrivateData", joinComma(s.Slurm.PrivateData)})
	}
	if len(s.Slurm.Licenses) > 0 {
		var licenses []string
		for _, name := range sortedKeys(s.Slurm.Licenses) {
			if err := checkWord("slurm.licenses", name); err != nil {
				return section{}, err
			}
			licenses = append(licenses, fmt.Sprintf("%s:%d", name, s.Slurm.Licenses[name]))
		}
		parameters = append(parameters, parameter{"Licenses", joinComma(licenses)})
	}
	return section{"Limits and patience.", parameters}, nil
}

func accounting(s *site.Site) section {
	parameters := []parameter{
		// Without these names accounting counts no card: no GPU limits and no GPU hours.
		{"AccountingStorageEnforce", "associations,limits,qos,safe"},
		{"AccountingStoreFlags", "job_comment"},
	}
	if tres := trackedTRES(s.Pools); len(tres) > 0 {
		parameters = append([]parameter{{"AccountingStorageTRES", joinComma(tres)}}, parameters...)
	}
	return section{"Accounting.", parameters}
}

// trackedTRES is every kind of generic resource of the pools, untyped and typed, so that limits may name either.
func trackedTRES(pools map[string]site.Pool) []string {
	set := map[string]bool{}
	for _, pool := range pools {
		for _, g := range poolGRES(pool) {
			set["gres/"+g.Name] = true
			set[g.TRES()] = true
		}
	}
	return sortedKeys(set)
}

func gresTypes(pools map[string]site.Pool) string {
	set := map[string]bool{}
	for _, pool := range pools {
		for _, g := range poolGRES(pool) {
			set[g.Name] = true
		}
	}
	types := sortedKeys(set)
	sort.Strings(types)
	return joinComma(types)
}

func gresConf(s *site.Site) string {
	var b strings.Builder
	b.WriteString("# Made by berth from the site: the cards of each pool's workers, as a worker pod sees them.\nAutoDetect=off\n")
	for _, name := range PoolOrder(s.Pools) {
		pool := s.Pools[name]
		for _, l := range poolGRESLines(pool, PoolNodes(name, pool.Max)) {
			b.WriteString(l.String() + "\n")
		}
	}
	return b.String()
}
