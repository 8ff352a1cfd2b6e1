package platform

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/berth-hpc/berth/components/chart"
	"github.com/berth-hpc/berth/renderer/load"
	"github.com/berth-hpc/berth/renderer/site"
)

// Every value that we set is one that the chart documents: a misspelt or renamed one would be ignored without a word.
func TestTheChartKnowsEveryValue(t *testing.T) {
	text, err := fs.ReadFile(chart.Files, chart.Dir+"/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var documented map[string]any
	if err := yaml.Unmarshal(text, &documented); err != nil {
		t.Fatal(err)
	}
	sites, err := load.Load("../../../clusters")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sites {
		v, err := Values(s)
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var set map[string]any
		if err := json.Unmarshal(encoded, &set); err != nil {
			t.Fatal(err)
		}
		for _, path := range unknown(set, documented, "") {
			t.Errorf("%s sets %s, which values.yaml does not have", s.Name, path)
		}
	}
}

// free are maps whose keys are the site's own.
var free = map[string]bool{
	"images.digests": true, "slurm.config.files": true, "users.keys": true, "pools[].env": true, "pools[].nodeSelector": true,
	"pools[].requests": true, "pools[].limits": true, "pools[].sharing": true, "pools[].tolerations": true,
	"slurm.accounts": true, "slurm.reservations": true, // typed by the custom resource itself
}

func unknown(set, documented any, path string) []string {
	if free[path] {
		return nil
	}
	switch s := set.(type) {
	case map[string]any:
		d, _ := documented.(map[string]any)
		var out []string
		for key, value := range s {
			below := strings.TrimPrefix(path+"."+key, ".")
			if known, ok := d[key]; !ok {
				out = append(out, below)
			} else {
				out = append(out, unknown(value, known, below)...)
			}
		}
		return out
	case []any:
		d, _ := documented.([]any)
		var out []string
		for _, value := range s {
			var first any
			if len(d) > 0 {
				first = d[0]
			}
			out = append(out, unknown(value, first, path+"[]")...)
		}
		return out
	}
	return nil
}

func TestAccountsComeAfterTheirParents(t *testing.T) {
	s := &site.Site{Accounts: map[string]site.Account{
		"a": {Parent: "z"}, "z": {Parent: "m"}, "m": {Parent: "root"}, "b": {},
	}}
	tree, err := Accounts(s)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, account := range tree.Accounts {
		order = append(order, account.Name)
	}
	if got := fmt.Sprint(order); got != "[b m z a]" {
		t.Errorf("order %s, want [b m z a]", got)
	}
	s.Accounts["m"] = site.Account{Parent: "a"}
	if _, err := Accounts(s); err == nil || !strings.HasPrefix(err.Error(), "accounts.a.parent: the account is its own ancestor") {
		t.Errorf("a loop: %v", err)
	}
	s.Accounts["m"] = site.Account{Parent: "nobody"}
	if _, err := Accounts(s); err == nil || !strings.HasPrefix(err.Error(), `accounts.m.parent: account "nobody"`) {
		t.Errorf("an unknown parent: %v", err)
	}
}

// The box asks the machine for little, and Slurm believes the declared sizes.
func TestTheBoxIsSmall(t *testing.T) {
	sites, err := load.Load("../../../clusters", "lab-box")
	if err != nil {
		t.Fatal(err)
	}
	v, err := Values(sites[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, pool := range v.Pools {
		if pool.Requests["cpu"] != "50m" || pool.Requests["memory"] != "64Mi" || pool.Limits["cpu"] != "" {
			t.Errorf("pool %s: requests %v, limits %v", pool.Name, pool.Requests, pool.Limits)
		}
		if pool.RuntimeClassName != "" {
			t.Errorf("pool %s wants the runtime class %s, which the box has not", pool.Name, pool.RuntimeClassName)
		}
		if pool.CPUs != sites[0].Pools[pool.Name].CPUs {
			t.Errorf("pool %s: Slurm is told %d CPUs", pool.Name, pool.CPUs)
		}
	}
	if !strings.Contains(v.Slurm.Config.Files["slurm.conf"], "SlurmdParameters=config_overrides") {
		t.Error("Slurm is not told to believe")
	}
}

// Modules are declared below the shared volume; pods look for them where it is mounted, and slurm.conf gives them to jobs.
func TestModules(t *testing.T) {
	sites, err := load.Load("../../../clusters")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"campus": "[/shared/modules/core /shared/modules/gpu]"}
	for _, s := range sites {
		v, err := Values(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(v.Modules.Paths); got != orNone(want[s.Name]) {
			t.Errorf("%s: module files in %s, want %s", s.Name, got, orNone(want[s.Name]))
		}
		if !strings.Contains(v.Slurm.Config.Files["slurm.conf"], "\nTaskProlog=/usr/libexec/berth/task-prolog\n") {
			t.Errorf("%s: jobs have no TaskProlog to tell them of modules", s.Name)
		}
	}
}

func orNone(list string) string {
	if list == "" {
		return "[]"
	}
	return list
}

// Records are purged at the site's ages, and limits of processes are what the shell's ulimit takes; without any, workers have none of
// either's words.
func TestRecordsAndLimits(t *testing.T) {
	sites, err := load.Load("../../../clusters", "lab")
	if err != nil {
		t.Fatal(err)
	}
	s := sites[0]
	v, err := Values(s)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(v.Accounting.Purge, len(v.Pools[0].Ulimits)); got != "map[job:36months step:12months usage:60months] 0" {
		t.Errorf("by default: %s", got)
	}
	pool := s.Pools["cpu"]
	pool.Ulimits = site.Ulimits{Memlock: "unlimited", NoFile: 65536, Stack: "64Mi", Core: "0"}
	s.Pools["cpu"] = pool
	gpu := s.Pools["gpu-rtx3080"]
	gpu.Ulimits = site.Ulimits{Memlock: "1Gi", Core: "2Mi"}
	s.Pools["gpu-rtx3080"] = gpu
	s.Slurm.Records = site.Records{Jobs: "forever", Steps: "400days", Usage: "12months"}
	if v, err = Values(s); err != nil {
		t.Fatal(err)
	}
	for _, p := range v.Pools {
		want := map[string]string{
			"cpu": "map[core:0 memlock:unlimited nofile:65536 stack:65536]", "gpu-rtx3080": "map[core:4096 memlock:1048576]", "gpu-rtx4070": "map[]",
		}[p.Name]
		if got := fmt.Sprint(p.Ulimits); got != want {
			t.Errorf("pool %s: %s, want %s", p.Name, got, want)
		}
	}
	if got := fmt.Sprint(v.Accounting.Purge); got != "map[job: step:400days usage:12months]" {
		t.Errorf("purge %s", got)
	}
}
