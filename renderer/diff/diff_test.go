package diff_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/berth-hpc/berth/components/api"
	"github.com/berth-hpc/berth/components/chart"
	"github.com/berth-hpc/berth/components/guard/slurmconf"
	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/diff"
	"github.com/berth-hpc/berth/renderer/emit"
	"github.com/berth-hpc/berth/renderer/load"
	"github.com/berth-hpc/berth/renderer/site"
)

func state(t *testing.T, s *site.Site) diff.State {
	t.Helper()
	r, err := emit.Render(t.TempDir(), s, compile.Parts{Chart: chart.Files, ChartDir: chart.Dir, CRDs: api.CRDs()})
	if err != nil {
		t.Fatal(err)
	}
	return diff.State{Name: "a state", Site: s, Layers: r.Inflated}
}

func lab(t *testing.T) *site.Site {
	t.Helper()
	sites, err := load.Load("../../clusters", "lab")
	if err != nil {
		t.Fatal(err)
	}
	return sites[0]
}

// clone is a deep copy.
func clone(t *testing.T, s *site.Site) *site.Site {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	out := &site.Site{Name: s.Name}
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// change edits a member of a map of structs.
func change[V any](m map[string]V, name string, edit func(*V)) {
	v := m[name]
	edit(&v)
	m[name] = v
}

// Each kind of edit of a site, with what is announced: the edit in the site's terms, and the effects as "kind what"; an effect
// that is not listed must not be announced. A "!" names a migration that is refused.
func TestAnnouncements(t *testing.T) {
	base := lab(t)
	before := state(t, base)
	for name, c := range map[string]struct {
		edit func(*site.Site)
		want []string
	}{
		"nothing": {func(*site.Site) {}, nil},
		"a pool grows": {
			func(s *site.Site) { change(s.Pools, "cpu", func(p *site.Pool) { p.Max = 6 }) },
			[]string{"pool cpu: max 4 → 6", "apply pool cpu", "reconfigure slurm.conf changes"},
		},
		"a pool shrinks": {
			func(s *site.Site) { change(s.Pools, "cpu", func(p *site.Pool) { p.Max = 2 }) },
			[]string{"pool cpu: max 4 → 2", "drain pool cpu", "jobs nodes leave the cluster (slurm-worker-cpu-[2-3])", "reconfigure slurm.conf changes"},
		},
		"a pool is removed": {
			func(s *site.Site) { delete(s.Pools, "cpu") },
			[]string{"pool cpu removed (max 4, 2 CPUs, 4Gi)", "drain pool cpu", "jobs nodes leave the cluster (slurm-worker-cpu-[0-3])",
				"jobs partition cpu is removed or renamed", "reconfigure slurm.conf changes", "!pools/cpu/remove"},
		},
		"a pool is renamed": {
			func(s *site.Site) { s.Pools["batch"] = s.Pools["cpu"]; delete(s.Pools, "cpu") },
			[]string{"pool cpu renamed to batch: for Slurm the one is removed and the other is new", "drain pool cpu", "apply pool batch",
				"jobs nodes leave the cluster (slurm-worker-cpu-[0-3])", "jobs partition cpu is removed or renamed", "reconfigure slurm.conf changes",
				"!pools/cpu/rename/batch"},
		},
		"cpus": {
			func(s *site.Site) { change(s.Pools, "cpu", func(p *site.Pool) { p.CPUs = 1 }) },
			[]string{"pool cpu: cpus 2 → 1", `jobs cpus changes from "2" to "1" (slurm-worker-cpu-[0-3])`, "drain pool cpu", "reconfigure slurm.conf changes"},
		},
		"a GRES": {
			func(s *site.Site) {
				change(s.Pools, "gpu-rtx4070", func(p *site.Pool) { p.Sharing = site.Sharing{Shard: &site.Shard{Count: 4}} })
			},
			[]string{"pool gpu-rtx4070: sharing.mps.share unset (was 25)", "pool gpu-rtx4070: sharing.mps.users unset (was trusted)",
				"pool gpu-rtx4070: sharing.shard.count 4 (new)", "jobs gres changes from",
				"drain pool gpu-rtx4070", // without a supervisor of MPS
				"reconfigure gres.conf, slurm.conf changes"},
		},
		"memory": {
			func(s *site.Site) { change(s.Pools, "cpu", func(p *site.Pool) { p.Memory = "2Gi" }) },
			[]string{"pool cpu: memory 4Gi → 2Gi", "drain pool cpu", "reconfigure slurm.conf changes"},
		},
		"a partition's limit": {
			func(s *site.Site) { change(s.Pools, "cpu", func(p *site.Pool) { p.Partition.MaxTime = "1h" }) },
			[]string{"pool cpu: partition.maxTime 7-00:00:00 → 1h", "reconfigure slurm.conf changes"},
		},
		"a partition is removed": {
			func(s *site.Site) { delete(s.Slurm.Partitions, "gpu") },
			[]string{"partition gpu removed over pools [gpu-rtx4070, gpu-rtx3080]", "jobs partition gpu is removed or renamed", "reconfigure slurm.conf changes"},
		},
		"a QOS": {
			func(s *site.Site) { s.Slurm.QOS = map[string]site.QOS{"urgent": {Priority: 10}} },
			[]string{"QOS urgent added", "accounts Slurm's database"},
		},
		"a priority's weight": {
			func(s *site.Site) { s.Slurm.Priority.Weights.Age = 2000 },
			[]string{"slurm.priority.weights.age: 1000 → 2000", "reconfigure slurm.conf changes"},
		},
		"the images": {
			func(s *site.Site) { s.Images.Tag = "0.2.0" },
			[]string{"images.tag: 0.1.0 → 0.2.0", "restart StatefulSet slurm/slurm-controller", "restart StatefulSet slurm/slurm-database",
				"restart Deployment slurm/slurm-accounting", "restart Deployment slurm/slurm-rest", "restart Deployment slurm/slurm-autoscaler",
				"restart Deployment slurm-workers/slurm-login", "drain pool cpu", "drain pool gpu-rtx3080", "drain pool gpu-rtx4070"},
		},
		"a user": {
			func(s *site.Site) {
				s.Users["ann"] = site.User{UID: 2003, GID: 2003, Shell: "/bin/bash", Account: "vision", Shares: 1}
			},
			[]string{"user ann added (uid 2003, account vision)", "accounts Slurm's database"},
		},
		"a worker's environment": {
			func(s *site.Site) {
				change(s.Pools, "cpu", func(p *site.Pool) { p.Env = map[string]string{"NCCL_DEBUG": "INFO"} })
			},
			[]string{"pool cpu: env.NCCL_DEBUG INFO (new)", "drain pool cpu"},
		},
		"the network of the lab": {
			func(s *site.Site) { s.Network.LAN = "192.168.0.0/23" },
			[]string{"network.lan: 192.168.0.0/24 → 192.168.0.0/23", "apply Flux"},
		},
		"the pods' network": {
			func(s *site.Site) { s.Network.Pods = "10.44.0.0/16" },
			[]string{"network.pods: 10.42.0.0/16 → 10.44.0.0/16", "apply Flux", "!network/pods/10.44.0.0/16"},
		},
		"a claim shrinks": {
			func(s *site.Site) { s.Storage.Home = "100Gi" },
			[]string{"storage.home: 500Gi → 100Gi", "replace PersistentVolumeClaim slurm-workers/slurm-home", "!shrink/slurm-home/100gi"},
		},
		"a claim grows": {
			func(s *site.Site) { s.Storage.Home = "600Gi" },
			[]string{"storage.home: 500Gi → 600Gi", "apply Flux"},
		},
		"a claim's class": {
			func(s *site.Site) { s.Storage.Class = "fast" },
			[]string{"storage.class: local-path → fast", "replace PersistentVolumeClaim slurm/slurm-state", "replace PersistentVolumeClaim slurm/slurm-database",
				"!replace/persistentvolumeclaim/slurm/slurm-state", "!replace/persistentvolumeclaim/slurm/slurm-database"},
		},
		"the cluster's name": {
			func(s *site.Site) { s.Cluster.Name = "other" },
			[]string{"cluster.name: lab → other", `refused clustername changes from "lab" to "other"`, "restart Deployment slurm/slurm-rest",
				"reconfigure slurm.conf changes", "replace SlurmConfig slurm/slurm", "!cluster/name/other"},
		},
		"a layer leaves": {
			func(s *site.Site) { s.Monitoring.Enabled = false },
			[]string{"monitoring.enabled: true → false", "delete layer monitoring", "delete HelmRelease flux-system/kube-prometheus-stack",
				"delete Namespace monitoring", "!delete/namespace/monitoring", "delete NetworkPolicy monitoring/"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := clone(t, base)
			c.edit(s)
			r, err := diff.Compare("lab", before, state(t, s))
			if err != nil {
				t.Fatal(err)
			}
			var said []string
			for _, e := range r.Edits {
				said = append(said, e.Text)
			}
			for _, e := range r.Effects {
				said = append(said, e.Kind+" "+e.What)
			}
			for _, m := range r.Unacknowledged() {
				said = append(said, "!"+m.Name)
				// What a migration is called can be acknowledged, and then is not refused.
				agreed := clone(t, s)
				agreed.Acknowledge = []string{m.Name}
				again, err := diff.Compare("lab", before, state(t, agreed))
				if err != nil || len(again.Unacknowledged()) != len(r.Unacknowledged())-1 {
					t.Errorf("acknowledging %s leaves %d of %d migrations refused (%v)", m.Name, len(again.Unacknowledged()), len(r.Unacknowledged()), err)
				}
			}
			for _, want := range c.want {
				if !hasPrefix(said, want) {
					t.Errorf("does not announce %q", want)
				}
			}
			for _, s := range said {
				if !isExpected(c.want, s) {
					t.Errorf("announces %q", s)
				}
			}
			if t.Failed() {
				t.Logf("said:\n%s", strings.Join(said, "\n"))
			}
			if r.Differs() != (len(c.want) > 0) {
				t.Errorf("differs: %v", r.Differs())
			}
		})
	}
}

// The way of delivery changes: whichever comes after the other, pools go and come again, so the site has to agree.
func TestWayOfDelivery(t *testing.T) {
	sites, err := load.Load("../../clusters", "lab-box")
	if err != nil {
		t.Fatal(err)
	}
	helm := clone(t, sites[0])
	helm.Delivery.Mode = "helm"
	for _, c := range []struct {
		from, to *site.Site
		want     string
	}{{sites[0], helm, "delivery/mode/helm"}, {helm, sites[0], "delivery/mode/manifests"}} {
		r, err := diff.Compare("lab-box", state(t, c.from), state(t, c.to))
		if err != nil {
			t.Fatal(err)
		}
		found := r.Unacknowledged()
		if !slices.ContainsFunc(found, func(m diff.Migration) bool { return m.Name == c.want }) {
			t.Errorf("refused: %v, want %s", found, c.want)
		}
	}
}

// A claim of a volume that no storage class made grows as little as it shrinks: the box's volumes are folders of its host.
func TestStaticClaimGrows(t *testing.T) {
	sites, err := load.Load("../../clusters", "lab-box")
	if err != nil {
		t.Fatal(err)
	}
	larger := clone(t, sites[0])
	larger.Storage.Home = "600Gi"
	r, err := diff.Compare("lab-box", state(t, sites[0]), state(t, larger))
	if err != nil {
		t.Fatal(err)
	}
	refused := r.Unacknowledged()
	if len(refused) != 1 || refused[0].Name != "grow/slurm-home/600gi" || !strings.Contains(strings.Join(refused[0].Plan, "\n"), "delete pvc slurm-home") {
		t.Errorf("refused: %+v", refused)
	}
	if !slices.ContainsFunc(r.Effects, func(e diff.Effect) bool {
		return e.Kind == diff.Replace && e.What == "PersistentVolumeClaim slurm-workers/slurm-home"
	}) {
		t.Errorf("effects: %+v", r.Effects)
	}
}

func hasPrefix(list []string, prefix string) bool {
	for _, s := range list {
		if strings.HasPrefix(s, prefix) {
			return true
		}
	}
	return false
}

func isExpected(prefixes []string, s string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(s, prefix) {
			return true
		}
	}
	return false
}

// The jobs that an effect concerns are those that the guard would wait for.
func TestJobsConcerned(t *testing.T) {
	base := lab(t)
	s := clone(t, base)
	change(s.Pools, "cpu", func(p *site.Pool) { p.Max = 2 })
	r, err := diff.Compare("lab", state(t, base), state(t, s))
	if err != nil {
		t.Fatal(err)
	}
	r.Concern([]slurmconf.Job{
		{ID: "1", Running: true, Partitions: []string{"cpu"}, Nodes: []string{"slurm-worker-cpu-0"}},
		{ID: "2", Running: true, Partitions: []string{"cpu"}, Nodes: []string{"slurm-worker-cpu-3"}},
		{ID: "3", Partitions: []string{"cpu"}, Nodes: []string{"slurm-worker-cpu-2"}},
	})
	var ids []string
	for _, e := range r.Effects {
		for _, j := range e.Jobs {
			ids = append(ids, j.ID)
		}
	}
	if got := strings.Join(ids, " "); got != "2 3" {
		t.Errorf("concerned: %q, want 2 and 3", got)
	}
}

// A site that is new, and one that goes.
func TestComesAndGoes(t *testing.T) {
	full, none := state(t, lab(t)), diff.State{Name: "nothing"}
	r, err := diff.Compare("lab", none, full)
	if err != nil || len(r.Effects) != 1 || !strings.Contains(r.Effects[0].Why, "is new") || len(r.Objects) < 60 {
		t.Errorf("a new site: %+v, %d objects (%v)", r.Effects, len(r.Objects), err)
	}
	if r, err = diff.Compare("lab", full, none); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, e := range r.Effects {
		if strings.Contains(e.Why, "stays in the cluster: it holds data") {
			kept++
		}
	}
	if !strings.HasPrefix(r.Effects[len(r.Effects)-1].Kind, "delete") || kept < 4 {
		t.Errorf("a site that goes: %d kept, %+v", kept, r.Effects)
	}
}

// S23: an object that goes from one layer to another. To one that is applied earlier it is safe; to a later one the old layer would
// take it away first, so render refuses it, with the way that keeps it.
func TestS23AnObjectMoves(t *testing.T) {
	base := state(t, lab(t))
	for _, c := range []struct {
		object, from, to, why string
		refused               string
	}{
		{"Service slurm/slurm-rest", "slurm", "storage", "which is applied first: it is that layer's", ""},
		{"NetworkPolicy slurm/default-deny", "foundation", "slurm", "foundation is applied first and takes it away", "move/networkpolicy/slurm/default-deny/slurm"},
		{"PersistentVolumeClaim slurm/slurm-state", "storage", "slurm", "", ""},
	} {
		moved := base
		moved.Layers = nil
		var what manifest.Object
		for _, layer := range base.Layers {
			if layer.Name == c.from {
				layer.Objects = slices.DeleteFunc(slices.Clone(layer.Objects), func(o manifest.Object) bool {
					if o.ID() == c.object {
						what = o
					}
					return o.ID() == c.object
				})
			}
			moved.Layers = append(moved.Layers, layer)
		}
		if what.Content() == nil {
			t.Errorf("layer %s has no %s", c.from, c.object)
			continue
		}
		for i, layer := range moved.Layers {
			if layer.Name == c.to {
				moved.Layers[i].Objects = append(slices.Clone(layer.Objects), what)
			}
		}
		r, err := diff.Compare("lab", base, moved)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Effects) != 1 || r.Effects[0].Kind != diff.Move || r.Effects[0].What != c.object || !strings.Contains(r.Effects[0].Why, c.why) {
			t.Errorf("%s: effects %+v", c.object, r.Effects)
		}
		var refused []string
		for _, m := range r.Unacknowledged() {
			refused = append(refused, m.Name)
			if !strings.Contains(m.String(), "prune=disabled") {
				t.Errorf("%s: plan %s", c.object, m)
			}
		}
		if strings.Join(refused, " ") != c.refused {
			t.Errorf("%s: refused %v, want %q", c.object, refused, c.refused)
		}
	}
}

// A plan to make an object anew passes the policy that keeps the platform while pools are there; an object that it does not keep
// needs no word.
func TestPlansPassThePolicy(t *testing.T) {
	s := lab(t)
	for name, c := range map[string]struct {
		field []string
		plan  string
	}{
		"Deployment slurm-workers/slurm-login":      {[]string{"spec", "selector", "matchLabels", "x"}, "kubectl -n slurm-workers annotate deployment slurm-login berth-hpc.github.io/removal=allowed && kubectl -n slurm-workers delete deployment slurm-login:"},
		"StatefulSet slurm/slurm-controller":        {[]string{"spec", "serviceName"}, "kubectl -n slurm delete statefulset slurm-controller --cascade=orphan:"},
		"ClusterRoleBinding slurm-autoscaler-hosts": {[]string{"roleRef", "name"}, "kubectl annotate clusterrolebinding slurm-autoscaler-hosts berth-hpc.github.io/removal=allowed && kubectl delete"},
		"StorageClass berth-shared":                 {[]string{"provisioner"}, "push\nkubectl delete storageclass berth-shared:"},
	} {
		before, after := state(t, s), state(t, s)
		found := false
		for _, layer := range after.Layers {
			for _, o := range layer.Objects {
				if o.ID() == name {
					found = true
					if err := unstructured.SetNestedField(o.Content(), "other", c.field...); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if !found {
			t.Errorf("%s is not rendered", name)
			continue
		}
		r, err := diff.Compare("lab", before, after)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Migrations) != 1 || !strings.Contains(strings.Join(r.Migrations[0].Plan, "\n"), c.plan) {
			t.Errorf("%s: %+v, want %q in its plan", name, r.Migrations, c.plan)
		}
	}
}
