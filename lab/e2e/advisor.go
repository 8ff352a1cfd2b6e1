package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The advisor as the platform runs it: a container beside slurmctld, and where it puts things.
const (
	advisorContainer = "advisor"
	advisorSocket    = "/run/advisor/advisor.sock"
	advisorService   = "/run/advisor/service"
	advisorState     = "/var/spool/slurm/advisor"
	slurmUID         = 64030
)

// advisorHealth is what the tests read of the advisor's own word on itself.
type advisorHealth struct {
	Mode       string  `json:"mode"`
	Wanted     string  `json:"wanted_mode"`
	Checkpoint string  `json:"checkpoint"`
	Refused    string  `json:"refused_checkpoint"`
	Topology   string  `json:"topology"`
	Age        float64 `json:"snapshot_age_seconds"`
	Waiting    int     `json:"waiting"`
}

func (r *run) askAdvisor() (h advisorHealth, err error) {
	out, err := r.box.Kubectl(r.ctx, "exec", "-n", platform, controllerPod, "-c", advisorContainer, "--", "/advisor", "serve", "health", "--socket="+advisorSocket)
	if err != nil {
		return h, err
	}
	return h, json.Unmarshal([]byte(out), &h)
}

// waitAdvisor waits until the advisor says of itself what is wanted.
func (r *run) waitAdvisor(bound time.Duration, what string, is func(advisorHealth) bool) advisorHealth {
	r.Helper()
	var found advisorHealth
	r.eventually(bound, "the advisor "+what, func() (bool, string) {
		h, err := r.askAdvisor()
		if err != nil {
			return false, err.Error()
		}
		found = h
		return is(h), fmt.Sprintf("%+v", h)
	})
	return found
}

// advised waits until the advisor is in the mode, sees the cluster, and is the one that slurmctld asks.
func (r *run) advised(mode string) advisorHealth {
	r.Helper()
	// A ConfigMap reaches a container within a minute or two.
	return r.waitAdvisor(150*time.Second, "is in "+mode+" and sees the cluster", func(h advisorHealth) bool {
		return h.Mode == mode && h.Age >= 0 && h.Age < 30
	})
}

// partitionDown keeps jobs of a partition waiting until the test, or the returned function, ends it.
func (r *run) partitionDown(partition string) (up func()) {
	r.Helper()
	r.mustController("scontrol update PartitionName=" + partition + " State=DOWN")
	done := false
	up = func() {
		if done {
			return
		}
		done = true
		ctx, cancel := aftermath()
		defer cancel()
		if _, err := r.box.Kubectl(ctx, "exec", "-n", platform, controllerPod, "-c", controllerContainer, "--", "sh", "-c",
			asSlurmClient+"scontrol update PartitionName="+partition+" State=UP"); err != nil {
			r.Errorf("the partition stays down: %v", err)
		}
	}
	r.Cleanup(up)
	return up
}

// priority is a waiting job's priority and the part of it that the site, here the advisor, has added.
func (r *run) priority(id string) (whole, added int) {
	r.Helper()
	out := strings.TrimSpace(r.mustController("sprio --noheader --format='%Y %S' --jobs=" + id))
	if n, err := fmt.Sscan(out, &whole, &added); n != 2 || err != nil {
		r.Fatalf("sprio says %q of job %s", out, id)
	}
	return whole, added
}

// adminComment is what the advisor, or an administrator, left on the job.
func (r *run) adminComment(id string) string {
	r.Helper()
	for _, line := range strings.Split(r.mustController("scontrol show job "+id), "\n") {
		if text, is := strings.CutPrefix(strings.TrimSpace(line), "AdminComment="); is {
			return text
		}
	}
	return ""
}

// controllerLog is what slurmctld has logged since a moment.
func (r *run) controllerLog(since time.Time) string {
	r.Helper()
	return r.kubectl("logs", "-n", platform, controllerPod, "-c", controllerContainer, "--since-time="+since.UTC().Format(time.RFC3339Nano))
}

// recorded are the advisor's records of a job, by their event.
func (r *run) recorded(id string) (map[string]map[string]any, error) {
	out, err := r.inController("cat " + advisorState + "/log/*.jsonl")
	if err != nil {
		return nil, err
	}
	events := map[string]map[string]any{}
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		if fmt.Sprint(record["job"]) == id {
			events[fmt.Sprint(record["event"])] = record
		}
	}
	return events, nil
}

// giveCheckpoint puts a checkpoint where the advisor looks for its digest.
func (r *run) giveCheckpoint(digest, content string) {
	r.Helper()
	file := advisorState + "/checkpoints/" + strings.Replace(digest, ":", "-", 1)
	r.mustController(fmt.Sprintf("mkdir -p %s/checkpoints && echo %s | base64 -d > %s", advisorState, base64.StdEncoding.EncodeToString([]byte(content)), file))
	r.Cleanup(func() {
		ctx, cancel := aftermath()
		defer cancel()
		if _, err := r.box.Kubectl(ctx, "exec", "-n", platform, controllerPod, "-c", controllerContainer, "--", "rm", "-f", file); err != nil {
			r.Errorf("remove the checkpoint: %v", err)
		}
	})
}

// A sidecar is the advisor's container as the machine sees it: its process, and the directory of its socket.
type sidecar struct {
	r   *run
	uid string // of the pod
}

func (r *run) sidecar() sidecar {
	r.Helper()
	var p pod
	if err := r.get(&p, "pod", "-n", platform, controllerPod); err != nil {
		r.Fatal(err)
	}
	return sidecar{r, p.Metadata.UID}
}

// pid is the process that serves; 0 while none does.
func (s sidecar) pid() int {
	processes, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		s.r.Fatal(err)
	}
	for _, path := range processes {
		groups, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(groups), "/pod"+s.uid) {
			continue
		}
		words, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err == nil && strings.HasPrefix(string(words), "/advisor\x00serve\x00--") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err == nil {
				return pid
			}
		}
	}
	return 0
}

// mustPid is pid where one must be.
func (s sidecar) mustPid() int {
	s.r.Helper()
	pid := s.pid()
	if pid == 0 {
		s.r.Fatal("no advisor runs in the controller's pod")
	}
	return pid
}

// path is a path of its container as the test can open it.
func (s sidecar) path(name string) string {
	s.r.Helper()
	return fmt.Sprintf("/proc/%d/root%s", s.mustPid(), name)
}

// drop has the pod's own packets to a destination vanish, until the returned function is called or the test ends.
func (s sidecar) drop(match ...string) (undo func()) {
	s.r.Helper()
	pid := s.mustPid()
	iptables := func(verb string) error {
		argv := append([]string{"--target", strconv.Itoa(pid), "--net", "--", "iptables", "-w", verb, "OUTPUT"}, append(match, "-j", "DROP")...)
		if out, err := exec.Command("nsenter", argv...).CombinedOutput(); err != nil {
			return fmt.Errorf("iptables %s %s: %w: %s", verb, strings.Join(match, " "), err, out)
		}
		return nil
	}
	if err := iptables("-I"); err != nil {
		s.r.Fatal(err)
	}
	done := false
	undo = func() {
		if done {
			return
		}
		done = true
		if pid = s.pid(); pid == 0 {
			s.r.Error("no advisor is left to find the pod's network by; packets are dropped on")
			return
		}
		if err := iptables("-D"); err != nil {
			s.r.Error(err)
		}
	}
	s.r.Cleanup(undo)
	return undo
}

// timedJobs has a user submit jobs one after the other and returns them with what each sbatch took.
func (r *run) timedJobs(user string, n int) (ids []string, took []time.Duration) {
	r.Helper()
	out := r.mustAs(user, fmt.Sprintf(`for i in $(seq %d); do
  from=${EPOCHREALTIME/[.,]/}
  id=$(sbatch --parsable --job-name=e2e --partition=cpu --time=5 --output=%s/e2e-%%j.out --wrap 'echo went through') || exit 1
  echo $id $((${EPOCHREALTIME/[.,]/} - from))
done`, n, outputDir))
	for _, line := range strings.Split(out, "\n") {
		id, number, _ := strings.Cut(line, " ")
		micro, err := strconv.Atoi(number)
		if err != nil {
			r.Fatalf("%q: %v", line, err)
		}
		ids, took = append(ids, id), append(took, time.Duration(micro)*time.Microsecond)
		r.submitted = append(r.submitted, id)
	}
	if len(ids) != n {
		r.Fatalf("%d of %d jobs were submitted:\n%s", len(ids), n, out)
	}
	return ids, took
}

func median(of []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}
