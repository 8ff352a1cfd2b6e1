package diff

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/renderer/compile/foundation"
)

// Migration is a change that a push alone does not bring about, or not without loss: it is refused until the site names it in
// acknowledge, after its plan was followed.
type Migration struct {
	// Name is what the site acknowledges. It holds what the change is to, so that it agrees to no other change later.
	Name string `json:"name"`
	What string `json:"what"`
	// Plan is how to get there, step by step.
	Plan         []string `json:"plan"`
	Acknowledged bool     `json:"acknowledged"`
}

// String is the migration for people: what is refused, the plan, and how to agree.
func (m Migration) String() string {
	var b strings.Builder
	b.WriteString(m.What)
	for i, step := range m.Plan {
		fmt.Fprintf(&b, "\n  %d. %s", i+1, step)
	}
	fmt.Fprintf(&b, "\n  then agree in the site: acknowledge: [%q]", m.Name)
	return b.String()
}

// migrations finds the changes that need an agreement.
func migrations(from, to State, before, after map[string]placed) []Migration {
	if len(from.Layers) == 0 || len(to.Layers) == 0 {
		return nil
	}
	var found []Migration
	found = append(found, poolMigrations(before, after)...)
	found = append(found, siteMigrations(from, to)...)
	for _, id := range slices.Sorted(maps.Keys(before)) {
		o := before[id]
		next, stays := after[id]
		name := objectName(o)
		switch {
		case !stays && (o.Kind() == "PersistentVolumeClaim" || o.Kind() == "PersistentVolume") && !released(o, before, after):
			found = append(found, Migration{
				Name: "delete/" + name, What: id + " leaves the site, and with it the data that it holds",
				Plan: []string{"copy what is needed to its new place", "push, and look that nothing uses the old claim", "remove it by hand: kubectl delete"},
			})
		case !stays && o.Kind() == "Namespace":
			found = append(found, Migration{
				Name: "delete/" + name, What: id + " leaves the site, and with it everything in it, also what is not in the repository",
				Plan: []string{"kubectl -n " + o.Name() + " get all,pvc,secret shows what is there", "move what is needed to the new namespace"},
			})
		case stays && o.layer != next.layer && !safelyMoved(to, o, next):
			found = append(found, Migration{
				Name: "move/" + name + "/" + next.layer,
				What: fmt.Sprintf("%s goes from layer %s to layer %s: Flux would delete it, and all that hangs on it, before it makes it anew", id, o.layer, next.layer),
				Plan: []string{
					fmt.Sprintf("kubectl %sannotate %s %s kustomize.toolkit.fluxcd.io/prune=disabled: the old layer then leaves it where it is", inNamespace(o), strings.ToLower(o.Kind()), o.Name()),
					fmt.Sprintf("push, and wait until layer %s is ready: the object is its own now", next.layer),
					fmt.Sprintf("kubectl %sannotate %s %s kustomize.toolkit.fluxcd.io/prune-", inNamespace(o), strings.ToLower(o.Kind()), o.Name()),
				},
			})
		case stays && o.Kind() == "PersistentVolumeClaim" && shrinks(o, next):
			size, _ := at(next.Content(), "spec", "resources", "requests", "storage").(string)
			found = append(found, Migration{
				Name: "shrink/" + o.Name() + "/" + strings.ToLower(size), What: id + " would shrink to " + size + ", and Kubernetes only lets claims grow",
				Plan: []string{
					"make a claim of the new size by hand and copy the data into it",
					"stop what uses the claim, delete it, and let Flux make it anew in the new size",
					"copy the data back",
				},
			})
		case stays && o.Kind() == "PersistentVolumeClaim" && static(o) && resizes(o, next):
			size, _ := at(next.Content(), "spec", "resources", "requests", "storage").(string)
			found = append(found, Migration{
				Name: "grow/" + o.Name() + "/" + strings.ToLower(size),
				What: id + " would grow to " + size + ", and Kubernetes lets a claim grow only where a storage class made its volume",
				Plan: []string{
					"look that the volume's place has the room: for Kubernetes the size of a volume that it did not make is only a number",
					fmt.Sprintf("stop what uses it, then kubectl -n %s delete pvc %s and its volume: the data stays where it is, the volume is kept (Retain)", o.Namespace(), o.Name()),
					"push: Flux makes both anew in the new size, over the same data",
				},
			})
		case stays && o.Kind() == "SlurmConfig": // siteMigrations speaks of the cluster's name
		case stays && len(frozen(o, next)) > 0:
			found = append(found, Migration{
				Name: "replace/" + name, What: fmt.Sprintf("%s: %s cannot change on a living object", id, strings.Join(frozen(o, next), ", ")),
				Plan: replacementPlan(o),
			})
		}
	}
	for i := range found {
		found[i].Acknowledged = to.Site != nil && slices.Contains(to.Site.Acknowledge, found[i].Name)
	}
	return found
}

// objectName is kind/namespace/name in small letters.
func objectName(o placed) string {
	parts := []string{strings.ToLower(o.Kind())}
	if o.Namespace() != "" {
		parts = append(parts, o.Namespace())
	}
	return strings.Join(append(parts, o.Name()), "/")
}

// released says whether a volume goes together with its claim, whose migration speaks for both.
func released(o placed, before, after map[string]placed) bool {
	claim, _ := at(o.Content(), "spec", "claimRef", "name").(string)
	namespace, _ := at(o.Content(), "spec", "claimRef", "namespace").(string)
	id := "PersistentVolumeClaim " + namespace + "/" + claim
	_, was := before[id]
	_, is := after[id]
	return o.Kind() == "PersistentVolume" && was && !is
}

// inNamespace is kubectl's flag for the object's namespace.
func inNamespace(o placed) string {
	if o.Namespace() == "" {
		return ""
	}
	return "-n " + o.Namespace() + " "
}

// allowed is the command that lets an object be deleted which the platform keeps while pools are there.
func allowed(o placed) string {
	return fmt.Sprintf("kubectl %sannotate %s %s %s=allowed", inNamespace(o), strings.ToLower(o.Kind()), o.Name(), v1alpha1.AnnotationRemoval)
}

func replacementPlan(o placed) []string {
	remove := fmt.Sprintf("kubectl %sdelete %s %s", inNamespace(o), strings.ToLower(o.Kind()), o.Name())
	if o.Kind() == "StatefulSet" { // the policy that keeps the platform lets this through
		return []string{"push", remove + " --cascade=orphan: its pods go on and its claims stay; Flux makes it anew and takes the pods over"}
	}
	if foundation.Keeps(o.Object) {
		remove = allowed(o) + " && " + remove
	}
	switch o.Kind() {
	case "PersistentVolumeClaim", "PersistentVolume":
		return []string{"copy the data elsewhere", "stop what uses it, then " + remove, "push: Flux makes it anew", "copy the data back"}
	case "Deployment", "DaemonSet", "Job":
		return []string{"push", remove + ": its pods end, and Flux makes it anew"}
	}
	return []string{"push", remove + ": Flux makes it anew within a minute"}
}

// poolMigrations finds pools that leave, or get another name.
func poolMigrations(before, after map[string]placed) []Migration {
	pools := func(objects map[string]placed) map[string]placed {
		out := map[string]placed{}
		for _, o := range objects {
			if o.Kind() == "WorkerPool" {
				out[o.Name()] = o
			}
		}
		return out
	}
	old, fresh := pools(before), pools(after)
	var found []Migration
	for _, name := range slices.Sorted(maps.Keys(old)) {
		if _, stays := fresh[name]; stays {
			continue
		}
		drain := []string{
			fmt.Sprintf("set pools.%s.partition.state: \"DRAIN\" and push: running jobs go on, no new one starts", name),
			fmt.Sprintf("wait until squeue --partition=%s --states=all is empty: ended jobs stay known for five minutes", name),
			"then remove the pool, and what names it, and push; the guard still holds the change while a job needs it",
		}
		m := Migration{Name: "pools/" + name + "/remove", What: fmt.Sprintf("pool %s leaves: slurmctld kills or loses jobs that use its nodes or its partition", name), Plan: drain}
		for _, other := range slices.Sorted(maps.Keys(fresh)) {
			if _, was := old[other]; !was && samePool(old[name], fresh[other]) {
				m.Name = "pools/" + name + "/rename/" + other
				m.What = fmt.Sprintf("pool %s is renamed to %s: for Slurm the one is removed, with the jobs that use it, and the other is new", name, other)
				m.Plan = append([]string{fmt.Sprintf("add pool %s beside %s, with a part of its hosts or workers, and let users move", other, name)}, drain...)
			}
		}
		found = append(found, m)
	}
	return found
}

// samePool says whether two pools are the same but for their names.
func samePool(a, b placed) bool {
	for _, key := range []string{"max", "hosts", "idle"} {
		if !reflect.DeepEqual(at(a.Content(), "spec", key), at(b.Content(), "spec", key)) {
			return false
		}
	}
	resources := func(o placed) any {
		containers, _ := at(o.Content(), "spec", "template", "spec", "containers").([]any)
		if len(containers) == 0 {
			return nil
		}
		return at(containers[0], "resources")
	}
	return reflect.DeepEqual(resources(a), resources(b))
}

// siteMigrations finds what only the sites' values show.
func siteMigrations(from, to State) []Migration {
	if from.Site == nil || to.Site == nil {
		return nil
	}
	var found []Migration
	a, b := from.Site, to.Site
	for _, network := range []struct{ field, from, to string }{
		{"pods", a.Network.Pods, b.Network.Pods}, {"services", a.Network.Services, b.Network.Services},
	} {
		if network.from != network.to {
			found = append(found, Migration{
				Name: "network/" + network.field + "/" + network.to,
				What: fmt.Sprintf("network.%s changes from %s to %s: a Kubernetes cluster keeps the ranges that it was made with, and with wrong ones here policies cut Slurm off", network.field, network.from, network.to),
				Plan: []string{
					"if the old range was a mistake here: kubectl get nodes -o jsonpath='{.items[*].spec.podCIDR}' and kubectl get svc kubernetes show the true ones",
					"if the cluster is to change: drain all pools, make the cluster anew with the new ranges, then push",
				},
			})
		}
	}
	if a.Cluster.Name != b.Cluster.Name {
		found = append(found, Migration{
			Name: "cluster/name/" + b.Cluster.Name,
			What: fmt.Sprintf("cluster.name changes from %s to %s: slurmctld does not start on the state of another cluster", a.Cluster.Name, b.Cluster.Name),
			Plan: []string{
				"let all jobs end, and keep a copy of the state claim",
				"sacctmgr knows the new name as a new cluster: its accounts, users and usage begin anew",
				fmt.Sprintf("empty the state claim while slurm-controller-0 is stopped, kubectl -n %[1]s annotate slurmconfig slurm %[2]s=allowed && kubectl -n %[1]s delete slurmconfig slurm, then push",
					a.Namespaces.Slurm, v1alpha1.AnnotationRemoval),
			},
		})
	}
	if a.Delivery.Mode != b.Delivery.Mode {
		found = append(found, Migration{
			Name: "delivery/mode/" + b.Delivery.Mode,
			What: fmt.Sprintf("delivery.mode changes from %s to %s: the one way does not take over what the other made; every pool is removed with its workers, and the platform after them, before both are made anew",
				a.Delivery.Mode, b.Delivery.Mode),
			Plan: []string{
				"take a backup: berth backup; claims, and with them the queue and the accounts, stay where they are",
				"set partition.state: \"DRAIN\" in all pools and push: running jobs go on, others wait in the queue; best wait until they have ended, because the platform is away from then on for some minutes",
				"push the new mode: pools go as their jobs end, and the policy berth-pools-first keeps the rest until then (docs/operations.md, Taking the platform away)",
				"look that it is back (berth status), then take the DRAIN away and push",
			},
		})
	}
	if a.Storage.Type != b.Storage.Type || a.Storage.NFS != nil && b.Storage.NFS != nil && (a.Storage.NFS.Server != b.Storage.NFS.Server || a.Storage.NFS.Path != b.Storage.NFS.Path) {
		found = append(found, Migration{
			Name: "storage/move",
			What: "homes and shared data move to another place; what is in the old one does not follow",
			Plan: []string{"drain all pools", "copy homes and shared data to the new place", "delete the claims, so that Flux makes them on the new place"},
		})
	}
	return found
}

// Stale are names in the site's acknowledge that agree to nothing which is about to change. They should go: a name that stays
// would agree to the same change again.
func (r *Report) Stale(acknowledged []string) []string {
	var stale []string
	for _, name := range acknowledged {
		if !slices.ContainsFunc(r.Migrations, func(m Migration) bool { return m.Name == name }) {
			stale = append(stale, name)
		}
	}
	return stale
}
