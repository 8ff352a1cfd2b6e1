package chart

import (
	"flag"
	"io/fs"
	"os"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/load"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/cli"
	kubefake "helm.sh/helm/v3/pkg/kube/fake"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/renderer/shape"
)

var update = flag.Bool("update", false, "rewrite testdata/*.yaml")

// full sets what the defaults leave out: cards, pinned hosts, sharing, own images, digests, a node port.
func full() map[string]any {
	return map[string]any{
		"images": map[string]any{
			"digests":     map[string]any{"slurm-rest": "sha256:" + strings.Repeat("ab", 32)},
			"pullSecrets": []any{"registry"},
		},
		"slurm": map[string]any{"profile": "learned"},
		"advisor": map[string]any{
			"mode": "shadow", "topology": "rtx4070:1x1", "nodeOrder": []any{"slurm-worker-gpu-rtx4070-", "slurm-worker-cpu-"}, "valueAbstain": 0.25,
			"watch": map[string]any{"qos": []any{"latency"}, "p95WaitSeconds": 600},
		},
		"priorityClasses": map[string]any{"control": "berth-control", "workers": "berth-worker"},
		"users":           map[string]any{"keys": map[string]any{"student": "ssh-ed25519 AAAA student\n"}},
		"modules":         map[string]any{"paths": []any{"/shared/modules/core", "/shared/modules/gpu"}},
		"login":           map[string]any{"nodePort": 30022, "replicas": 2, "nodeSelector": map[string]any{"role": "front"}},
		"network": map[string]any{
			"egress": []any{"0.0.0.0/0"},
			"dns":    map[string]any{"podLabels": map[string]any{"k8s-app": "kube-dns"}, "cidrs": []any{"169.254.20.10/32"}},
		},
		"pools": []any{
			map[string]any{
				"name": "cpu", "min": 0, "max": 4, "hosts": nil, "image": "", "cpus": 2, "memory": "4Gi", "gpus": 0,
				"requests": map[string]any{"cpu": "50m", "memory": "64Mi"}, "limits": nil, "idle": 300, "drainSeconds": 90,
			},
			map[string]any{
				"name": "gpu-rtx4070", "min": 1, "max": 1, "hosts": []any{"ada"}, "image": "registry.lab/own-worker:3",
				"cpus": 8, "memory": "24Gi", "gpus": 1, "env": map[string]any{"NCCL_DEBUG": "INFO"},
				"nodeSelector": map[string]any{"gpu": "ada"}, "runtimeClassName": "nvidia",
				"tolerations": []any{map[string]any{"key": "nvidia.com/gpu", "operator": "Exists"}},
				"idle":        600, "drainSeconds": 120,
				"sharing": map[string]any{"mps": map[string]any{"share": 25, "users": "trusted", "cardMemory": "12Gi"}},
			},
		},
	}
}

func TestGolden(t *testing.T) {
	for name, values := range map[string]map[string]any{"default": nil, "full": full()} {
		text, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		golden := "testdata/" + name + ".yaml"
		if *update {
			if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != text {
			t.Errorf("the chart renders otherwise than %s; if that is meant: go test ./components/chart -update", golden)
		}
		// Flux would replace it if the site had substitution on, and nobody would see why.
		if strings.Contains(text, "${") {
			t.Errorf("%s: the rendered text holds ${", golden)
		}
	}
}

// helm lint finds nothing.
func TestLint(t *testing.T) {
	directory := t.TempDir()
	loaded := loadChart(t)
	if err := chartutil.SaveDir(loaded, directory); err != nil {
		t.Fatal(err)
	}
	lint := action.NewLint()
	lint.Strict = true
	result := lint.Run([]string{directory + "/" + loaded.Name()}, full())
	for _, message := range result.Messages {
		if !strings.Contains(message.Error(), "icon is recommended") {
			t.Error(message)
		}
	}
}

// helm install takes the values and finds nothing wrong with the objects that come out.
func TestInstall(t *testing.T) {
	configuration := &action.Configuration{
		Releases:     storage.Init(driver.NewMemory()),
		KubeClient:   &kubefake.PrintingKubeClient{Out: &strings.Builder{}},
		Capabilities: capabilities(),
		Log:          t.Logf,
	}
	install := action.NewInstall(configuration)
	install.ReleaseName, install.Namespace = "slurm", cli.New().Namespace()
	release, err := install.Run(loadChart(t), full())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(release.Manifest, "kind: WorkerPool") {
		t.Error("the release has no WorkerPool")
	}
}

// Helm itself refuses a wrong value by values.schema.json, before it touches the cluster.
func TestHelmRefusesWrongValues(t *testing.T) {
	releases := storage.Init(driver.NewMemory())
	install := action.NewInstall(&action.Configuration{
		Releases: releases, KubeClient: &kubefake.FailingKubeClient{PrintingKubeClient: kubefake.PrintingKubeClient{Out: &strings.Builder{}}, BuildError: os.ErrInvalid},
		Capabilities: capabilities(), Log: t.Logf,
	})
	install.ReleaseName, install.Namespace = "slurm", cli.New().Namespace()
	values := full()
	values["login"].(map[string]any)["nodePort"] = 22
	_, err := install.Run(loadChart(t), values)
	if err == nil || !strings.Contains(err.Error(), "/login/nodePort") {
		t.Errorf("want a refusal that names login.nodePort, got %v", err)
	}
	if all, err := releases.ListReleases(); err != nil || len(all) > 0 {
		t.Errorf("a release was made of wrong values: %v %v", all, err)
	}
}

// Modules that no job would have are refused.
func TestModulesNeedATaskProlog(t *testing.T) {
	values := full()
	values["slurm"].(map[string]any)["config"] = map[string]any{"files": map[string]any{"slurm.conf": "ClusterName=berth\n"}}
	if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), "modules.paths: slurm.conf sets no TaskProlog") {
		t.Errorf("want a refusal that names modules.paths, got %v", err)
	}
}

// The longest name that a site's pool can have is one that the chart takes.
func TestLongestPoolName(t *testing.T) {
	values := full()
	values["pools"].([]any)[0].(map[string]any)["name"] = "p" + strings.Repeat("o", 46) + "l"
	if _, err := render(t, values); err != nil {
		t.Error(err)
	}
}

// A wrong value is refused with the value's name.
func TestRefusals(t *testing.T) {
	pool := func(change func(map[string]any)) map[string]any {
		values := full()
		pool := values["pools"].([]any)[0].(map[string]any)
		change(pool)
		return values
	}
	tests := []struct {
		name   string
		values map[string]any
		want   string
	}{
		{"misspelt", map[string]any{"clustername": "x"}, "clustername"},
		{"profile", map[string]any{"slurm": map[string]any{"profile": "fifo"}}, "profile"},
		{"no slurm.conf", map[string]any{"slurm": map[string]any{"config": map[string]any{"files": map[string]any{"slurm.conf": nil}}}},
			"slurm.conf"},
		{"scheduler in slurm.conf", map[string]any{"slurm": map[string]any{"config": map[string]any{"files": map[string]any{
			"slurm.conf": "ClusterName=x\nSchedulerType=sched/backfill\n"}}}}, "SchedulerType"},
		{"drain shorter than KillWait", pool(func(p map[string]any) { p["drainSeconds"] = 20 }), "KillWait of 30 s"},
		{"min above max is Kubernetes' to refuse, a name is not", pool(func(p map[string]any) { p["name"] = "GPU_1" }), "name"},
		{"memory", pool(func(p map[string]any) { p["memory"] = 4096 }), "memory"},
		{"sharing", pool(func(p map[string]any) { p["sharing"] = map[string]any{"mps": map[string]any{"share": 0}} }), "share"},
		{"pull policy", map[string]any{"images": map[string]any{"pullPolicy": "never"}}, "pullPolicy"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := render(t, test.values)
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("the message does not name %s: %v", test.want, err)
			}
		})
	}
}

// WorkerPools carry the hash that the Go code computes of the SlurmConfig's files, and the profile's lines are in them.
func TestConfigHash(t *testing.T) {
	found := objects(t, full())
	config := decode[v1alpha1.SlurmConfig](t, found["SlurmConfig/slurm/slurm"])
	if config.ConfigHash() != config.Spec.Hash() {
		t.Errorf("annotation %s, files hash to %s", config.ConfigHash(), config.Spec.Hash())
	}
	pool := decode[v1alpha1.WorkerPool](t, found["WorkerPool/slurm-workers/gpu-rtx4070"])
	if pool.Spec.ConfigHash != config.Spec.Hash() {
		t.Errorf("pool names configuration %s, it is %s", pool.Spec.ConfigHash, config.Spec.Hash())
	}
	if conf := config.Spec.Files["slurm.conf"]; !strings.HasSuffix(conf, "JobSubmitPlugins=lua\n") {
		t.Errorf("slurm.conf does not end with the profile's lines: %q", conf[max(0, len(conf)-80):])
	}
	if config.Spec.Files["job_submit.lua"] == "" {
		t.Error("profile learned without job_submit.lua: slurmctld would not start")
	}
}

// A site's own job_submit.lua wins over the profile's.
func TestOwnJobSubmit(t *testing.T) {
	values := full()
	values["slurm"].(map[string]any)["config"] = map[string]any{"files": map[string]any{"job_submit.lua": "return 0\n"}}
	config := decode[v1alpha1.SlurmConfig](t, objects(t, values)["SlurmConfig/slurm/slurm"])
	if got := config.Spec.Files["job_submit.lua"]; got != "return 0\n" {
		t.Errorf("job_submit.lua is %q", got)
	}
}

// Each profile gives exactly one PriorityType and SchedulerType.
func TestProfiles(t *testing.T) {
	names, err := fs.Glob(Files, Dir+"/files/profiles/*.conf")
	if err != nil || len(names) != 3 {
		t.Fatalf("%v %v", names, err)
	}
	for _, name := range names {
		profile := strings.TrimSuffix(name[strings.LastIndex(name, "/")+1:], ".conf")
		config := decode[v1alpha1.SlurmConfig](t,
			objects(t, map[string]any{"slurm": map[string]any{"profile": profile}})["SlurmConfig/slurm/slurm"])
		for _, key := range []string{"\nPriorityType=", "\nSchedulerType="} {
			if n := strings.Count(config.Spec.Files["slurm.conf"], key); n != 1 {
				t.Errorf("%s: %d lines %s", profile, n, strings.TrimSpace(key))
			}
		}
	}
}

// What a push often changes (pools, users, configuration, accounts) leaves the pod templates of the control plane as they
// are: slurmctld and slurmdbd are not restarted for it.
func TestControlPlaneDoesNotRestart(t *testing.T) {
	before := objects(t, nil)
	values := map[string]any{
		"slurm": map[string]any{"profile": "fcfs", "accounts": map[string]any{"qos": []any{map[string]any{"name": "high"}}}},
		"users": map[string]any{"passwd": "a:x:3000:3000::/home/a:/bin/bash\n", "group": "a:x:3000:\n",
			"keys": map[string]any{"a": "ssh-ed25519 AAAA\n"}},
		"pools": full()["pools"],
	}
	for key, object := range objects(t, values) {
		templates := podTemplates(t, object)
		if len(templates) == 0 || object.GetKind() == "WorkerPool" {
			continue
		}
		if was := podTemplates(t, before[key]); !equal(was, templates) {
			t.Errorf("%s restarts", key)
		}
	}
}

// values.schema.json is what the definition of the values in values.cue says.
func TestValuesSchemaIsTheDefinition(t *testing.T) {
	instances := load.Instances([]string{"./components/chart"}, &load.Config{Dir: "../..", Env: append(os.Environ(), "CUE_REGISTRY=none")})
	definition := cuecontext.New().BuildInstance(instances[0]).LookupPath(cue.ParsePath("#Values"))
	if err := definition.Err(); err != nil {
		t.Fatal(err)
	}
	values, err := shape.Of(definition)
	if err != nil {
		t.Fatal(err)
	}
	want, err := values.JSONSchema("Values of slurm-platform")
	if err != nil {
		t.Fatal(err)
	}
	const file = "slurm-platform/values.schema.json"
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != string(want) {
		t.Errorf("%s is not made from values.cue; go test ./components/chart -update", file)
	}
}
