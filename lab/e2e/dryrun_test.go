package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// dryRuns are kinds of edit beside those that TestAnnounced… push. Each is applied server-side as a dry run.
var dryRuns = []struct {
	name string
	make func(*site)
}{
	{"a login pod more", func(s *site) { s.declare("lab: login: replicas: 2") }},
	{"SSH on a port of every host", func(s *site) { s.declare("lab: login: nodePort: 30022") }},
	{"an own login image", func(s *site) { s.declare(`lab: login: image: "localhost/berth/slurm-login:other"`) }},
	{"an account", func(s *site) { s.declare("lab: accounts: physics: shares: 3") }},
	{"an account's limit", func(s *site) { s.declare(`lab: accounts: vision: grpTRES: {"gres/gpu": 1}`) }},
	{"shares", func(s *site) { s.edit("vision:", "2", "5") }},
	{"a group", func(s *site) { s.declare("lab: groups: robots: gid: 3001") }},
	{"a user's key", func(s *site) {
		s.declare(`lab: users: student: keys: ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAKKHCI2bXTDEkQz0T2lRLFnKGTHNoHHCCbIHv1dDJ8A student@laptop"]`)
	}},
	{"an administrator", func(s *site) { s.declare("lab: users: researcher: admin: true") }},
	{"a user's shell", func(s *site) { s.declare(`lab: users: student: shell: "/bin/sh"`) }},
	{"a pool", func(s *site) { s.declare(`lab: pools: extra: {max: 1, cpus: 1, memory: "1Gi"}`) }},
	{"a floor", func(s *site) { s.edit("cpu:", "max: 4", "min: 1, max: 4") }},
	{"headroom", func(s *site) { s.edit("cpu:", "max: 4", "headroom: nodes: 1, max: 4") }},
	{"a schedule", func(s *site) {
		s.edit("cpu:", "max: 4", `schedule: [{days: ["Mon"], from: "08:00", to: "18:00", keep: 1}], max: 4`)
	}},
	{"a pool's renewal", func(s *site) { s.edit("cpu:", "max: 4", `renew: percent: 50, max: 4`) }},
	{"a node selector", func(s *site) { s.edit("cpu:", "max: 4", `nodeSelector: disk: "fast", max: 4`) }},
	{"features", func(s *site) { s.edit("cpu:", "max: 4", `features: ["avx2"], max: 4`) }},
	{"a hidden partition", func(s *site) { s.edit("cpu:", "partition: default: true", "partition: {default: true, hidden: true}") }},
	{"a partition over pools", func(s *site) { s.declare(`lab: slurm: partitions: all: pools: ["cpu", "gpu-rtx4070"]`) }},
	{"licences", func(s *site) { s.declare("lab: slurm: licenses: matlab: 4") }},
	{"what a job must say", func(s *site) { s.declare("lab: slurm: jobSubmit: require: timeLimit: true") }},
	{"srun's ports", func(s *site) { s.declare("lab: slurm: srunPorts: {first: 61001, last: 61100}") }},
	{"a larger claim", func(s *site) { s.declare(`lab: storage: home: "600Gi"`) }},
	{"a smaller claim", func(s *site) { s.declare(`lab: storage: home: "100Gi"`) }},
	{"a line of slurm.conf", func(s *site) { s.declare(`lab: slurm: extraLines: ["MaxStepCount=10000"]`) }},
	{"the cluster's name", func(s *site) { s.edit("cluster:", `"lab"`, `"other"`) }},
	{"a reservation", func(s *site) {
		s.declare(`lab: reservations: course: {start: "2030-01-07T08:00:00", duration: "4h", pools: ["cpu"], accounts: ["vision"]}`)
	}},
}

// What the API server says to each object, applied as Flux applies it but as a dry run, is what berth diff announces: it takes it as
// it is, changes it, makes it, or refuses it because a field is immutable.
func TestDryRunAnnouncements(t *testing.T) {
	if len(dryRuns) < 25 {
		t.Fatalf("only %d kinds of edit", len(dryRuns))
	}
	r := begin(t, 50*time.Minute)
	s := r.clone()
	asked := map[string]string{}
	untouched := s.dryRun(map[string]bool{}, asked)
	for id, outcome := range untouched {
		if outcome != "same" {
			t.Fatalf("before any edit, the API server says %s: %s", id, outcome)
		}
	}
	for _, edit := range dryRuns {
		t.Run(edit.name, func(t *testing.T) {
			s := &site{r: &run{T: t, ctx: r.ctx, box: r.box}, dir: s.dir, found: s.found, head: s.head}
			defer s.must("git", "checkout", "--quiet", "--", ".")
			edit.make(s)
			said := s.announced()
			want := map[string]string{}
			for id := range untouched {
				want[id] = "same"
			}
			gone := map[string]bool{}
			for _, o := range said.Objects {
				switch o.Action {
				case "delete":
					gone[o.Object] = true
					delete(want, o.Object)
				default:
					want[o.Object] = o.Action
				}
			}
			for _, e := range said.Effects {
				if _, ok := want[e.What]; ok && e.Kind == "replace" {
					want[e.What] = "refused"
				}
			}
			got := s.dryRun(gone, asked)
			for _, id := range slices.Sorted(maps.Keys(want)) {
				if _, rendered := got[id]; rendered && got[id] != want[id] {
					t.Errorf("%s: announced %s, the API server says %s", id, want[id], got[id])
				}
			}
			for id, outcome := range got {
				if want[id] == "" {
					t.Errorf("%s: not announced, the API server says %s", id, outcome)
				}
			}
		})
	}
}

// dryRun applies every rendered object but those of Flux and the sealed secrets as a dry run, one by one so that one refusal hides no
// other, and gives by object what the API server would do: same, change, create or refused. What it said to the very same object is
// in asked, and is not asked again.
func (s *site) dryRun(gone map[string]bool, asked map[string]string) map[string]string {
	s.r.Helper()
	stream := s.must("berth", "inflate", siteName)
	outcomes := map[string]string{}
	for _, document := range strings.Split(stream, "\n---\n") {
		var object map[string]any
		// The line that Split took ended the document's last block of text.
		if err := yaml.Unmarshal([]byte(document+"\n"), &object); err != nil {
			s.r.Fatalf("berth inflate: %v:\n%s", err, document)
		}
		kind, _ := object["kind"].(string)
		if kind == "" || kind == "Secret" {
			continue
		}
		id := identity(object)
		if gone[id] {
			s.r.Errorf("%s: announced to leave, and still rendered", id)
		}
		if _, known := asked[document]; !known {
			asked[document] = s.dryRunOne(object)
		}
		outcomes[id] = asked[document]
	}
	return outcomes
}

func (s *site) dryRunOne(object map[string]any) string {
	s.r.Helper()
	metadata, _ := object["metadata"].(map[string]any)
	namespace, _ := metadata["namespace"].(string)
	kubectl := func(stdin []byte, args ...string) ([]byte, error) {
		if namespace != "" {
			args = append(args, "-n", namespace)
		}
		cmd := exec.CommandContext(s.r.ctx, s.r.box.KubectlPath(), args...)
		cmd.Env, cmd.Stdin = append(os.Environ(), s.r.box.Env()...), bytes.NewReader(stdin)
		out, err := cmd.Output()
		if exit, ok := err.(*exec.ExitError); ok {
			err = fmt.Errorf("%s", strings.TrimSpace(string(exit.Stderr)))
		}
		return out, err
	}
	text, err := json.Marshal(object)
	if err != nil {
		s.r.Fatal(err)
	}
	before, err := kubectl(text, "get", "-f", "-", "-o", "json", "--ignore-not-found")
	if err != nil {
		s.r.Fatalf("%s: %v", identity(object), err)
	}
	// The field manager of Flux: what it set before and does not set now goes.
	after, err := kubectl(text, "apply", "--server-side", "--dry-run=server", "--force-conflicts", "--field-manager=kustomize-controller", "-f", "-", "-o", "json")
	switch {
	case err != nil && (strings.Contains(err.Error(), "immutable") || strings.Contains(err.Error(), "Forbidden") || strings.Contains(err.Error(), "Invalid")):
		return "refused"
	case err != nil:
		s.r.Fatalf("%s: %v", identity(object), err)
	case essence(s, before) == nil:
		return "create"
	case reflect.DeepEqual(essence(s, before), essence(s, after)):
		return "same"
	}
	return "change"
}

// essence is an object without what only the cluster writes; nil where there is none.
func essence(s *site, text []byte) map[string]any {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		s.r.Fatal(err)
	}
	if object["kind"] == "List" { // kubectl get of what it reads from its input
		items, _ := object["items"].([]any)
		if len(items) == 0 {
			return nil
		}
		object, _ = items[0].(map[string]any)
	}
	delete(object, "status")
	metadata, _ := object["metadata"].(map[string]any)
	for _, key := range []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"} {
		delete(metadata, key)
	}
	// The hash of Slurm's configuration, which follows the files that are compared themselves.
	if spec, _ := object["spec"].(map[string]any); object["kind"] == "WorkerPool" {
		delete(spec, "configHash")
	}
	if annotations, _ := metadata["annotations"].(map[string]any); object["kind"] == "SlurmConfig" {
		delete(annotations, "berth-hpc.github.io/config-hash")
	}
	labels, _ := metadata["labels"].(map[string]any)
	for key := range labels {
		if strings.HasPrefix(key, "kustomize.toolkit.fluxcd.io/") { // Flux adds them as it applies
			delete(labels, key)
		}
	}
	if len(labels) == 0 {
		delete(metadata, "labels")
	}
	return object
}

// identity is an object as berth names it: Deployment slurm/slurm-rest.
func identity(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	name := fmt.Sprint(metadata["name"])
	if namespace, ok := metadata["namespace"].(string); ok && namespace != "" {
		name = namespace + "/" + name
	}
	return fmt.Sprint(object["kind"]) + " " + name
}
