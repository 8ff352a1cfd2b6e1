package e2e

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// An announcedEdit is one kind of edit of the site, with what `berth diff` must say of it. What it says is then held against what
// happens; a job runs meanwhile.
type announcedEdit struct {
	// job are sbatch's options of the job that runs; pool is the pool of its node.
	job, pool string
	make      func(*site)
	// says are the beginnings of effects ("kind what") that must be announced.
	says []string
	// silent: no pod restarts, nothing drains, no job is concerned.
	silent bool
}

const onFirst = "--partition=cpu --nodelist=slurm-worker-cpu-0"

// holds announces the edit, pushes it, and asserts that what was announced, and nothing else, happens: to pods by their UIDs, to
// slurmctld by its start, to the job by its state.
func (e announcedEdit) holds(t *testing.T) {
	r := begin(t, 20*time.Minute)
	// A worker that an earlier test's pod template left would be replaced while this one looks.
	r.waitNoWorkers(e.pool)
	j := r.runningJob(student, e.job)
	node := j.nodes
	s := r.clone()
	pods, started, worker := r.controlPods(), r.slurmctldStart(), r.workerUID(node)
	if worker == "" || len(pods) < 5 {
		t.Fatalf("before the push: worker %q, control plane %v", worker, pods)
	}
	e.make(s)
	said := s.announced()
	t.Logf("announced:\n%s", strings.Join(said.lines(), "\n"))
	for _, want := range e.says {
		if !said.has(want) {
			t.Errorf("does not announce %q", want)
		}
	}
	drains := said.has("drain pool "+e.pool) || said.loses(e.pool) && said.concerns(j.id)
	if e.silent && (drains || said.concerns(j.id) || len(said.restarts()) > 0) {
		t.Error("announces more than a change that nobody notices")
	}
	s.agree(said)
	s.render()
	s.push(t.Name())

	if said.concerns(j.id) {
		message := r.waitConfig("WaitingForJobs", converges)
		if !strings.Contains(message, j.id) {
			t.Errorf("the guard waits, and does not name job %s: %s", j.id, message)
		}
	} else {
		s.converged()
		if state, message := r.config(); state != "Applied" {
			t.Errorf("no job is concerned, but the configuration is %s: %s", state, message)
		}
	}
	r.mustStillRun(j, node, worker)
	if !said.has("restart StatefulSet slurm/slurm-controller") {
		r.mustBeUntouched(started)
	}
	r.mustComplete(j)
	if said.concerns(j.id) {
		s.converged()
	}
	r.mustFollow(said, e.pool, node, worker, j)
	if got, want := replaced(pods, r.controlPods()), said.restarts(); !slices.Equal(got, want) {
		t.Errorf("restarted: %v; announced: %v", got, want)
	}
	if again := s.lag(); again != nil {
		t.Errorf("the cluster is not at the push: %v", again)
	}
}

// mustStillRun checks that the job runs where it ran, in the pod in which it ran.
func (r *run) mustStillRun(j job, node, worker string) {
	r.Helper()
	if now, err := r.lookJob(j.id); err != nil || now.state != "RUNNING" || now.nodes != node {
		r.Errorf("after the push: %v %v; want it RUNNING on %s", now, err, node)
	}
	if now := r.workerUID(node); now != worker {
		r.Errorf("the pod of the running job was replaced: %q, was %q", now, worker)
	}
}

// mustFollow checks what became of the job's node: it has gone, has a new pod, or the one that it had.
func (r *run) mustFollow(said announcement, pool, node, worker string, before job) {
	r.Helper()
	if said.loses(pool) && said.concerns(before.id) {
		r.eventually(workersLeave, node+" leaves", func() (bool, string) {
			known, err := r.inController("sinfo --noheader --Node --format=%N")
			if err != nil {
				return false, err.Error()
			}
			uid := r.workerUID(node)
			return uid == "" && !slices.Contains(strings.Fields(known), node), "pod " + uid + ", nodes " + known
		})
		return
	}
	// The next job on the node tells whether its worker was replaced: a drained one takes none.
	next := r.submit(student, "--partition="+pool+" --nodelist="+node, "sleep 5")
	r.waitJob(next, "COMPLETED", 2*workerStarts)
	uid := r.workerUID(node)
	switch drained := said.has("drain pool "+pool) || said.concerns(before.id); {
	case drained && uid == worker:
		r.Errorf("pool %s was announced to drain, but %s has the pod that it had", pool, node)
	case !drained && uid != worker && uid != "":
		r.Errorf("pool %s was not announced to drain, but %s has a new pod", pool, node)
	}
}

func TestAnnouncedPoolGrows(t *testing.T) {
	announcedEdit{job: onFirst, pool: "cpu", silent: true, make: func(s *site) { s.edit("cpu:", "max: 4", "max: 6") },
		says: []string{"apply pool cpu", "reconfigure slurm.conf"}}.holds(t)
}

// The job runs on a node that leaves.
func TestAnnouncedPoolShrinks(t *testing.T) {
	announcedEdit{job: "--partition=cpu --nodelist=slurm-worker-cpu-3", pool: "cpu", make: func(s *site) { s.edit("cpu:", "max: 4", "max: 2") },
		says: []string{"drain pool cpu", "jobs nodes leave the cluster (slurm-worker-cpu-[2-3])", "reconfigure slurm.conf"}}.holds(t)
}

func TestAnnouncedPoolIsRemoved(t *testing.T) {
	announcedEdit{job: onFirst, pool: "cpu", make: func(s *site) {
		s.edit("cpu:", `cpu: {max: 4, cpus: 2, memory: "4Gi", partition: default: true}`, "")
	}, says: []string{"drain pool cpu", "jobs nodes leave the cluster", "jobs partition cpu is removed", "reconfigure slurm.conf"}}.holds(t)
}

func TestAnnouncedPoolIsRenamed(t *testing.T) {
	announcedEdit{job: onFirst, pool: "cpu", make: func(s *site) { s.edit("cpu:", "cpu:", "batch:") },
		says: []string{"drain pool cpu", "apply pool batch", "jobs nodes leave the cluster", "jobs partition cpu is removed"}}.holds(t)
}

// In the box a worker asks Kubernetes for the same whatever Slurm gives to jobs, so that its pod changes only because the guard powers
// its node down for the change.
func TestAnnouncedCPUs(t *testing.T) {
	announcedEdit{job: onFirst, pool: "cpu", make: func(s *site) { s.edit("cpu:", "cpus: 2", "cpus: 1") },
		says: []string{"jobs cpus changes", "reconfigure slurm.conf"}}.holds(t)
}

func TestAnnouncedGRES(t *testing.T) {
	announcedEdit{job: "--partition=gpu-rtx3080 --gres=gpu:1", pool: "gpu-rtx3080", make: func(s *site) {
		s.edit(`"gpu-rtx3080":`, `sharing: mps: {share: 25, users: "trusted"}`, "sharing: shard: count: 4")
	}, says: []string{"jobs gres changes", "reconfigure gres.conf"}}.holds(t)
}

func TestAnnouncedMemory(t *testing.T) {
	announcedEdit{job: onFirst, pool: "cpu", make: func(s *site) { s.edit("cpu:", `memory: "4Gi"`, `memory: "2Gi"`) },
		says: []string{"reconfigure slurm.conf"}}.holds(t)
}

func TestAnnouncedPartitionLimit(t *testing.T) {
	announcedEdit{job: onFirst, pool: "cpu", silent: true, make: func(s *site) {
		s.edit("cpu:", "partition: default: true", `partition: {default: true, maxTime: "2:00:00"}`)
	}, says: []string{"reconfigure slurm.conf"}}.holds(t)
}

func TestAnnouncedQOS(t *testing.T) {
	announcedEdit{job: onFirst, pool: "cpu", silent: true, make: func(s *site) { s.declare("lab: slurm: qos: urgent: priority: 10") },
		says: []string{"accounts Slurm's database"}}.holds(t)
}

func TestAnnouncedPriorityWeight(t *testing.T) {
	announcedEdit{job: onFirst, pool: "cpu", silent: true, make: func(s *site) { s.declare("lab: slurm: priority: weights: age: 2000") },
		says: []string{"reconfigure slurm.conf"}}.holds(t)
}

// The same image by another name: for Kubernetes another image.
func TestAnnouncedImage(t *testing.T) {
	announcedEdit{job: onFirst, pool: "cpu", make: func(s *site) {
		const name = "localhost/berth/slurm-worker:box"
		socket := filepath.Join(filepath.Dir(s.r.box.Kubeconfig()), "run", "containerd.sock")
		tag := exec.CommandContext(s.r.ctx, "ctr", "--address", socket, "--namespace", "k8s.io", "images", "tag", "--force", name, name+"-again")
		if out, err := tag.CombinedOutput(); err != nil {
			s.r.Fatalf("ctr images tag: %v: %s", err, out)
		}
		s.edit("cpu:", "max: 4", `image: "`+name+`-again", max: 4`)
	}, says: []string{"drain pool cpu"}}.holds(t)
}

func TestAnnouncedUser(t *testing.T) {
	announcedEdit{job: onFirst, pool: "cpu", silent: true, make: func(s *site) { s.declare(`lab: users: newcomer: {uid: 2009, account: "vision"}`) },
		says: []string{"accounts Slurm's database"}}.holds(t)
}

func TestAnnouncedNetworkPolicy(t *testing.T) {
	announcedEdit{job: onFirst, pool: "cpu", silent: true, make: func(s *site) {
		s.edit("network:", "192.168.0.0/24", "192.168.0.0/23")
		s.edit("allowedCIDRs:", "192.168.0.0/24", "192.168.0.0/23")
	}, says: []string{"apply Flux"}}.holds(t)
}

func TestAnnouncedEnvironment(t *testing.T) {
	announcedEdit{job: onFirst, pool: "cpu", make: func(s *site) { s.edit("cpu:", "max: 4", `env: NCCL_DEBUG: "INFO", max: 4`) },
		says: []string{"drain pool cpu"}}.holds(t)
}

// The box's interval is the box's own, in the schema.
func TestAnnouncedDeliveryInterval(t *testing.T) {
	announcedEdit{job: onFirst, pool: "cpu", silent: true, make: func(s *site) {
		s.change("cue/box.cue", `"5m"
		timeout`, `"4m"
		timeout`)
	}, says: []string{"apply Flux"}}.holds(t)
}
