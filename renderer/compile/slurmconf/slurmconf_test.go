package slurmconf

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-hpc/berth/renderer/site"
)

func TestTimes(t *testing.T) {
	for _, c := range []struct{ in, slurm, seconds, minutes string }{
		{"30", "0-00:30:00", "1800", "30"}, // minutes, as sbatch --time has it
		{"90:30", "0-01:30:30", "5430", "91"},
		{"1:30:00", "0-01:30:00", "5400", "90"},
		{"2-12", "2-12:00:00", "216000", "3600"},
		{"2-12:30", "2-12:30:00", "217800", "3630"},
		{"7-00:00:00", "7-00:00:00", "604800", "10080"},
		{"24h", "1-00:00:00", "86400", "1440"},
		{"7d", "7-00:00:00", "604800", "10080"},
		{"1w2d", "9-00:00:00", "777600", "12960"},
		{"90s", "0-00:01:30", "90", "2"},
		{"1h30m", "0-01:30:00", "5400", "90"},
		{"1.5h", "0-01:30:00", "5400", "90"},
		{"1500ms", "0-00:00:02", "2", "1"}, // a limit never becomes shorter
		{"UNLIMITED", "UNLIMITED", "INFINITE", "INFINITE"},
		{"infinite", "UNLIMITED", "INFINITE", "INFINITE"},
	} {
		got, err := ParseTime(c.in)
		if err != nil {
			t.Errorf("ParseTime(%q): %v", c.in, err)
			continue
		}
		if got.String() != c.slurm || got.SecondsText() != c.seconds || got.MinutesText() != c.minutes {
			t.Errorf("ParseTime(%q) = %s, %s s, %s min; want %s, %s, %s", c.in, got, got.SecondsText(), got.MinutesText(), c.slurm, c.seconds, c.minutes)
		}
	}
	for _, wrong := range []string{"", "soon", "1:2:3:4", "-5", "1-", "12x", "7 d", "1h-2", "99999999999999999999"} {
		if got, err := ParseTime(wrong); err == nil {
			t.Errorf("ParseTime(%q) = %s, want an error", wrong, got)
		}
	}
}

func TestTimeReadsWhatItWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Seconds(rapid.Int64Range(0, maxSeconds).Draw(t, "seconds"))
		got, err := ParseTime(want.String())
		if err != nil || got != want {
			t.Fatalf("ParseTime(%q) = %v, %v", want, got, err)
		}
	})
}

func FuzzParseTime(f *testing.F) {
	f.Add("2-12:00:00")
	f.Add("1h30m")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseTime(text)
		if err != nil {
			return
		}
		if again, err := ParseTime(got.String()); err != nil || again != got {
			t.Fatalf("%q is %v, which reads as %v, %v", text, got, again, err)
		}
	})
}

func TestHostlist(t *testing.T) {
	for _, c := range []struct {
		in   []string
		want string
	}{
		{nil, ""},
		{[]string{"c0"}, "c0"},
		{[]string{"c2", "c0", "c1", "c1"}, "c[0-2]"},
		{[]string{"c0", "c2", "c3", "d7", "login"}, "c[0,2-3],d7,login"},
		{[]string{"a-9", "a-10", "a-11"}, "a-[9-11]"},
		{[]string{"a-01", "a-02"}, "a-0[1-2]"},
	} {
		if got := Hostlist(c.in); got != c.want {
			t.Errorf("Hostlist(%v) = %q, want %q", c.in, got, c.want)
		}
	}
}

// expand is the reverse of Hostlist, written plainly.
func expand(list string) []string {
	var names []string
	depth, start := 0, 0
	var parts []string
	for i, r := range list + "," {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case r == ',' && depth == 0:
			parts = append(parts, list[start:i])
			start = i + 1
		}
	}
	for _, part := range parts {
		prefix, ranges, found := strings.Cut(part, "[")
		if !found {
			names = append(names, part)
			continue
		}
		for _, r := range strings.Split(strings.TrimSuffix(ranges, "]"), ",") {
			var from, to int
			if n, _ := fmt.Sscanf(r, "%d-%d", &from, &to); n == 1 {
				to = from
			}
			for i := from; i <= to; i++ {
				names = append(names, fmt.Sprint(prefix, i))
			}
		}
	}
	return names
}

func TestHostlistLosesNoName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprintf("%s-%d", rapid.SampledFrom([]string{"a", "b", "a-b"}).Draw(t, "prefix"), rapid.IntRange(0, 30).Draw(t, "i"))
		}), 1, 40, rapid.ID).Draw(t, "names")
		want := map[string]bool{}
		for _, name := range names {
			want[name] = true
		}
		got := expand(Hostlist(names))
		if len(got) != len(want) {
			t.Fatalf("%v became %q", names, Hostlist(names))
		}
		for _, name := range got {
			if !want[name] {
				t.Fatalf("%q has %s, which is not in %v", Hostlist(names), name, names)
			}
		}
	})
}

// lab is a small site with two kinds of cards.
func lab() *site.Site {
	gpu := func(model string, speed float64) site.Pool {
		return site.Pool{
			Max: 2, CPUs: 8, Memory: "32Gi", GPUs: 1, Model: model, Speed: speed, Idle: "10m", DrainTimeout: "2m",
			Sharing: site.Sharing{MPS: &site.MPS{Share: 25, Users: "trusted"}}, Partition: site.Partition{State: "UP", PriorityTier: 1},
		}
	}
	return &site.Site{
		Name: "lab", Variant: "production",
		Cluster:    site.Cluster{Name: "lab", Domain: "cluster.local", TimeZone: "Etc/UTC"},
		Namespaces: site.Namespaces{Slurm: "slurm", Workers: "slurm-workers"},
		Pools: map[string]site.Pool{
			"cpu":  {Min: 1, Max: 4, CPUs: 2, Memory: "4Gi", Idle: "5m", Partition: site.Partition{State: "UP", Default: true, MaxTime: "1d", PriorityTier: 1}},
			"slow": gpu("rtx3080", 1), "fast": gpu("rtx4070", 1.3),
		},
		Slurm: site.Slurm{
			DefMemPerCPU: "1Gi", KillWait: "30s", ResumeTimeout: "10m", SuspendTimeout: "1m", MaxJobCount: 100000, MaxArraySize: 10001,
			Preemption: site.Preemption{Type: "none", Mode: "off"}, SrunPorts: site.PortRange{First: 60001, Last: 63000},
			Priority:   site.Priority{DecayHalf: "7d", MaxAge: "7d", FairTree: true},
			Backfill:   site.Backfill{Enabled: true, Interval: "30s", Window: "7d", Resolution: "3m", MaxJobs: 1000},
			Partitions: map[string]site.Partition{"gpu": {Pools: []string{"slow", "fast"}, State: "UP", PriorityTier: 1}},
		},
	}
}

func build(t *testing.T, s *site.Site) map[string]string {
	t.Helper()
	files, err := Files(s)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// wantLine demands one line of the configuration, exactly.
func wantLine(t *testing.T, conf, line string) {
	t.Helper()
	for _, have := range strings.Split(conf, "\n") {
		if have == line {
			return
		}
	}
	t.Errorf("no line %q in:\n%s", line, conf)
}

func TestFastestCardsComeFirst(t *testing.T) {
	conf := build(t, lab())["slurm.conf"]
	var nodes []string
	for _, line := range strings.Split(conf, "\n") {
		if strings.HasPrefix(line, "NodeName=") {
			nodes = append(nodes, strings.Fields(line)[0])
		}
	}
	want := []string{"NodeName=slurm-worker-fast-[0-1]", "NodeName=slurm-worker-slow-[0-1]", "NodeName=slurm-worker-cpu-[0-3]"}
	if fmt.Sprint(nodes) != fmt.Sprint(want) {
		t.Errorf("nodes in order %v, want %v", nodes, want)
	}
	wantLine(t, conf, "NodeName=slurm-worker-fast-[0-1] CPUs=8 RealMemory=32768 Gres=gpu:rtx4070:1,mps:rtx4070:100 Feature=fast,rtx4070 Weight=100 State=CLOUD")
	wantLine(t, conf, "NodeName=slurm-worker-cpu-[0-3] CPUs=2 RealMemory=4096 Feature=cpu Weight=10 State=CLOUD")
	wantLine(t, conf, "PartitionName=gpu Nodes=slurm-worker-fast-[0-1],slurm-worker-slow-[0-1] State=UP PriorityTier=1")
}

// L6: the daemons write their logs where the container's runtime reads them, which it always does: no file, and no pipe of ours that fills and
// blocks slurmctld.
func TestNoLogFiles(t *testing.T) {
	conf := build(t, lab())["slurm.conf"]
	for line := range strings.Lines(conf) {
		if key, _, _ := strings.Cut(strings.ToLower(line), "="); strings.HasSuffix(key, "logfile") || strings.Contains(key, "syslog") {
			t.Errorf("slurm.conf says %s", line)
		}
	}
}

// Slurm's defaults that hurt are all set (what each costs stands beside it in the code).
func TestDefaultsThatBiteAreSet(t *testing.T) {
	conf := build(t, lab())["slurm.conf"]
	for _, line := range []string{
		"MaxArraySize=10001", "MaxJobCount=100000", "SrunPortRange=60001-63000", "DefMemPerCPU=1024", "ReturnToService=1",
		"AccountingStorageTRES=gres/gpu,gres/gpu:rtx3080,gres/gpu:rtx4070,gres/mps,gres/mps:rtx3080,gres/mps:rtx4070",
		"AccountingStorageEnforce=associations,limits,qos,safe", "SlurmdTimeout=120", "KillWait=30", "SuspendRate=0", "ResumeRate=0",
		"ResumeTimeout=600", "SuspendTimeout=60", "SuspendTime=600", "SuspendExcNodes=slurm-worker-cpu-[0-3]:1", "SlurmctldParameters=enable_configless,power_save_interval=1",
		"GresTypes=gpu,mps", "LaunchParameters=use_interactive_step",
	} {
		wantLine(t, conf, line)
	}
	wantLine(t, conf, "PartitionName=cpu Nodes=slurm-worker-cpu-[0-3] State=UP Default=YES MaxTime=1-00:00:00 PriorityTier=1 SuspendTime=300")
	if strings.Contains(conf, "config_overrides") {
		t.Error("a production site believes sizes that nobody has")
	}
	box := lab()
	box.Variant = "box"
	wantLine(t, build(t, box)["slurm.conf"], "SlurmdParameters=config_overrides")
}

func TestSharing(t *testing.T) {
	s := lab()
	conf := build(t, s)
	wantLine(t, conf["gres.conf"], "NodeName=slurm-worker-fast-[0-1] Name=gpu Type=rtx4070 File=/run/berth/cards/nvidia0")
	wantLine(t, conf["gres.conf"], "NodeName=slurm-worker-fast-[0-1] Name=mps Type=rtx4070 Count=100 File=/run/berth/cards/nvidia0")
	if strings.Contains(conf["slurm.conf"], "ExclusiveUser") {
		t.Error("trusted users are kept apart")
	}

	fast := s.Pools["fast"]
	fast.Sharing.MPS.Users = "one"
	s.Pools["fast"] = fast
	text := build(t, s)["slurm.conf"]
	wantLine(t, text, "PartitionName=fast Nodes=slurm-worker-fast-[0-1] State=UP PriorityTier=1 ExclusiveUser=YES SuspendTime=600")
	wantLine(t, text, "PartitionName=gpu Nodes=slurm-worker-fast-[0-1],slurm-worker-slow-[0-1] State=UP PriorityTier=1 ExclusiveUser=YES")
	if strings.Contains(lineOf(text, "PartitionName=slow"), "ExclusiveUser") {
		t.Error("a pool of trusted users is kept apart, because another's is not")
	}

	fast.GPUs, fast.Sharing = 2, site.Sharing{Shard: &site.Shard{Count: 4}}
	s.Pools["fast"] = fast
	shards := build(t, s)
	wantLine(t, shards["gres.conf"], "NodeName=slurm-worker-fast-[0-1] Name=shard Type=rtx4070 Count=4 File=/run/berth/cards/nvidia1")
	if line := lineOf(shards["slurm.conf"], "NodeName=slurm-worker-fast"); !strings.Contains(line, "Gres=gpu:rtx4070:2,shard:rtx4070:8 ") {
		t.Errorf("two cards of four shards: %s", line)
	}
	wantLine(t, shards["slurm.conf"], "GresTypes=gpu,mps,shard")
}

func lineOf(text, prefix string) string {
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, prefix) {
			return line
		}
	}
	return ""
}

// L6: nothing that a site says ends a line of slurm.conf and begins another.
func TestNoTextOfTheSiteMakesALine(t *testing.T) {
	const evil = "x\nSlurmUser=root"
	for field, change := range map[string]func(*site.Site){
		"slurm.extraLines[0]":        func(s *site.Site) { s.Slurm.ExtraLines = []string{evil} },
		"pools.fast.features[0]":     func(s *site.Site) { p := s.Pools["fast"]; p.Features = []string{evil}; s.Pools["fast"] = p },
		"slurm.partitions.gpu (QOS)": func(s *site.Site) { p := s.Slurm.Partitions["gpu"]; p.QOS = "a b"; s.Slurm.Partitions["gpu"] = p },
		"slurm.licenses":             func(s *site.Site) { s.Slurm.Licenses = map[string]int{"a b": 1} },
	} {
		s := lab()
		change(s)
		_, err := Files(s)
		if err == nil || !strings.HasPrefix(err.Error(), field) {
			t.Errorf("%s: error %v", field, err)
		}
	}
}

func TestErrorsNameTheField(t *testing.T) {
	pool := func(name string, change func(*site.Pool)) func(*site.Site) {
		return func(s *site.Site) { p := s.Pools[name]; change(&p); s.Pools[name] = p }
	}
	for want, change := range map[string]func(*site.Site){
		`pools.cpu.idle: "soon" is not a time`:                     pool("cpu", func(p *site.Pool) { p.Idle = "soon" }),
		`pools.cpu.memory: "much" is not an amount of memory`:      pool("cpu", func(p *site.Pool) { p.Memory = "much" }),
		`pools.cpu.partition.maxTime: "soon" is not a time`:        pool("cpu", func(p *site.Pool) { p.Partition.MaxTime = "soon" }),
		`slurm.killWait: "soon" is not a time`:                     func(s *site.Site) { s.Slurm.KillWait = "soon" },
		`slurm.preemption.type: "all" is not a kind of preemption`: func(s *site.Site) { s.Slurm.Preemption.Type = "all" },
		`slurm.backfill.window: backfill needs a bounded time`:     func(s *site.Site) { s.Slurm.Backfill.Window = "UNLIMITED" },
		`slurm.partitions.gpu.pools: pool "big" is not in pools`:   func(s *site.Site) { s.Slurm.Partitions["gpu"] = site.Partition{Pools: []string{"big"}} },
		`slurm.partitions.none: partition "none" has no nodes`:     func(s *site.Site) { s.Slurm.Partitions["none"] = site.Partition{} },
		`slurm.defMemPerCPU: "10Ki" is less than one MiB`:          func(s *site.Site) { s.Slurm.DefMemPerCPU = "10Ki" },
		`slurm.priority.decayHalfLife: "long" is not a time`:       func(s *site.Site) { s.Slurm.Priority.DecayHalf = "long" },
	} {
		s := lab()
		change(s)
		if _, err := Files(s); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %q…", err, want)
		}
	}
}

func TestBackfillOff(t *testing.T) {
	s := lab()
	s.Slurm.Backfill.Enabled = false
	wantLine(t, build(t, s)["slurm.conf"], "SchedulerParameters=default_queue_depth=1000,enable_user_top,sched_interval=10,bf_interval=-1")
}

// A thousand nodes and a hundred partitions stay short, because ranges are compressed.
func TestLargeSitesStayShort(t *testing.T) {
	s := lab()
	all := []string{}
	for i := range 100 {
		name := fmt.Sprintf("pool%02d", i)
		s.Pools[name] = site.Pool{Max: 10, CPUs: 64, Memory: "256Gi", Idle: "10m", Partition: site.Partition{State: "UP", PriorityTier: 1}}
		all = append(all, name)
	}
	s.Slurm.Partitions["all"] = site.Partition{Pools: all, State: "UP", PriorityTier: 1}
	for _, line := range strings.Split(build(t, s)["slurm.conf"], "\n") {
		if len(line) > 4096 {
			t.Errorf("a line of %d characters", len(line))
		}
	}
}

// L6: the order of lines is the same however the site's maps are walked, so that no render is a needless reconfigure.
func TestSameSiteSameText(t *testing.T) {
	want := build(t, lab())
	for range 20 {
		s := lab()
		// Maps filled in another order.
		names := []string{"cpu", "slow", "fast"}
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		pools := map[string]site.Pool{}
		for _, name := range names {
			pools[name] = s.Pools[name]
		}
		s.Pools = pools
		if got := build(t, s); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatal("another order of pools gave another text")
		}
	}
}

// A worker's rack is known where its pool's hosts are all in one, or where each worker has a host of its own. The others must
// still share jobs with them.
func TestRacksBecomeSwitches(t *testing.T) {
	s := lab()
	s.Hosts = map[string]site.Host{"a": {Rack: "r1"}, "b": {Rack: "r1"}, "c": {Rack: "r2"}, "d": {}}
	if files := build(t, s); files["topology.conf"] != "" || strings.Contains(files["slurm.conf"], "TopologyPlugin") {
		t.Error("a topology without a worker whose rack is known")
	}
	on := func(pool string, hosts ...string) { p := s.Pools[pool]; p.Hosts = hosts; s.Pools[pool] = p }
	on("cpu", "a", "b")  // four workers on any of two hosts, both in r1
	on("slow", "b", "c") // two workers, one on each
	files := build(t, s)
	want := `SwitchName=pool-fast Nodes=slurm-worker-fast-[0-1]
SwitchName=rack-r1 Nodes=slurm-worker-cpu-[0-3],slurm-worker-slow-0
SwitchName=rack-r2 Nodes=slurm-worker-slow-1
SwitchName=site Switches=pool-fast,rack-r1,rack-r2
`
	if _, switches, _ := strings.Cut(files["topology.conf"], "\n"); switches != want {
		t.Errorf("got %s want %s", switches, want)
	}
	wantLine(t, files["slurm.conf"], "TopologyPlugin=topology/tree")
	on("cpu", "a", "c", "b") // anywhere in two racks
	on("slow", "a", "d")     // the rack of one host is not said
	files = build(t, s)
	wantLine(t, files["topology.conf"], "SwitchName=pool-cpu Nodes=slurm-worker-cpu-[0-3]")
	wantLine(t, files["topology.conf"], "SwitchName=pool-slow Nodes=slurm-worker-slow-1")
}

// A site without hooks of its own has the image's, and health checks only where it has some.
func TestImageHooks(t *testing.T) {
	for name, c := range map[string]struct {
		hooks site.Hooks
		want  string
	}{
		"none":     {site.Hooks{}, "[{Prolog site-hooks} {Epilog site-hooks}]"},
		"a prolog": {site.Hooks{Prolog: map[string]string{"x": "#!/bin/sh\n"}}, "[{Prolog site-hooks} {Epilog site-hooks}]"},
		"a check": {site.Hooks{Interval: "5m", HealthCheck: map[string]string{"x": "#!/bin/sh\n"}},
			"[{Prolog site-hooks} {Epilog site-hooks} {HealthCheckProgram /run/slurm/conf/site-hooks} {HealthCheckInterval 300} {HealthCheckNodeState ANY}]"},
	} {
		parameters, err := hookParameters(c.hooks)
		if got := fmt.Sprint(parameters); err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, c.want)
		}
	}
	// An image from before the epilog lets jobs end without it, and its node is not drained.
	text, err := hooks(site.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", text)
	cmd.Env = []string{"SLURM_SCRIPT_CONTEXT=epilog_slurmd"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("without the image's epilog: %v %s", err, out)
	}
}

// No release of Slurm starts login shells on workers: by a parameter where there is one, and else by job_submit.lua.
func TestLoginShells(t *testing.T) {
	for version, parameter := range map[string]bool{"24.11": true, "26.05": false} {
		s := lab()
		s.Slurm.Version = version
		conf := build(t, s)
		has, script := strings.Contains(conf["slurm.conf"], "GetEnvTimeout=0\n"), strings.Contains(conf["job_submit.lua"], "no_login_shell = true")
		if has != parameter || script == parameter {
			t.Errorf("Slurm %s: GetEnvTimeout is %t, in job_submit.lua %t", version, has, script)
		}
	}
}
