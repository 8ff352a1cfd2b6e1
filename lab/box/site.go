package box

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-hpc/berth/lab/build"
)

// bringUpSite builds the platform, puts the site into the box's git server, and
// lets Flux make it true.
func (b *Box) bringUpSite(ctx context.Context, p *progress) error {
	if err := p.step("build Berth", func() error { return b.builder.Programs(ctx) }); err != nil {
		return err
	}
	if err := p.step("build and import the images", func() error { _, err := b.Images(ctx, build.Releases[0]); return err }); err != nil {
		return err
	}
	var commit string
	if err := p.step("render the site and push it", func() (err error) {
		commit, err = b.pushSite(ctx)
		return err
	}); err != nil {
		return err
	}
	release, err := b.renderedRelease()
	if err != nil {
		return err
	}
	if release != build.Releases[0] {
		step := "build and import the images of Slurm " + release.Slurm
		if err := p.step(step, func() error { _, err := b.Images(ctx, release); return err }); err != nil {
			return err
		}
	}
	return p.step("wait until every layer is Ready", func() error {
		if err := b.applyEntryPoints(ctx); err != nil {
			return err
		}
		return b.WaitReady(ctx, commit, 5*time.Minute)
	})
}

// renderedRelease is the release of Slurm whose images the site in the clone asks for.
func (b *Box) renderedRelease() (build.Release, error) {
	file := filepath.Join(b.Clone(), "overlays", b.Site, "slurm", "statefulset-slurm-controller.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return build.Release{}, fmt.Errorf("box: which Slurm does site %s name: %w", b.Site, err)
	}
	for _, r := range build.Releases {
		if strings.Contains(string(text), "image: "+r.Image("slurm-controller")+"\n") {
			return r, nil
		}
	}
	return build.Release{}, fmt.Errorf("box: %s names no slurm-controller image that the box can build", file)
}

// pushSite renders the site in the clone, with secrets that the box's own key
// opens, and pushes it.
func (b *Box) pushSite(ctx context.Context) (commit string, err error) {
	if err := b.syncRepository(ctx); err != nil {
		return "", err
	}
	if err := b.sealSecrets(ctx); err != nil {
		return "", err
	}
	if _, err := b.Berth(ctx, "render", b.Site); err != nil {
		return "", err
	}
	return b.Push(ctx, "Render "+b.Site)
}

// Berth runs the checkout's berth in the clone.
func (b *Box) Berth(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(b.Source, "bin", "berth"), args...)
	cmd.Dir = b.Clone()
	cmd.Env = append(os.Environ(), b.Env()...)
	return output(cmd)
}

// sealSecrets makes the site's secrets unless the clone has them, and gives
// Flux the key that opens them.
func (b *Box) sealSecrets(ctx context.Context) error {
	if _, err := b.ageKey(); err != nil {
		return err
	}
	key, err := os.ReadFile(b.AgeKeyFile())
	if err != nil {
		return err
	}
	secret, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "sops-age", "namespace": "flux-system"},
		"data": object{"age.agekey": base64.StdEncoding.EncodeToString(key)},
	})
	if err != nil {
		return err
	}
	if err := b.Apply(ctx, string(secret)); err != nil {
		return err
	}
	sealed, err := filepath.Glob(filepath.Join(b.Clone(), "clusters", b.Site, "secrets", "*.yaml"))
	if err != nil || len(sealed) > 0 {
		return err // made by an earlier Up; new ones would lock the volumes' database out
	}
	_, err = b.Berth(ctx, "secrets", "init", b.Site, "--identity", b.AgeKeyFile())
	return err
}

// applyEntryPoints applies what Flux starts from; from then on Flux applies it.
func (b *Box) applyEntryPoints(ctx context.Context) error {
	_, err := b.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "--field-manager=berth-lab",
		"--kustomize", filepath.Join(b.Clone(), "clusters", b.Site))
	if err != nil {
		return err
	}
	return b.Reconcile(ctx)
}

// Login runs a command in the login pod as a user of the site, in its home.
func (b *Box) Login(ctx context.Context, user string, argv ...string) (string, error) {
	args := []string{"exec", "--namespace", "slurm-workers", "deployment/slurm-login", "--",
		"runuser", "--user", user, "--", "sh", "-c", `cd "$HOME" 2>/dev/null || cd /tmp; exec "$@"`, "sh"}
	return b.Kubectl(ctx, append(args, argv...)...)
}

// Users lists the names of the site's users.
func (b *Box) Users(ctx context.Context) ([]string, error) {
	passwd, err := b.Kubectl(ctx, "get", "--namespace", "slurm-workers", "configmap", "slurm-users", "-o", "jsonpath={.data.passwd}")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, line := range strings.Split(passwd, "\n") {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("box: the site %s has no user", b.Site)
	}
	return names, nil
}

// firstJobs submits a job and a job on two nodes as a user of the site, waits
// for both, and says how to look around.
func (b *Box) firstJobs(ctx context.Context, p *progress) error {
	users, err := b.Users(ctx)
	if err != nil {
		return err
	}
	for _, j := range []struct {
		what string
		args []string
	}{
		{"run a job", []string{"--nodes=1", "--wrap=srun hostname"}},
		{"run a job on two nodes", []string{"--nodes=2", "--wrap=srun hostname"}},
	} {
		if err := p.step(j.what, func() error {
			id, err := b.Submit(ctx, users[0], j.args...)
			if err != nil {
				return err
			}
			return b.WaitJob(ctx, id, "COMPLETED", 3*time.Minute)
		}); err != nil {
			return err
		}
	}
	p.say("\n%s", b.lookAround(users[0]))
	return nil
}

// Submit runs sbatch as the user and returns the job's id.
func (b *Box) Submit(ctx context.Context, user string, args ...string) (id string, err error) {
	out, err := b.Login(ctx, user, append([]string{"sbatch", "--parsable"}, args...)...)
	if err != nil {
		return "", err
	}
	id, _, _ = strings.Cut(strings.TrimSpace(out), ";")
	return id, nil
}

// JobState is the job's state as accounting has it, or as slurmctld has it while
// accounting does not know the job yet.
func (b *Box) JobState(ctx context.Context, id string) (string, error) {
	out, err := b.Login(ctx, "root", "sacct", "--noheader", "--allocations", "--parsable2", "--format=State", "--jobs", id)
	if state := strings.TrimSpace(out); err != nil || state != "" {
		return state, err
	}
	out, err = b.Login(ctx, "root", "squeue", "--noheader", "--format=%T", "--jobs", id)
	return strings.TrimSpace(out), err
}

// WaitJob waits until the job has ended, and fails unless in the wanted state.
func (b *Box) WaitJob(ctx context.Context, id, want string, within time.Duration) error {
	return Poll(ctx, within, "job "+id, func(ctx context.Context) (bool, string, error) {
		state, err := b.JobState(ctx, id)
		if err != nil {
			return false, err.Error(), nil
		}
		word, _, _ := strings.Cut(state, " ") // "CANCELLED by 0"
		switch word {
		case want:
			return true, state, nil
		case "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "PREEMPTED":
			return false, state, fmt.Errorf("ended %s, want %s", state, want)
		}
		return false, state, nil
	})
}

func (b *Box) lookAround(user string) string {
	return fmt.Sprintf(`The site %[1]s runs. To look around:

  eval "$(bin/box env)"
  kubectl get pods -A
  kubectl -n slurm-workers exec -it deploy/slurm-login -- runuser -u %[2]s -- bash -l
      sinfo; squeue; sbatch --wrap 'srun hostname'

To change it, edit clusters/lab.cue in %[3]s, then there:

  berth render %[1]s && git add --all && git commit -m 'Resize a pool' && git push
  berth status`, b.Site, user, b.Clone())
}
