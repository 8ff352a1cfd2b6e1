package compile_test

import (
	"fmt"
	"io/fs"
	"reflect"
	"regexp"
	"runtime"
	"sort"
	"strings"
	"testing"

	"github.com/berth-hpc/berth/components/api"
	"github.com/berth-hpc/berth/components/chart"
	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/compile/foundation"
	"github.com/berth-hpc/berth/renderer/compile/helmchart"
	"github.com/berth-hpc/berth/renderer/load"
	"github.com/berth-hpc/berth/renderer/site"
)

func parts() compile.Parts {
	return compile.Parts{Chart: chart.Files, ChartDir: chart.Dir, CRDs: api.CRDs()}
}

func shipped(t *testing.T) map[string]*site.Site {
	t.Helper()
	sites, err := load.Load("../../clusters")
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*site.Site{}
	for _, s := range sites {
		byName[s.Name] = s
	}
	return byName
}

// text is everything that is rendered of a site, as one text.
func text(t *testing.T, s *site.Site) (string, error) {
	t.Helper()
	result, err := compile.Compile(s, parts())
	if err != nil {
		return "", err
	}
	var b strings.Builder
	var files []string
	for file := range result.Entry {
		files = append(files, file)
	}
	sort.Strings(files)
	for _, file := range files {
		yaml, err := result.Entry[file].YAML()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "# %s\n%s", file, yaml)
	}
	for _, layer := range result.Layers {
		for _, o := range layer.Objects {
			yaml, err := o.YAML()
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "--- %s\n%s", layer.Name, yaml)
		}
	}
	return b.String(), nil
}

func TestSameSiteSameBytes(t *testing.T) {
	for name, s := range shipped(t) {
		want, err := text(t, s)
		if err != nil {
			t.Fatal(err)
		}
		for _, processors := range []int{1, 2, 8} {
			before := runtime.GOMAXPROCS(processors)
			got, err := text(t, s)
			runtime.GOMAXPROCS(before)
			if err != nil || got != want {
				t.Errorf("%s: another text with %d processors (%v)", name, processors, err)
			}
		}
	}
}

// Flux would replace ${VAR} where its substitution is on. It is on nowhere, so a site's own text keeps its dollar signs.
func TestFluxSubstitutesNothing(t *testing.T) {
	lab := shipped(t)["lab"]
	lab.Slurm.ExtraLines = []string{"TmpFS=/tmp/${USER}"}
	for _, mode := range []string{"helm", "manifests"} {
		lab.Delivery.Mode = mode
		got, err := text(t, lab)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got, "TmpFS=/tmp/${USER}") {
			t.Errorf("%s: the site's own text did not survive", mode)
		}
		if strings.Contains(got, "postBuild") || strings.Contains(got, "substitute") {
			t.Errorf("%s: Flux is told to substitute", mode)
		}
	}
}

// S3: no count of workers is rendered that an autoscaler would fight over, and a larger pool changes nothing about the workers
// that it has: their template stays.
func TestS3NoReplicaCountOfWorkers(t *testing.T) {
	for name, s := range shipped(t) {
		s.Delivery.Mode = "manifests" // what the chart makes is in the layers
		before := workerTemplates(t, name, s)
		if len(before) != len(s.Pools) {
			t.Errorf("%s: %d of %d pools are rendered", name, len(before), len(s.Pools))
		}
		for pool, p := range s.Pools {
			p.Max++
			s.Pools[pool] = p
		}
		if after := workerTemplates(t, name, s); !reflect.DeepEqual(before, after) {
			t.Errorf("%s: growing pools changes the workers that are up", name)
		}
	}
}

// workerTemplates are the pods' templates by pool. It demands that nothing but these pools makes workers or counts pods.
func workerTemplates(t *testing.T, name string, s *site.Site) map[string]any {
	t.Helper()
	result, err := compile.Compile(s, parts())
	if err != nil {
		t.Fatal(err)
	}
	templates := map[string]any{}
	for _, layer := range result.Layers {
		for _, o := range layer.Objects {
			spec, _ := o.Content()["spec"].(map[string]any)
			_, counted := spec["replicas"]
			switch {
			case o.Kind() == "WorkerPool":
				templates[o.Name()] = spec["template"]
				if counted {
					t.Errorf("%s: %s has a replica count", name, o.ID())
				}
			case counted && o.Namespace() == s.Namespaces.Workers && o.Name() != "slurm-login":
				t.Errorf("%s: %s counts pods among the workers", name, o.ID())
			case o.Kind() == "HorizontalPodAutoscaler" || o.Kind() == "ScaledObject":
				t.Errorf("%s: %s would change counts beside the site", name, o.ID())
			}
		}
	}
	return templates
}

// S27: nothing in our chart is drawn by lot or taken from the clock or the cluster, which would change at each render.
func TestS27NothingIsRandom(t *testing.T) {
	unsteady := regexp.MustCompile(`\b(rand[A-Z][A-Za-z]*|gen[A-Z][A-Za-z]*|uuidv4|now|ago|htpasswd|bcrypt|derivePassword|encryptAES|lookup|env|expandenv|getHostByName|shuffle)\b`)
	action := regexp.MustCompile(`(?s)\{\{(.*?)\}\}`)
	quoted := regexp.MustCompile(`"[^"]*"|/\*(?s:.*?)\*/|[.$][A-Za-z][A-Za-z.]*`)
	looked := 0
	err := fs.WalkDir(chart.Files, chart.Dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.Contains(name, "/templates/") {
			return err
		}
		looked++
		text, err := fs.ReadFile(chart.Files, name)
		for _, a := range action.FindAllStringSubmatch(string(text), -1) {
			if found := unsteady.FindString(quoted.ReplaceAllString(a[1], "")); found != "" {
				t.Errorf("%s calls %s: its output is not the same at each render", name, found)
			}
		}
		return err
	})
	if err != nil || looked < 10 {
		t.Errorf("looked at %d templates (%v)", looked, err)
	}
}

// S18: Helm's SDKs differ in what they make of a null in the values of a subchart. None is rendered, and our chart has no
// subchart.
func TestS18NoNullIsRendered(t *testing.T) {
	loaded, err := helmchart.Load(chart.Files, chart.Dir)
	if err != nil || len(loaded.Dependencies()) > 0 {
		t.Errorf("our chart has %d subcharts (%v)", len(loaded.Dependencies()), err)
	}
	for name, s := range shipped(t) {
		got, err := text(t, s)
		if err != nil {
			t.Fatal(err)
		}
		if match := regexp.MustCompile(`(?m)^\s*(- )?[A-Za-z]+: null$`).FindString(got); match != "" {
			t.Errorf("%s: %q; appliers disagree on what a null means", name, match)
		}
	}
}

// A change of values alone gives the release another ConfigMap to follow; without a change the name stays.
func TestValuesCarryTheirHash(t *testing.T) {
	lab := shipped(t)["lab"]
	name := func() string {
		got, err := text(t, lab)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`name: (slurm-values-[0-9a-f]{10})`).FindAllStringSubmatch(got, -1)
		if len(names) != 2 || names[0][1] != names[1][1] {
			t.Fatalf("ConfigMap and release name %v", names)
		}
		return names[0][1]
	}
	first := name()
	if again := name(); again != first {
		t.Errorf("%s became %s without a change", first, again)
	}
	lab.Login.Replicas++
	if changed := name(); changed == first {
		t.Error("the name stayed though a value changed: the release would not follow before its interval")
	}
}

func TestCustomResourcesAndDefinitionsAreLayersApart(t *testing.T) {
	for name, s := range shipped(t) {
		result, err := compile.Compile(s, parts())
		if err != nil {
			t.Fatal(err)
		}
		for _, layer := range result.Layers {
			defined, used := false, false
			for _, o := range layer.Objects {
				defined = defined || o.Kind() == "CustomResourceDefinition"
				used = used || o.Kind() == "SlurmConfig" || o.Kind() == "WorkerPool"
			}
			if defined && used {
				t.Errorf("%s: layer %s has a definition and its resources; the first apply finds no kind", name, layer.Name)
			}
		}
	}
}

func TestConflicts(t *testing.T) {
	sites := shipped(t)
	var all []*site.Site
	for _, s := range sites {
		all = append(all, s)
	}
	if found := compile.Conflicts(all); len(found) != 0 {
		t.Fatalf("the shipped sites conflict: %v", found)
	}
	twin := *sites["laptop"]
	twin.Name = "twin"
	found := compile.Conflicts([]*site.Site{&twin, sites["laptop"]})
	var fields []string
	for _, c := range found {
		fields = append(fields, strings.Join(c.Field, "."))
		if !strings.Contains(c.Message, "laptop") || !strings.Contains(c.Message, "twin") {
			t.Errorf("%q does not name both sites", c.Message)
		}
	}
	if want := "[namespaces.slurm namespaces.workers hosts.laptop.address]"; fmt.Sprint(fields) != want {
		t.Errorf("conflicts in %v, want %s", fields, want)
	}
}

// A box that names the site that it is derived from wrong is told so, not that it fights with it.
func TestConflictOfAStrayBox(t *testing.T) {
	sites := shipped(t)
	stray := *sites["lab-box"]
	stray.VariantOf = "LAB"
	found := compile.Conflicts([]*site.Site{sites["lab"], &stray})
	want := `there is no site "LAB", and site lab claims the same cluster or machines; write variantOf: "lab" if lab-box is its box`
	if len(found) != 1 || found[0].Other != "lab-box" || fmt.Sprint(found[0].Field) != "[variantOf]" || found[0].Message != want {
		t.Errorf("%+v, want %s", found, want)
	}
}

// fieldPaths walks a site and calls visit with the path of each leaf, map keys replaced by *, and a function that changes it.
func fieldPaths(v reflect.Value, path string, visit func(path string, change func() (restore func()))) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fieldPaths(v.Elem(), path, visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			fieldPaths(v.Field(i), strings.TrimPrefix(path+"."+name, "."), visit)
		}
	case reflect.Map:
		if v.Type().Elem().Kind() != reflect.Struct {
			visit(path, func() func() { return changeMap(v) })
			return
		}
		keys := v.MapKeys()
		sort.Slice(keys, func(i, j int) bool { return keys[i].String() < keys[j].String() })
		for _, key := range keys {
			// A map's elements cannot be set in place: change a copy, then put it back.
			copied := reflect.New(v.Type().Elem()).Elem()
			copied.Set(v.MapIndex(key))
			fieldPaths(copied, path+".*", func(p string, change func() func()) {
				visit(p, func() func() {
					restore := change()
					v.SetMapIndex(key, copied)
					return func() { restore(); v.SetMapIndex(key, copied) }
				})
			})
		}
	default:
		visit(path, func() func() { return changeLeaf(v, path) })
	}
}

func changeMap(v reflect.Value) func() {
	before := reflect.ValueOf(v.Interface())
	after := reflect.MakeMap(v.Type())
	for _, key := range before.MapKeys() {
		after.SetMapIndex(key, before.MapIndex(key))
	}
	value := reflect.New(v.Type().Elem()).Elem()
	switch value.Kind() {
	case reflect.String:
		value.SetString("CHANGED")
	case reflect.Int:
		value.SetInt(77)
	case reflect.Float64:
		value.SetFloat(77)
	}
	after.SetMapIndex(reflect.ValueOf("changed"), value)
	v.Set(after)
	return func() { v.Set(before) }
}

// alternatives are other values for fields that take only some.
var alternatives = map[string]string{
	"variant": "box", "variantOf": "other", "slurm.profile": "fcfs", "slurm.preemption.type": "qos", "slurm.preemption.mode": "requeue",
	"storage.type": "local", "delivery.mode": "manifests", "pools.*.sharing.mps.users": "one", "advisor.mode": "live", "placement.mode": "live", "advisor.rerank.mode": "live",
	"pools.*.partition.state": "DRAIN", "images.pullPolicy": "Always",
}

func changeLeaf(v reflect.Value, path string) func() {
	before := reflect.ValueOf(v.Interface())
	restore := func() { v.Set(before) }
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int:
		v.SetInt(v.Int() + 1)
	case reflect.Float64:
		v.SetFloat(v.Float() + 0.5)
	case reflect.Slice:
		element := reflect.New(v.Type().Elem()).Elem()
		if element.Kind() == reflect.String {
			element.SetString(sliceElement(path))
		}
		v.Set(reflect.Append(v, element))
	case reflect.String:
		other := alternatives[path]
		switch {
		case other != "" && other != v.String():
			v.SetString(other)
		case regexp.MustCompile(`^\d+(Mi|Gi|Ti)$`).MatchString(v.String()):
			v.SetString("7Gi")
		case regexp.MustCompile(`^\d+(s|m|h|d|-\d\d:\d\d:\d\d)|^\d+:\d\d:\d\d$`).MatchString(v.String()):
			v.SetString("17m")
		case strings.HasSuffix(strings.ToLower(path), "time") || path == "slurm.qos.*.maxWall":
			v.SetString("17m")
		default:
			v.SetString(v.String() + "changed")
		}
	}
	return restore
}

func sliceElement(path string) string {
	switch path {
	case "pools.*.hosts":
		return "gpu-fast"
	case "users.*.groups":
		return "lattice"
	case "slurm.partitions.*.pools":
		return "cpu"
	}
	return "changed"
}

// full is a site with every part of the type set somewhere, so that the walk reaches every field.
func full(t *testing.T) *site.Site {
	s := shipped(t)["lab"]
	s.VariantOf = "lab"
	host := s.Hosts["gpu-fast"]
	host.Rack = "r1"
	s.Hosts["gpu-fast"] = host
	s.Groups = map[string]site.Group{"lattice": {GID: 5001}}
	s.Reserved = map[string]site.Reservation{"class": {Start: "2027-04-12T10:00:00", Duration: "2:00:00", Pools: []string{"cpu"}}}
	s.Slurm.QOS = map[string]site.QOS{"urgent": {Priority: 10, MaxWall: "1h", UsageFactor: 0.5}}
	s.Monitoring.Receivers = map[string]site.Alert{"chat": {Webhook: "https://chat.example.org"}, "slack": {Slack: "slack-url"}}
	s.Advisor.Evidence = &site.Evidence{}
	value := 0.25
	s.Advisor.Guardrails.ValueAbstain = &value
	s.Advisor.Watch = &site.Watch{QOS: []string{"urgent"}, P95Wait: "10m", TargetWait: "1h", ViolationShare: 0.1, Window: "1h", MinJobs: 20}
	s.Slurm.JobSubmit = site.JobSubmit{Before: "return nil", After: "return nil", Modify: "return nil"}
	script := func(name string) map[string]string { return map[string]string{name: "#!/bin/sh\ntrue\n"} }
	s.Slurm.Hooks = site.Hooks{Prolog: script("scratch"), Epilog: script("clean"), HealthCheck: script("disk"), Interval: "5m"}
	s.Storage.Local = &site.Local{Path: "/srv"}
	s.Modules = site.Modules{Enabled: true, Paths: []string{"modules"}}
	shards := s.Pools["gpu-rtx3080"]
	shards.Sharing = site.Sharing{Shard: &site.Shard{Count: 2}}
	shards.Tolerations = []site.Toleration{{Key: "gpu"}}
	s.Pools["gpu-rtx3080"] = shards
	mps := s.Pools["gpu-rtx4070"]
	copied := *mps.Sharing.MPS
	mps.Sharing.MPS = &copied
	s.Pools["gpu-rtx4070"] = mps
	return s
}

// Every field of a site either changes what is rendered, or is named as one that renders nothing (yet). The test changes each
// field and looks; it believes no list.
func TestNoFieldIsSilentlyIgnored(t *testing.T) {
	withoutEffect := compile.FieldsWithoutEffect()
	named := func(path string) string {
		for _, pattern := range withoutEffect {
			if path == pattern || strings.HasPrefix(path, pattern+".") {
				return pattern
			}
		}
		return ""
	}
	effective := map[string]bool{}
	var walked []string
	for _, prepare := range []func(*site.Site){
		func(*site.Site) {},
		func(s *site.Site) { s.Storage.Type, s.Delivery.Mode = "local", "manifests" },
	} {
		s := full(t)
		prepare(s)
		base, err := text(t, s)
		if err != nil {
			t.Fatal(err)
		}
		fieldPaths(reflect.ValueOf(s).Elem(), "", func(path string, change func() func()) {
			if path == "schemaVersion" {
				return // loading judges it: a site of another schema does not come here
			}
			walked = append(walked, path)
			if effective[path] {
				return
			}
			restore := change()
			changed, err := text(t, s)
			restore()
			if err != nil || changed != base {
				effective[path] = true
			}
		})
		if again, err := text(t, s); err != nil || again != base {
			t.Fatalf("the walk did not put the site back (%v)", err)
		}
	}
	used := map[string]bool{}
	for _, path := range walked {
		pattern := named(path)
		if pattern == "" && !effective[path] {
			t.Errorf("%s changes nothing that is rendered, and nothing says so", path)
			effective[path] = true // once is enough
		}
		used[pattern] = true
	}
	for _, pattern := range withoutEffect {
		if !used[pattern] {
			t.Errorf("%s is named as without effect, but no such field exists", pattern)
		}
	}
}

func TestPendingFieldsAreNamedWhenSet(t *testing.T) {
	campus := shipped(t)["campus"]
	campus.Monitoring.OTel = "http://collector.example.org:4317"
	result, err := compile.Compile(campus, parts())
	if err != nil {
		t.Fatal(err)
	}
	var what []string
	for _, omission := range result.Pending {
		what = append(what, omission.What)
	}
	if want := "[monitoring.otel]"; fmt.Sprint(what) != want {
		t.Errorf("campus: %v, want %s", what, want)
	}
	laptop := shipped(t)["laptop"]
	laptop.Storage.Class = "fast"
	if result, err = compile.Compile(laptop, parts()); err != nil {
		t.Fatal(err)
	}
	if len(result.Pending) != 1 || result.Pending[0].What != "storage.class" {
		t.Errorf("laptop: %v, want storage.class", result.Pending)
	}
}

// What the policy keeps while a pool is there is what every site has, by kind and name: an object of the layer slurm that no rule
// names would go while jobs need it, and a name that nothing has any longer would protect nothing.
func TestPoolsFirstNamesThePlatform(t *testing.T) {
	optional := map[string]bool{ // a push may take them away for good
		"configmaps/slurm-advisor": true, "configmaps/slurm-modules": true, "configmaps/slurm-ssh-keys": true,
	}
	result, err := compile.Compile(shipped(t)["lab-box"], parts())
	if err != nil {
		t.Fatal(err)
	}
	kept, rendered := map[string]bool{}, map[string]bool{}
	for _, layer := range result.Layers {
		for _, o := range layer.Objects {
			switch {
			case o.Kind() == "ValidatingAdmissionPolicy":
				constraints := o.Content()["spec"].(map[string]any)["matchConstraints"].(map[string]any)
				for _, rule := range constraints["resourceRules"].([]any) {
					resource := rule.(map[string]any)["resources"].([]any)[0].(string)
					for _, name := range rule.(map[string]any)["resourceNames"].([]any) {
						kept[resource+"/"+name.(string)] = true
					}
				}
			case layer.Name == "slurm" && o.Kind() != "WorkerPool",
				o.Kind() == "CustomResourceDefinition", o.Kind() == "Namespace" && strings.HasPrefix(o.Name(), "slurm"):
				plural := strings.ToLower(o.Kind()) + "s"
				if o.Kind() == "NetworkPolicy" {
					plural = "networkpolicies"
				}
				name := plural + "/" + o.Name()
				rendered[name] = true
				if layer.Name == "slurm" && foundation.Keeps(o) == optional[name] {
					t.Errorf("foundation.Keeps is %v of %s", optional[name], name)
				}
			}
		}
	}
	rendered["kustomizations/berth-storage"] = result.Entry["storage.yaml"].Name() == "berth-storage"
	for name := range rendered {
		if !kept[name] && !optional[name] {
			t.Errorf("%s goes while pools are there", name)
		}
	}
	for name := range kept {
		if !rendered[name] {
			t.Errorf("the policy names %s, which is not rendered", name)
		}
	}
}
