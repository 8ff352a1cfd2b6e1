package diff

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/berth-hpc/berth/components/guard/slurmconf"
	"github.com/berth-hpc/berth/components/slurmrest/hostlist"
	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/inflate"
)

// slurm says what the guard and slurmctld make of a changed SlurmConfig.
func (r *Report) slurm(before, after map[string]placed) error {
	from, to := find(before, "SlurmConfig"), find(after, "SlurmConfig")
	if to == nil || from == nil {
		return nil
	}
	if !reflect.DeepEqual(at(from.Content(), "spec", "accounts"), at(to.Content(), "spec", "accounts")) {
		r.add(Accounts, "Slurm's database", "the guard adds and modifies accounts, users and QOS; users and accounts that left the site are deleted when no job of theirs is left, QOS stay until sacctmgr removes them")
	}
	old, fresh := texts(from), texts(to)
	var changed []string
	for name := range maps.Keys(merged(old, fresh)) {
		if old[name] != fresh[name] {
			changed = append(changed, name)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	slices.Sort(changed)
	a, err := slurmconf.Read(old)
	if err != nil {
		return fmt.Errorf("%s: %w", r.From, err)
	}
	b, err := slurmconf.Read(fresh)
	if err != nil {
		return fmt.Errorf("%s: %w", r.To, err)
	}
	dangers, err := slurmconf.Dangers(a, b)
	if err != nil {
		return err
	}
	waits := false
	for i := range dangers {
		d := &dangers[i]
		what := d.What
		if len(d.Nodes) > 0 {
			what += " (" + hostlist.Compress(slices.Clone(d.Nodes)) + ")"
		}
		if d.Never {
			r.add(Refused, what, "the guard refuses it, and the configuration before stays in force")
			continue
		}
		waits = true
		r.Effects = append(r.Effects, Effect{Kind: Jobs, What: what, Why: "slurmctld would " + harm(d) + ", so the guard holds the change until no such job is left", danger: d})
	}
	how := "slurmctld reconfigures, no job is touched"
	if waits {
		how = "slurmctld reconfigures once the jobs above are gone"
	}
	r.add(Reconfigure, strings.Join(changed, ", ")+" changes", "%s", how+settings(a, b))
	return nil
}

// harm words what slurmctld would do to jobs.
func harm(d *slurmconf.Danger) string {
	switch {
	case d.All:
		return "kill every running job"
	case d.Partition != "" && len(d.Nodes) == 0:
		return "kill the running jobs of the partition and lose its pending ones"
	case d.Named:
		return "kill the running jobs there and lose the pending ones that name these nodes"
	}
	return "kill the running jobs there"
}

// settings lists the parameters that change, as many as a line takes.
func settings(a, b *slurmconf.Config) string {
	var keys []string
	for key := range merged(a.Settings, b.Settings) {
		if a.Settings[key] != b.Settings[key] {
			keys = append(keys, fmt.Sprintf("%s %s → %s", key, orNone(a.Settings[key]), orNone(b.Settings[key])))
		}
	}
	slices.Sort(keys)
	if len(keys) > 6 {
		keys = append(keys[:6], "…")
	}
	if len(keys) == 0 {
		return ""
	}
	return " (" + strings.Join(keys, ", ") + ")"
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// interruptions say what the restart of a part of the control plane means to people.
var interruptions = map[string]string{
	"slurm-controller": "slurmctld restarts: running jobs go on, sbatch and squeue wait for some seconds",
	"slurm-database":   "the accounting database restarts: slurmdbd waits, slurmctld keeps its records meanwhile",
	"slurm-accounting": "slurmdbd restarts: slurmctld keeps its records meanwhile",
	"slurm-login":      "the login pods are replaced: SSH sessions on them end",
	"slurm-rest":       "slurmrestd restarts: the autoscaler waits, and changes nothing meanwhile",
	"slurm-autoscaler": "the autoscaler restarts: no worker is touched, new ones come some seconds later",
}

// pods says which pods are replaced.
func (r *Report) pods(before, after map[string]placed) {
	for _, id := range slices.Sorted(maps.Keys(after)) {
		to := after[id]
		from, both := before[id]
		if to.Kind() == "WorkerPool" {
			r.pool(from, to, both)
			continue
		}
		if !both {
			continue
		}
		switch to.Kind() {
		case "Deployment", "StatefulSet", "DaemonSet":
			if !reflect.DeepEqual(at(from.Content(), "spec", "template"), at(to.Content(), "spec", "template")) {
				why := interruptions[to.Name()]
				if why == "" {
					why = "its pods are replaced"
				}
				r.add(Restart, to.ID(), "%s", why)
			}
			if a, b := at(from.Content(), "spec", "replicas"), at(to.Content(), "spec", "replicas"); !reflect.DeepEqual(a, b) {
				r.add(Apply, to.ID(), "replicas %v → %v", orOne(a), orOne(b))
			}
		}
	}
}

func orOne(v any) any {
	if v == nil {
		return 1
	}
	return v
}

func (r *Report) pool(from, to placed, both bool) {
	what := "pool " + to.Name()
	size := func(o placed, key string) int {
		n, _ := at(o.Content(), "spec", key).(float64)
		return int(n)
	}
	switch {
	case !both:
		r.add(Apply, what, "comes: Slurm knows its %d nodes at once, their pods come when jobs ask for them", size(to, "max"))
		return
	case !reflect.DeepEqual(at(from.Content(), "spec", "template"), at(to.Content(), "spec", "template")):
		r.add(Drain, what, "its workers are replaced by new ones: idle ones first, busy ones after their jobs, a quarter at a time")
	case !reflect.DeepEqual(at(from.Content(), "spec", "hosts"), at(to.Content(), "spec", "hosts")):
		r.add(Apply, what, "new workers go to other hosts; those that run stay where they are")
	}
	if a, b := size(from, "max"), size(to, "max"); a > b {
		r.add(Drain, what, "shrinks: %d of its nodes end after their jobs", a-b)
	} else if b > a {
		r.add(Apply, what, "grows: Slurm knows %d more nodes", b-a)
	}
	if a, b := size(from, "min"), size(to, "min"); a != b {
		r.add(Apply, what, "%d of its workers are always up (before: %d)", b, a)
	}
}

// deletions lists what leaves the cluster, with what goes along.
func (r *Report) deletions(from, to State, before, after map[string]placed) {
	goneLayers := map[string]int{}
	layers := map[string]bool{}
	for _, layer := range to.Layers {
		layers[layer.Name] = true
	}
	for _, layer := range from.Layers {
		if !layers[layer.Name] && len(to.Layers) > 0 {
			goneLayers[layer.Name] = len(layer.Objects)
		}
	}
	if len(to.Layers) == 0 && len(from.Layers) > 0 {
		r.add(Delete, "the site", "leaves the repository: Flux prunes all of its objects but those that are marked to be kept")
	}
	for _, layer := range slices.Sorted(maps.Keys(goneLayers)) {
		r.add(Delete, "layer "+layer, "its Kustomization goes, and Flux prunes all %d objects of it", goneLayers[layer])
	}
	for _, id := range slices.Sorted(maps.Keys(before)) {
		o := before[id]
		if _, stays := after[id]; stays {
			continue
		}
		switch {
		case kept(o.Object):
			r.add(Delete, id, "leaves the repository but stays in the cluster: it holds data. kubectl delete removes it")
		case o.Kind() == "Namespace":
			r.add(Delete, id, "with everything in it, also what is not in the repository: %s", strings.Join(inside(before, o.Name()), ", "))
		case o.Kind() == "CustomResourceDefinition":
			r.add(Delete, id, "with every resource of its kind")
		case o.Kind() == "HelmRelease":
			r.add(Delete, id, "helm uninstalls everything that its chart made")
		case o.Kind() == "WorkerPool":
			r.add(Drain, "pool "+o.Name(), "leaves: its workers end after their jobs, then it goes")
		case o.Kind() == "StatefulSet" || o.Kind() == "Deployment" || o.Kind() == "DaemonSet":
			r.add(Delete, id, "with its pods")
		case o.Kind() == "PersistentVolumeClaim" || o.Kind() == "PersistentVolume":
			r.add(Delete, id, "with the data in it, unless its volume is kept")
		case o.layer == "entry points" || goneLayers[o.layer] > 0 || len(to.Layers) == 0: // told above
		default:
			r.add(Delete, id, "is pruned")
		}
	}
}

// inside are the objects of a namespace.
func inside(objects map[string]placed, namespace string) []string {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(objects)) {
		if objects[id].Namespace() == namespace {
			ids = append(ids, id)
		}
	}
	if n := len(ids); n > 5 {
		ids = append(ids[:5], fmt.Sprintf("and %d more", n-5))
	}
	return ids
}

// kept says whether neither Flux nor Helm removes the object.
func kept(o manifest.Object) bool {
	annotations := o.Annotations()
	for key, value := range naming.Keep() {
		if annotations[key] != value {
			return false
		}
	}
	return true
}

func (r *Report) moves(to State, before, after map[string]placed) {
	for _, id := range slices.Sorted(maps.Keys(after)) {
		from, both := before[id]
		if !both || from.layer == after[id].layer {
			continue
		}
		if safelyMoved(to, from, after[id]) {
			r.add(Move, id, "goes from layer %s to layer %s, which is applied first: it is that layer's before the other would take it away", from.layer, after[id].layer)
		} else {
			r.add(Move, id, "goes from layer %s to layer %s: %s is applied first and takes it away, then %s makes it anew", from.layer, after[id].layer, from.layer, after[id].layer)
		}
	}
}

// safelyMoved says whether an object goes from one layer to another without leaving the cluster between: Flux prunes only what is
// marked as that layer's own, so the new layer must have it before the old one is applied without it. What Flux is told to keep never
// goes.
func safelyMoved(to State, from, now placed) bool {
	index := func(name string) int {
		return slices.IndexFunc(to.Layers, func(l inflate.Layer) bool { return l.Name == name })
	}
	old, fresh := index(from.layer), index(now.layer)
	return kept(from.Object) && kept(now.Object) || fresh >= 0 && old >= 0 && fresh < old
}

func find(objects map[string]placed, kind string) *placed {
	for _, id := range slices.Sorted(maps.Keys(objects)) {
		if o := objects[id]; o.Kind() == kind {
			return &o
		}
	}
	return nil
}

// texts are a SlurmConfig's files.
func texts(o *placed) map[string]string {
	files, _ := at(o.Content(), "spec", "files").(map[string]any)
	out := map[string]string{}
	for name, text := range files {
		out[name], _ = text.(string)
	}
	return out
}

func merged[V any](a, b map[string]V) map[string]V {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]V{}
	}
	maps.Copy(out, b)
	return out
}

func at(node any, path ...string) any {
	for _, key := range path {
		m, ok := node.(map[string]any)
		if !ok {
			return nil
		}
		node = m[key]
	}
	return node
}
