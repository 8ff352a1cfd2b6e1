package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/berth-hpc/berth/components/mps/card"
	"github.com/berth-hpc/berth/components/mps/control"
)

// margin is left of KillWait for terminate_client to work.
const margin = 5 * time.Second

// Watch looks after the daemon and the jobs until ctx ends. The daemon stays: jobs work through it.
func (s *Supervisor) Watch(ctx context.Context) {
	poll := time.NewTicker(s.Poll)
	defer poll.Stop()
	ask := time.NewTicker(s.Ask)
	defer ask.Stop()
	for {
		var look func(context.Context, card.Card) error
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
			look = s.health
		case <-ask.C:
			look = s.cancelled
		}
		if len(s.jobs()) == 0 {
			continue // and so no daemon
		}
		c, err := s.theCard()
		if err == nil {
			s.card.Lock()
			// Not ended in the middle by the end of the supervisor.
			err = look(context.WithoutCancel(ctx), c)
			s.card.Unlock()
		}
		if err != nil {
			s.Logger.Warn("cannot look after the card", "error", err)
		}
	}
}

// health tells the jobs of a fault, starts a daemon that vanished, and drains a node whose card does not come round.
func (s *Supervisor) health(ctx context.Context, c card.Card) error {
	jobs := s.jobs()
	if len(jobs) == 0 {
		return nil
	}
	ctl := s.control(c)
	if d := s.daemon(); d == nil || !d.alive() {
		s.Logger.Error("the MPS daemon vanished", "event", "DaemonVanished", "card", c.Name(), "jobs", jobs)
		go s.comment(jobs, goneNote)
		if err := s.start(ctx, c, ctl); err != nil {
			return errors.Join(err, s.bad(ctx, c, err.Error()))
		}
	}
	states, err := s.states(ctx, ctl)
	if err != nil {
		return s.bad(ctx, c, err.Error())
	}
	wrong := notActive(states)
	if len(wrong) == 0 {
		if !s.badSince.IsZero() {
			s.Logger.Info("the MPS server takes clients again", "event", "Recovered", "card", c.Name(), "after", time.Since(s.badSince).Round(time.Second).String())
		}
		s.badSince, s.faulty = time.Time{}, false
		return nil
	}
	for _, state := range wrong {
		if state == control.Fault && !s.faulty {
			s.faulty = true
			s.Logger.Error("a client's fault ended the work of all jobs on the card", "event", "Fault", "card", c.Name(), "jobs", jobs)
			go s.comment(jobs, faultNote)
		}
	}
	return s.bad(ctx, c, "the server is "+strings.Join(wrong, ", "))
}

// bad drains the node once the card has been unwell for too long. The drain ends with the last job's share (stop).
func (s *Supervisor) bad(ctx context.Context, c card.Card, why string) error {
	if s.badSince.IsZero() {
		s.badSince = time.Now()
		s.Logger.Warn("the card takes no clients", "card", c.Name(), "why", why)
	}
	s.data.Lock()
	drained := s.state.Drained
	s.data.Unlock()
	if drained || time.Since(s.badSince) < s.Recover {
		return nil
	}
	reason := Reason + fmt.Sprintf("card %s takes no clients for %s: %s", c.Name(), s.Recover, firstLine(why))
	if err := s.Slurm.Drain(ctx, reason); err != nil {
		return fmt.Errorf("the node is not drained: %w", err)
	}
	s.Logger.Error("the node takes no more jobs", "event", "Drained", "reason", reason)
	return s.update(func(st *state) { st.Drained = true })
}

func firstLine(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	return text
}

// cancelled ends the work on the card of jobs that Slurm is ending, before Slurm kills their processes: what is killed while it works
// on the card may take its neighbours along. A job may use most of KillWait for its own last words. Jobs that have ended without
// their epilog are forgotten.
func (s *Supervisor) cancelled(ctx context.Context, c card.Card) error {
	jobs := s.jobs()
	if len(jobs) == 0 {
		return nil
	}
	states, err := s.Slurm.States(ctx, jobs)
	if err != nil {
		return err
	}
	last := s.Slurm.KillWait() - margin
	for _, id := range jobs {
		if states[id] != "COMPLETING" {
			delete(s.ending, id)
			continue
		}
		if s.ending[id].IsZero() {
			s.ending[id] = time.Now()
		}
		// SIGTERM came up to Ask before it was seen, and the next look is Ask away: this one is the last in time, or not.
		if s.terminated[id] || time.Since(s.ending[id])+2*s.Ask <= last {
			continue
		}
		if err := s.terminate(ctx, c, id); err != nil {
			return err
		}
		s.terminated[id] = true
	}
	return s.forgetEnded(ctx, c, jobs, states)
}

func (s *Supervisor) terminate(ctx context.Context, c card.Card, id string) error {
	ctl := s.control(c)
	servers, err := ctl.Servers(ctx)
	if err != nil {
		return err
	}
	for _, server := range servers {
		clients, err := ctl.Clients(ctx, server)
		if err != nil {
			return err
		}
		for _, client := range clients {
			if job, ok := s.JobOf(client); !ok || job != id {
				continue
			}
			err := ctl.TerminateClient(ctx, server, client)
			s.Logger.Info("a client of an ending job is terminated", "event", "Terminated", "card", c.Name(), "job", id, "pid", client, "error", err)
		}
	}
	return nil
}

// forget asks Slurm which jobs there still are.
func (s *Supervisor) forget(ctx context.Context, c card.Card) error {
	jobs := s.jobs()
	if len(jobs) == 0 {
		return nil
	}
	states, err := s.Slurm.States(ctx, jobs)
	if err != nil {
		return err
	}
	return s.forgetEnded(ctx, c, jobs, states)
}

func (s *Supervisor) forgetEnded(ctx context.Context, c card.Card, jobs []string, states map[string]string) error {
	for _, id := range jobs {
		s.data.Lock()
		young := time.Since(s.state.Jobs[id].Since) < s.Ask
		s.data.Unlock()
		if _, there := states[id]; there || young {
			continue
		}
		s.Logger.Warn("a job ended without its epilog", "card", c.Name(), "job", id)
		if err := s.endLocked(ctx, c, id); err != nil {
			return err
		}
	}
	return nil
}
