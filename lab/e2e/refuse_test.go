package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A site that cannot work is refused before it is pushed, by berth vet and by the plain cue command, with the field.
func TestVetRefuses(t *testing.T) {
	r := begin(t, 5*time.Minute)
	for _, wrong := range []struct{ name, where, old, replacement, field string }{
		{"a share that does not divide 100", `"gpu-rtx3080":`, "share: 25", "share: 30", "share"},
		{"more workers at least than at most", "cpu:", "max: 4", "min: 5, max: 4", "min"},
		{"cards that the host does not have", `"gpu-rtx4070":`, "gpus: 1", "gpus: 2", "gpu-rtx4070"},
		{"a user in an account that is not there", "student:", `"vision"`, `"visoin"`, "account"},
		{"an export that leaves the pods out", "allowedCIDRs:", `, "10.42.0.0/16"`, "", "allowedCIDRs"},
		{"a field that does not exist", "cpu:", "max: 4", "maximum: 9, max: 4", "maximum"},
	} {
		t.Run(wrong.name, func(t *testing.T) {
			r := &run{T: t, ctx: r.ctx, box: r.box}
			s := r.clone()
			if out, err := s.command("berth", "vet"); err != nil {
				t.Fatalf("the site as it is does not pass: %s", out)
			}
			s.edit(wrong.where, wrong.old, wrong.replacement)
			for _, vet := range [][]string{{"berth", "vet"}, {"cue", "vet", "-c", "./clusters"}} {
				out, err := s.command(vet...)
				if err == nil {
					t.Errorf("%s accepts it", strings.Join(vet, " "))
				}
				if !strings.Contains(out, wrong.field) {
					t.Errorf("%s does not name %s:\n%s", strings.Join(vet, " "), wrong.field, out)
				}
			}
			if out, err := s.command("berth", "render", siteName); err == nil {
				t.Errorf("berth render accepts it:\n%s", out)
			}
			if out, _ := s.command("git", "status", "--porcelain", "--", ":!"+siteFile); out != "" {
				t.Errorf("the refused render left changes:\n%s", out)
			}
		})
	}
}

// A tree that passed by the vet, because somebody wrote into it by hand, stops at Flux: the last good revision serves on.
func TestInvalidYAML(t *testing.T) {
	keepsServing(t, brokenPush{
		layer: "berth-slurm",
		spoil: func(s *site) {
			s.overwrite("overlays/lab-box/slurm/kustomization.yaml", "resources: [\n  - not: {closed\n")
		},
		reason: "yaml",
	})
}

func TestDanglingReference(t *testing.T) {
	keepsServing(t, brokenPush{
		layer: "berth-slurm",
		spoil: func(s *site) {
			path := "overlays/lab-box/slurm/kustomization.yaml"
			text, err := os.ReadFile(filepath.Join(s.dir, path))
			if err != nil {
				s.r.Fatal(err)
			}
			s.overwrite(path, strings.Replace(string(text), "resources:\n", "resources:\n- nowhere.yaml\n", 1))
		},
		reason: "nowhere.yaml",
	})
}

// What only slurmctld can know is wrong is found by the guard, which says so in Slurm's own words.
func TestRefusedConfiguration(t *testing.T) {
	keepsServing(t, brokenPush{
		layer: "berth-slurm",
		spoil: func(s *site) {
			s.declare(`lab: slurm: extraLines: ["BurstBufferType=burst_buffer/nonesuch"]`)
			s.render()
		},
		reason: "burst_buffer/nonesuch",
		slurm:  true,
	})
}

// A brokenPush is a push that must not be followed.
type brokenPush struct {
	layer  string
	spoil  func(*site)
	reason string // what the refusal names
	slurm  bool   // whether the guard refuses it, not Flux
}

// keepsServing pushes something broken while a job runs. The layer must be not Ready with the reason, where berth status
// shows it; the job must end well, slurmctld must not have been restarted, new jobs must be taken; and the revert of the
// push must bring everything back.
func keepsServing(t *testing.T, broken brokenPush) {
	r := begin(t, 10*time.Minute)
	j := r.runningJob(student, "--partition=cpu")
	started := r.slurmctldStart()

	s := r.clone()
	broken.spoil(s)
	s.push("Break the site")
	why := s.refused(broken.layer)
	t.Logf("%s says: %s", broken.layer, why)

	status, err := s.command("berth", "status", siteName)
	t.Logf("berth status: %v\n%s", err, status)
	if err == nil {
		t.Error("berth status ends with 0 while a layer is not Ready")
	}
	for _, want := range []string{strings.TrimPrefix(broken.layer, "berth-"), "failed", broken.reason} {
		if !strings.Contains(strings.ToLower(status), strings.ToLower(want)) {
			t.Errorf("berth status does not name %q", want)
		}
	}
	if broken.slurm {
		r.mustBeRefused(broken.reason)
	}
	if state := strings.TrimSpace(r.mustAs(researcher, "squeue --noheader --format=%T --jobs="+j.id)); state != "RUNNING" {
		t.Errorf("after the push the job that ran is %s", state)
	}
	second := r.submit(researcher, "--partition=cpu", "echo began; echo ended")
	r.mustComplete(j)
	r.waitJob(second, "COMPLETED", workerStarts)
	r.mustBeUntouched(started)

	s.revertLast()
	s.converged()
	if out, err := s.command("berth", "status", siteName); err != nil {
		t.Errorf("after the revert: %v\n%s", err, out)
	}
	r.mustBeUntouched(started)
}

// mustBeRefused checks what the guard says of the newest configuration.
func (r *run) mustBeRefused(reason string) {
	r.Helper()
	var c slurmConfig
	text := r.kubectl("get", "slurmconfig", "-n", platform, "slurm", "-o", "json")
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		r.Fatal(err)
	}
	if c.Status.State != "Refused" || c.Status.ObservedGeneration != c.Metadata.Generation {
		r.Errorf("the SlurmConfig's state is %s (of generation %d), want Refused (%d)", c.Status.State, c.Status.ObservedGeneration, c.Metadata.Generation)
	}
	if !strings.Contains(c.Status.Message, reason) {
		r.Errorf("the SlurmConfig's message does not name %q: %s", reason, c.Status.Message)
	}
}

// overwrite writes a file of the clone.
func (s *site) overwrite(path, text string) {
	s.r.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, path), []byte(text), 0o644); err != nil {
		s.r.Fatal(err)
	}
}
