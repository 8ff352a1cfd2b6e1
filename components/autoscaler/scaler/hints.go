package scaler

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// maxHint bounds a hint's body: a host list, or Slurm's resume file.
const maxHint = 1 << 20

// Hints wakes the loop. Slurm's Resume, Suspend and ResumeFailProgram poke it over HTTP, and watches of pods and pools
// poke it too. A hint carries no orders: node states are the truth, so a forged or a lost one costs nothing but a round.
type Hints struct {
	once sync.Once
	wake chan struct{}
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

// ServeHTTP takes POST /poke with a body "resume <hostlist>" (or suspend, resume-fail), or the same as JSON.
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
	h.Poke()
	w.WriteHeader(http.StatusAccepted)
	if !json.Valid(body) && len(body) > 0 {
		_, _ = io.WriteString(w, "heard: "+strings.Map(printable, string(body[:min(len(body), 200)]))+"\n")
	}
}

func printable(r rune) rune {
	if r < ' ' {
		return -1
	}
	return r
}
