// Package supervisor owns the MPS control daemon of a worker that shares its card: it runs while jobs have shares of the card, and
// at no other time. Slurm's prolog, epilog and task prolog ask it over a unix socket.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/berth-hpc/berth/components/mps/card"
	"github.com/berth-hpc/berth/components/mps/control"
)

// Slurm is what the supervisor needs of Slurm.
type Slurm interface {
	// States of those of the jobs that have not ended.
	States(ctx context.Context, jobs []string) (map[string]string, error)
	// Drain keeps the reason of a drain that stands; Undrain ends only one whose reason begins with prefix.
	Drain(ctx context.Context, reason string) error
	Undrain(ctx context.Context, prefix string) error
	// Comment adds to a job's comment.
	Comment(ctx context.Context, job, text string) error
	// KillWait is the time between SIGTERM and SIGKILL.
	KillWait() time.Duration
}

// Reason begins the reason of each drain of ours.
const Reason = "mps: "

const (
	sharedNote = Reason + "the card is shared with other users' jobs: a fault in one of them ends them all"
	faultNote  = Reason + "another job's fault on the card may have ended this one's work there"
	goneNote   = Reason + "the card's MPS daemon ended under this job; work on the card was lost"
)

// Config is all that a supervisor needs.
type Config struct {
	// Root holds the state, the socket and a directory a card; /run/berth/mps. Others may enter it.
	Root string
	// Log takes the daemon's own logs.
	Log string
	// Program is nvidia-cuda-mps-control.
	Program string
	// Shared lets jobs of several users share a server ("trusted"). Otherwise Slurm must keep a second user away.
	Shared bool
	// Memory is the card's as the site says, in bytes: used where nothing in the pod tells it, compared where something does.
	Memory uint64
	// Reserve is what the server and the driver need of the card's memory, in bytes: no job's.
	Reserve uint64
	// Cards are the ones really there.
	Cards func() (cards []card.Card, note string, err error)
	Slurm Slurm
	// JobOf tells whose process it is.
	JobOf func(pid int) (job string, ok bool)
	// Start bounds a start of the daemon or of its server, Stop its end, Command each of its answers.
	Start, Stop, Command time.Duration
	// Recover is how long a server may not be ACTIVE before the node is drained.
	Recover time.Duration
	// Poll is how often the server's state is looked at, Ask how often Slurm is asked about the jobs.
	Poll, Ask time.Duration
	Logger    *slog.Logger
}

// Job is one share of the card.
type Job struct {
	UID     int       `json:"uid"`
	Percent int       `json:"percent"`
	Since   time.Time `json:"since"`
}

// Supervisor is made by New.
type Supervisor struct {
	Config

	// card orders what changes the daemon; data guards what follows. Never take card while data is held.
	card sync.Mutex

	data  sync.Mutex
	state state
	the   *card.Card

	// Of the watch, under card.
	faulty     bool                 // the present fault has been told
	badSince   time.Time            // when the server was first not ACTIVE
	ending     map[string]time.Time // jobs being ended, since when
	terminated map[string]bool
}

// New reads the state that an earlier supervisor left: its daemon and jobs may be there still.
func New(c Config) (*Supervisor, error) {
	s := &Supervisor{Config: c, ending: map[string]time.Time{}, terminated: map[string]bool{}}
	for _, dir := range []string{c.Root, c.Log} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("mps: %w", err)
		}
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	// The daemon is only adopted where it is the same process still.
	if s.state.Daemon != nil && !s.state.Daemon.alive() {
		s.state.Daemon = nil
	}
	if _, err := s.theCard(); err != nil {
		// A card may be asked for once it is there; a job's prolog says it again.
		c.Logger.Error("no card to share", "error", err)
	}
	if s.state.Daemon != nil || len(s.state.Jobs) > 0 {
		c.Logger.Info("took over", "daemon", s.state.Daemon, "jobs", s.jobs())
	}
	return s, nil
}

// theCard is the one card of this worker; a node that shares by MPS has no other.
func (s *Supervisor) theCard() (card.Card, error) {
	s.data.Lock()
	defer s.data.Unlock()
	if s.the != nil {
		return *s.the, nil
	}
	cards, note, err := s.Cards()
	if err != nil {
		return card.Card{}, err
	}
	if note != "" {
		s.Logger.Warn("cards are found by their device files: NVML cannot be asked", "why", note)
	}
	if len(cards) != 1 {
		return card.Card{}, fmt.Errorf("this worker has %d cards; a worker that shares by MPS owns exactly one (gpus: 1)", len(cards))
	}
	c := cards[0]
	switch {
	case c.Memory == 0:
		c.Memory = s.Memory
	case s.Memory > 0 && (c.Memory > s.Memory+s.Memory/10 || c.Memory < s.Memory-s.Memory/10):
		s.Logger.Warn("the card's memory is not what the site says; shares follow the card", "card", c.Name(), "bytes", c.Memory, "site", s.Memory)
	}
	s.Logger.Info("found the card", "card", c.Name(), "device", fmt.Sprintf("/dev/nvidia%d", c.Minor), "bytes", c.Memory)
	s.the = &c
	return c, nil
}

func (s *Supervisor) control(c card.Card) control.Control {
	return control.Control{Program: s.Program, Pipe: filepath.Join(s.Root, c.Name()), Log: filepath.Join(s.Log, c.Name()),
		Visible: c.Visible(), Shared: s.Shared, Timeout: s.Command}
}

// StartShare makes sure that the card's daemon runs and takes clients, before a job with a share of it. An error means that the job
// must not start here; nothing is left of it then.
func (s *Supervisor) StartShare(ctx context.Context, id string, job Job) error {
	if id == "" || job.Percent < 1 || job.Percent > 100 || job.UID < 0 {
		return fmt.Errorf("job %q of uid %d has a share of %d%%, which is none", id, job.UID, job.Percent)
	}
	c, err := s.theCard()
	if err != nil {
		return err
	}
	s.card.Lock()
	defer s.card.Unlock()
	job.Since = time.Now()
	if err := s.update(func(st *state) { st.Jobs[id] = job }); err != nil {
		return err
	}
	if err := s.ready(ctx, c, job.UID); err != nil {
		s.Logger.Error("the card takes no shares", "card", c.Name(), "job", id, "error", err)
		return errors.Join(err, s.endLocked(ctx, c, id))
	}
	s.Logger.Info("share begins", "card", c.Name(), "job", id, "uid", job.UID, "percent", job.Percent, "jobs", s.jobs())
	if s.Shared {
		go s.comment([]string{id}, sharedNote)
	}
	return nil
}

// EndShare forgets a job, and stops the daemon with the last. A job that is not known has ended already.
func (s *Supervisor) EndShare(ctx context.Context, id string) error {
	c, err := s.theCard()
	if err != nil {
		return nil // then no share ever began
	}
	s.card.Lock()
	defer s.card.Unlock()
	return s.endLocked(ctx, c, id)
}

func (s *Supervisor) endLocked(ctx context.Context, c card.Card, id string) error {
	known := false
	if err := s.update(func(st *state) {
		_, known = st.Jobs[id]
		delete(st.Jobs, id)
	}); err != nil {
		return err
	}
	delete(s.ending, id)
	delete(s.terminated, id)
	if known {
		s.Logger.Info("share ends", "card", c.Name(), "job", id, "jobs", s.jobs())
	}
	if len(s.jobs()) > 0 {
		return nil
	}
	return s.stop(ctx, c)
}

// Whole stops the daemon before a job that has the card to itself. It fails where another job has a share, which Slurm never lets
// happen: jobs that Slurm has forgotten are ended here.
func (s *Supervisor) Whole(ctx context.Context, id string) error {
	c, err := s.theCard()
	if err != nil {
		return err
	}
	s.card.Lock()
	defer s.card.Unlock()
	if err := s.forget(ctx, c); err != nil {
		return err
	}
	if jobs := s.jobs(); len(jobs) > 0 {
		return fmt.Errorf("job %s is to have the whole card, but %s has a share of it", id, strings.Join(jobs, ", "))
	}
	return s.stop(ctx, c)
}

// Environment is what a job's processes need to share the card.
type Environment struct {
	// Pipe is CUDA_MPS_PIPE_DIRECTORY. Visible is CUDA_VISIBLE_DEVICES: the daemon sees one card, so its clients count from 0.
	Pipe, Visible string
	// Percent is the job's share of the card.
	Percent int
	// Memory is the card's without the reserve, in bytes; 0 where nobody knows it.
	Memory uint64
}

// Limit is CUDA_MPS_PINNED_DEVICE_MEM_LIMIT for a share: card 0 in whole MiB, "" where the memory is not known.
func (e Environment) Limit(percent int) string {
	limit := e.Memory * uint64(percent) / 100 >> 20
	if limit == 0 {
		return ""
	}
	return fmt.Sprintf("0=%dM", limit)
}

// Environment tells it for a job with a share; ok is false for all other jobs.
func (s *Supervisor) Environment(id string) (e Environment, ok bool) {
	s.data.Lock()
	defer s.data.Unlock()
	job, ok := s.state.Jobs[id]
	if !ok || s.the == nil {
		return Environment{}, false
	}
	e = Environment{Pipe: filepath.Join(s.Root, s.the.Name()), Visible: "0", Percent: job.Percent}
	if s.the.Memory > s.Reserve {
		e.Memory = s.the.Memory - s.Reserve
	}
	return e, true
}

// jobs are the ids of the jobs with shares, in order.
func (s *Supervisor) jobs() []string {
	s.data.Lock()
	defer s.data.Unlock()
	ids := make([]string, 0, len(s.state.Jobs))
	for id := range s.state.Jobs {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	return ids
}

// comment tells jobs something. What it takes of Slurm's time must not hold a prolog up.
func (s *Supervisor) comment(jobs []string, text string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, id := range jobs {
		if err := s.Slurm.Comment(ctx, id, text); err != nil {
			s.Logger.Warn("the job was not told", "job", id, "text", text, "error", err)
		}
	}
}
