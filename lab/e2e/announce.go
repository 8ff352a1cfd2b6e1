package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// announcement is what `berth diff --output json` says of one site (the parts that tests read).
type announcement struct {
	Site    string
	Edits   []struct{ Text string }
	Effects []effect
	// Migrations that render refuses.
	Migrations []struct {
		Name         string
		Acknowledged bool
	}
	Objects []struct{ Object, Action string }
}

type effect struct {
	Kind, What, Why string
	Jobs            []struct{ ID string }
}

// announced asks berth what the clone's change does to the box's site, with the jobs that it concerns.
func (s *site) announced() announcement {
	s.r.Helper()
	out, err := s.command("berth", "diff", siteName, "--jobs", "--output", "json")
	var list []announcement
	if jsonErr := json.Unmarshal([]byte(out), &list); jsonErr != nil || len(list) != 1 {
		s.r.Fatalf("berth diff: %v %v:\n%s", err, jsonErr, out)
	}
	if err == nil {
		s.r.Errorf("berth diff ends with 0 where something differs:\n%s", out)
	}
	return list[0]
}

// lines are the announced effects as "kind what".
func (a announcement) lines() []string {
	var lines []string
	for _, e := range a.Effects {
		lines = append(lines, e.Kind+" "+e.What)
	}
	return lines
}

// has tells whether an effect is announced, by the beginning of its "kind what".
func (a announcement) has(prefix string) bool {
	return slices.ContainsFunc(a.lines(), func(line string) bool { return strings.HasPrefix(line, prefix) })
}

// concerns tells whether the announcement names the job.
func (a announcement) concerns(id string) bool {
	for _, e := range a.Effects {
		for _, j := range e.Jobs {
			if j.ID == id {
				return true
			}
		}
	}
	return false
}

// restarts are the workloads whose pods are announced to be replaced.
func (a announcement) restarts() []string {
	var names []string
	for _, e := range a.Effects {
		if e.Kind == "restart" {
			names = append(names, e.What[strings.LastIndex(e.What, "/")+1:])
		}
	}
	slices.Sort(names)
	return names
}

// loses tells whether a node is announced to leave the cluster.
func (a announcement) loses(pool string) bool {
	return a.has("jobs nodes leave the cluster (slurm-worker-" + pool + "-")
}

// change replaces the one occurrence of old in a file of the clone.
func (s *site) change(path, old, replacement string) {
	s.r.Helper()
	full := filepath.Join(s.dir, path)
	text, err := os.ReadFile(full)
	if err != nil {
		s.r.Fatal(err)
	}
	if n := strings.Count(string(text), old); n != 1 {
		s.r.Fatalf("%s holds %q %d times, want once", path, old, n)
	}
	if err := os.WriteFile(full, []byte(strings.Replace(string(text), old, replacement, 1)), 0o644); err != nil {
		s.r.Fatal(err)
	}
}

// agree writes the acknowledgement of every migration that is refused into the site.
func (s *site) agree(a announcement) {
	s.r.Helper()
	var names []string
	for _, m := range a.Migrations {
		if !m.Acknowledged {
			names = append(names, fmt.Sprintf("%q", m.Name))
		}
	}
	if len(names) == 0 {
		return
	}
	if out, err := s.command("berth", "render", siteName); err == nil || !strings.Contains(out, "acknowledge") {
		s.r.Errorf("render takes it without an acknowledgement: %v\n%s", err, out)
	}
	s.declare("lab: acknowledge: [" + strings.Join(names, ", ") + "]")
}

// controlPods are the UIDs of the control plane's and the login pods, by workload.
func (r *run) controlPods() map[string][]string {
	r.Helper()
	found := map[string][]string{}
	for _, namespace := range []string{platform, workers} {
		for _, p := range r.pods(namespace, labelRole) {
			if _, worker := p.Metadata.Labels[labelPool]; worker || p.Metadata.DeletionTimestamp != nil {
				continue
			}
			name := "slurm-" + p.Metadata.Labels[labelRole]
			found[name] = append(found[name], p.Metadata.UID)
		}
	}
	for _, list := range found {
		slices.Sort(list)
	}
	return found
}

// replaced are the workloads of which no pod is one of before.
func replaced(before, after map[string][]string) []string {
	var names []string
	for name, uids := range before {
		stays := slices.ContainsFunc(uids, func(uid string) bool { return slices.Contains(after[name], uid) })
		if !stays {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// workerUID is the UID of a node's pod; "" where there is none, or it is on its way out.
func (r *run) workerUID(node string) string {
	var p pod
	if err := r.get(&p, "pod", "-n", workers, node); err != nil || p.Metadata.DeletionTimestamp != nil {
		return ""
	}
	return p.Metadata.UID
}

// config is the state that the guard gives Slurm's newest configuration.
func (r *run) config() (state, message string) {
	var c slurmConfig
	if err := r.get(&c, "slurmconfig", "-n", platform, "slurm"); err != nil {
		return "", err.Error()
	}
	if c.Status.ObservedGeneration != c.Metadata.Generation {
		return "Pending", "not looked at yet"
	}
	return c.Status.State, c.Status.Message
}

// waitConfig waits until the guard gives the newest configuration a state.
func (r *run) waitConfig(want string, bound time.Duration) (message string) {
	r.Helper()
	r.eventually(bound, "the configuration is "+want, func() (bool, string) {
		var state string
		state, message = r.config()
		return state == want, state + ": " + message
	})
	return message
}
