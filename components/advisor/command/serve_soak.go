package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// The soak's cluster, and when its memory counts as flat: the last third of the time against the second, the first is for warming up.
const (
	soakNodes   = 32
	soakShares  = 4 // jobs that share a node
	soakRun     = 10 * time.Second
	soakKept    = time.Minute // ended jobs stay in the list
	soakHold    = 200         // every so manieth job is held, to be placed
	soakGrowth  = 1.10
	soakLeeway  = 4 << 20
	soakSamples = 10 * time.Second
)

func newServeSoak() *cobra.Command {
	var length time.Duration
	var rate int
	c := &cobra.Command{
		Use:   "soak",
		Short: "Submit jobs to the service for half an hour and watch its memory",
		Long: `soak starts the service as a process of its own beside a stub of slurmrestd, both on unix sockets, and submits jobs at a steady rate, each on
a connection of its own as slurmctld does. The stub's jobs wait, run and end; the service takes snapshots, ranks what waits, places what
is held and keeps its record, all live. It ends with status 1 if a submission fails or the service's memory grows.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return soak(c.Context(), c.OutOrStdout(), c.ErrOrStderr(), length, rate)
		},
	}
	c.Flags().DurationVar(&length, "length", 30*time.Minute, "how long")
	c.Flags().IntVar(&rate, "rate", 10, "submissions a second")
	return c
}

func soak(ctx context.Context, out, progress io.Writer, length time.Duration, rate int) error {
	if length < time.Minute || rate < 1 || rate > 1000 {
		return errors.New("--length must be a minute or more, --rate 1 to 1000")
	}
	dir, err := os.MkdirTemp("", "advisor-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for name, text := range map[string]string{
		"key": strings.Repeat("k", 32),
		"settings.json": `{"mode":"live","topology":"a:32x1","maxBoost":1000,"snapshotTtlSeconds":60,"budgetMilliseconds":1000,
			"rerank":{"mode":"live"},"placement":{"mode":"live","jobNamePrefix":"placed-","giveUpSeconds":60,"startSeconds":60}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	stub := newStub()
	listener, err := net.Listen("unix", dir+"/rest")
	if err != nil {
		return err
	}
	rest := &http.Server{Handler: stub, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = rest.Serve(listener) }()
	defer rest.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "service.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	ours := &server{socket: dir + "/a", command: exec.CommandContext(ctx, self, "serve", "--socket", dir+"/a", "--settings", dir+"/settings.json",
		"--state", dir+"/state", "--log", dir+"/record", "--slurmrestd", "unix:"+dir+"/rest", "--jwt-key", dir+"/key")}
	ours.command.Stderr = log
	if err := ours.start(); err != nil {
		return err
	}
	defer ours.stop()

	var mu sync.Mutex
	var took []time.Duration
	var failures []error
	var resident []int64
	var all sync.WaitGroup
	begin := time.Now()
	count, sampled := int(length.Seconds()*float64(rate)), begin
	for i := range count {
		due := begin.Add(time.Duration(i) * time.Second / time.Duration(rate))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Until(due)):
		}
		all.Go(func() {
			err := once(ours.socket)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(due))
			if err != nil {
				failures = append(failures, err)
			}
		})
		stub.submit(int64(i+1), time.Now())
		stub.turn(time.Now())
		if time.Since(sampled) < soakSamples {
			continue
		}
		sampled = time.Now()
		n, err := residentBytes(ours.command.Process.Pid)
		if err != nil {
			return err
		}
		resident = append(resident, n)
		if len(resident)%6 == 0 {
			waiting, placed, ranked := stub.counts()
			_, _ = fmt.Fprintf(progress, "%s: %.1f MiB resident, %d jobs wait, %d placed, %d ranked\n", time.Since(begin).Round(time.Second), float64(n)/(1<<20), waiting, placed, ranked)
		}
	}
	all.Wait()
	slices.Sort(took)
	third := len(resident) / 3
	before, after := middle(resident[third:2*third]), middle(resident[2*third:])
	_, placed, ranked := stub.counts()
	if _, err := fmt.Fprintf(out, "advisor-soak %s %d submissions, %d failed; answers p50 %s p99 %s; %d placed, %d ranks written; resident %.1f MiB, then %.1f MiB\n",
		time.Since(begin).Round(time.Second), count, len(failures), took[len(took)/2].Round(time.Microsecond), took[len(took)*99/100].Round(time.Microsecond),
		placed, ranked, float64(before)/(1<<20), float64(after)/(1<<20)); err != nil {
		return err
	}
	switch {
	case len(failures) > 0:
		return problems{fmt.Sprintf("%d submissions got no answer, the first: %v", len(failures), failures[0])}
	case placed == 0 || ranked == 0:
		text, _ := os.ReadFile(log.Name())
		return problems{"the service placed or ranked nothing:\n" + string(text[max(0, len(text)-2000):])}
	case float64(after) > float64(before)*soakGrowth+soakLeeway:
		return problems{"the service's memory grows"}
	}
	return nil
}

func middle(of []int64) int64 {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// residentBytes is what a process has in memory.
func residentBytes(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, fmt.Errorf("the service has ended: %w", err)
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/%d/statm says %q", pid, text)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// stub is a slurmrestd with a slurmctld of the simplest kind: first come first served by priority, each job on a share of a node.
type stub struct {
	mu             sync.Mutex
	jobs           map[int64]*stubJob
	changed        time.Time // of the nodes
	placed, ranked int
}

type stubJob struct {
	id, factor         int64
	state, node, wants string
	comment            string
	held               bool
	submit, start, end time.Time
}

func newStub() *stub { return &stub{jobs: map[int64]*stubJob{}, changed: time.Now()} }

func (s *stub) submit(id int64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[id] = &stubJob{id: id, state: "PENDING", submit: now, held: id%soakHold == 0}
}

// turn ends and starts jobs.
func (s *stub) turn(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := map[string]int{}
	for id, j := range s.jobs {
		switch {
		case j.state == "RUNNING" && now.After(j.end):
			j.state, s.changed = "COMPLETED", now
		case j.state == "RUNNING":
			used[j.node]++
		case j.state == "COMPLETED" && now.Sub(j.end) > soakKept:
			delete(s.jobs, id)
		}
	}
	waiting := slices.DeleteFunc(slices.Collect(maps.Values(s.jobs)), func(j *stubJob) bool { return j.state != "PENDING" || j.held })
	slices.SortFunc(waiting, func(a, b *stubJob) int { return int(b.priority() - a.priority()) })
	for _, j := range waiting {
		for n := range soakNodes {
			name := fmt.Sprintf("n%d", n)
			if used[name] < soakShares && (j.wants == "" || j.wants == name) {
				used[name]++
				j.state, j.node, j.start, s.changed = "RUNNING", name, now, now
				// Bursts: for a minute of three there is more to run than there is room.
				j.end = now.Add(soakRun)
				if now.Unix()/60%3 == 0 {
					j.end = now.Add(2 * soakRun)
				}
				break
			}
		}
	}
}

func (j *stubJob) priority() int64 { return 1_000_000 - j.id + j.factor }

func (s *stub) counts() (waiting, placed, ranked int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		if j.state == "PENDING" {
			waiting++
		}
	}
	return waiting, s.placed, s.ranked
}

type object = map[string]any

func number(n int64) object { return object{"set": true, "infinite": false, "number": n} }

// ServeHTTP answers as slurmrestd does, as far as the service asks.
func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := object{"errors": []any{}, "meta": object{"plugin": object{"data_parser": "data_parser/v0.0.42"}, "slurm": object{"cluster": "soak"}}}
	path := strings.TrimPrefix(r.URL.Path, "/slurm/v0.0.42")
	id, _ := strconv.ParseInt(strings.TrimPrefix(path, "/job/"), 10, 64)
	switch {
	case path == "/nodes/" || strings.HasPrefix(path, "/node/"):
		if since, _ := strconv.ParseInt(r.URL.Query().Get("update_time"), 10, 64); since > s.changed.Unix() {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		answer["nodes"], answer["last_update"] = s.nodes(strings.TrimPrefix(path, "/node/")), number(time.Now().Unix())
	case path == "/jobs/state/":
		states := []object{}
		for id, j := range s.jobs {
			states = append(states, object{"job_id": strconv.FormatInt(id, 10), "state": []string{j.state}})
		}
		answer["jobs"] = states
	case r.Method == http.MethodPost:
		s.update(s.jobs[id], r.Body)
	case s.jobs[id] != nil:
		answer["jobs"] = []object{s.jobs[id].record()}
	default:
		w.WriteHeader(http.StatusNotFound)
		answer["errors"] = []object{{"error": "Invalid job id specified", "error_number": 2017}}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (s *stub) nodes(one string) []object {
	used := map[string]int{}
	for _, j := range s.jobs {
		if j.state == "RUNNING" {
			used[j.node]++
		}
	}
	var out []object
	for n := range soakNodes {
		name := fmt.Sprintf("n%d", n)
		if strings.HasPrefix(one, "n") && one != name {
			continue
		}
		out = append(out, object{"name": name, "state": []string{"MIXED"}, "cpus": 8, "alloc_cpus": used[name], "real_memory": 64000, "alloc_memory": 1000 * used[name],
			"gres": "gpu:a:1,mps:a:100", "gres_used": fmt.Sprintf("gpu:a:0(IDX:N/A),mps:a:%d(%d/100)", 25*used[name], 25*used[name])})
	}
	return out
}

func (j *stubJob) record() object {
	out := object{"job_id": j.id, "job_state": []string{j.state}, "name": fmt.Sprintf("job-%d", j.id), "user_name": fmt.Sprintf("u%d", j.id%50),
		"submit_time": number(j.submit.Unix()), "time_limit": number(j.id%60 + 1), "tres_req_str": "cpu=1,mem=1000M,node=1,billing=1,gres/mps=25",
		"priority": number(j.priority()), "admin_comment": j.comment, "required_nodes": j.wants, "nodes": j.node, "state_reason": "Resources"}
	if j.state != "PENDING" {
		out["start_time"], out["end_time"] = number(j.start.Unix()), number(j.end.Unix())
	}
	if j.id%soakHold == 0 {
		out["name"] = fmt.Sprintf("placed-%d", j.id)
	}
	if j.held {
		out["hold"], out["state_reason"], out["priority"] = true, "JobHeldUser", number(0)
	}
	return out
}

func (s *stub) update(j *stubJob, body io.Reader) {
	var u struct {
		SiteFactor *int64   `json:"site_factor"`
		Nodes      []string `json:"required_nodes"`
		Hold       *bool    `json:"hold"`
		Comment    *string  `json:"admin_comment"`
	}
	if err := json.NewDecoder(body).Decode(&u); err != nil || j == nil {
		return
	}
	if u.SiteFactor != nil {
		j.factor = *u.SiteFactor - 1<<31
		s.ranked++
	}
	if len(u.Nodes) > 0 {
		if j.wants = u.Nodes[0]; j.wants != "" {
			s.placed++
		}
	}
	if u.Hold != nil {
		j.held = *u.Hold
	}
	if u.Comment != nil {
		j.comment = *u.Comment
	}
}
