package scaler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-hpc/berth/components/autoscaler/decision"
	"github.com/berth-hpc/berth/components/slurmrest"
	"github.com/berth-hpc/berth/components/slurmrest/hostlist"
)

// maxHint bounds a hint's body: a host list, or Slurm's resume file.
const maxHint = 1 << 20

// Hints wakes the loop. Slurm's Resume, Suspend and ResumeFailProgram poke it over HTTP, and watches of pods and pools
// poke it too. A hint carries no orders: node states are the truth, so a forged or a lost one costs nothing but a round, and the
// name of a job in the reason of a pod.
type Hints struct {
	once sync.Once
	wake chan struct{}

	mu     sync.Mutex
	resume map[string][]int // of nodes that power up: the jobs that Slurm told of
}

// maxResume bounds how many nodes are remembered: more than Slurm's largest list of nodes.
const maxResume = 100_000

// resumed remembers what Slurm's resume file says: which job has which nodes powered up. What cannot be read says nothing.
func (h *Hints) resumed(file []byte) {
	var told struct {
		Jobs []struct {
			ID    int    `json:"job_id"`
			Nodes string `json:"nodes_resume"`
		} `json:"jobs"`
	}
	if json.Unmarshal(file, &told) != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.resume == nil {
		h.resume = map[string][]int{}
	}
	for _, job := range told.Jobs {
		nodes, err := hostlist.Expand(job.Nodes)
		if err != nil || len(h.resume)+len(nodes) > maxResume {
			continue
		}
		for _, node := range nodes {
			if !slices.Contains(h.resume[node], job.ID) {
				h.resume[node] = append(h.resume[node], job.ID)
			}
		}
	}
}

// jobs are those that a node that powers up is for, in words; "" where Slurm told of none.
func (h *Hints) jobs(node string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := h.resume[node]
	switch len(ids) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("job %d", ids[0])
	case 2, 3:
		return "jobs " + strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ", "), "[]")
	}
	return fmt.Sprintf("job %d and %d more", ids[0], len(ids)-1)
}

// forget is for a node that is up, or leaves: its next power-up is another one.
func (h *Hints) forget(node string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.resume, node)
}

func (h *Hints) init() { h.once.Do(func() { h.wake = make(chan struct{}, 1) }) }

// Poke asks for a round now.
func (h *Hints) Poke() {
	h.init()
	select {
	case h.wake <- struct{}{}:
	default: // one is asked for already
	}
}

// wait returns true after the interval or a poke, and false when ctx has ended. Pokes close together make one round.
func (h *Hints) wait(ctx context.Context, interval time.Duration) bool {
	timer := time.NewTimer(interval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-h.wake:
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(50 * time.Millisecond):
		return true
	}
}

// ServeHTTP takes POST /poke with a body "resume <hostlist>" (or suspend, resume-fail), and on the lines after it Slurm's resume
// file, if there is one.
func (h *Hints) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "poke with POST and a body like: resume slurm-worker-cpu-[0-1]", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxHint))
	if err != nil {
		http.Error(w, "the body is too long", http.StatusRequestEntityTooLarge)
		return
	}
	what, file, _ := bytes.Cut(body, []byte("\n"))
	h.resumed(file)
	h.Poke()
	w.WriteHeader(http.StatusAccepted)
	if len(what) > 0 {
		_, _ = io.WriteString(w, "heard: "+strings.Map(printable, string(what[:min(len(what), 200)]))+"\n")
	}
}

func printable(r rune) rune {
	if r < ' ' {
		return -1
	}
	return r
}

// wants says what Slurm powers the pool's nodes up for that have no pod yet: the jobs, as Slurm told, and the cards of the node that
// they are given.
func (l *Loop) wants(view *view, pool *poolView) map[string]string {
	var wants map[string]string
	for _, name := range pool.names() {
		node := view.nodes[name]
		if node == nil {
			continue
		}
		switch phase := decision.PhaseOf(node); {
		case phase == decision.Up || phase == decision.Leaving:
			l.hints.forget(name)
			continue
		case phase != decision.Starting || pool.pods[name] != nil:
			continue
		}
		words := l.hints.jobs(name)
		if words == "" {
			continue
		}
		if used, err := slurmrest.ParseGRES(node.GresUsed); err == nil {
			for _, gres := range used {
				if gres.Count > 0 {
					words += fmt.Sprintf(", gres/%s:%d", gres.Name, gres.Count)
				}
			}
		}
		if wants == nil {
			wants = map[string]string{}
		}
		wants[name] = words
	}
	return wants
}
