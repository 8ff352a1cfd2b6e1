package command

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/berth-hpc/berth/components/mps/supervisor"
)

// Bounds of the hooks. A start may take Config.Start twice and a stop Config.Stop twice, both in a prolog after a lost epilog.
const (
	patience    = 10 * time.Second
	prologTime  = 90 * time.Second
	taskTime    = 2 * time.Second
	percentName = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
)

// hooks are Slurm's: root is where the supervisor listens, getenv Slurm's environment.
type hooks struct {
	root   string
	getenv func(string) string
	out    io.Writer
}

// prolog asks for what the job needs of the card before its first process. Slurm names the share to the prolog as to the job.
func (h hooks) prolog() error {
	job := h.getenv("SLURM_JOB_ID")
	if share := h.getenv(percentName); share != "" {
		percent, err := strconv.Atoi(share)
		if err != nil {
			return fmt.Errorf("%s=%q is no number", percentName, share)
		}
		uid, err := strconv.Atoi(h.getenv("SLURM_JOB_UID"))
		if err != nil {
			return fmt.Errorf("SLURM_JOB_UID=%q is no user", h.getenv("SLURM_JOB_UID"))
		}
		_, err = supervisor.Ask(h.root, supervisor.Request{Do: "share", Job: job, UID: uid, Percent: percent}, patience, prologTime)
		return err
	}
	if h.getenv("SLURM_JOB_GPUS") == "" {
		return nil // a job without the card
	}
	_, err := supervisor.Ask(h.root, supervisor.Request{Do: "whole", Job: job}, patience, prologTime)
	return err
}

// epilog gives the job's share back. It needs no share named: a job without one has none.
func (h hooks) epilog() error {
	_, err := supervisor.Ask(h.root, supervisor.Request{Do: "end", Job: h.getenv("SLURM_JOB_ID")}, patience, prologTime)
	return err
}

// taskProlog prints what Slurm takes into a task's environment. A step's share may be a part of its job's.
func (h hooks) taskProlog() error {
	percent, err := strconv.Atoi(h.getenv(percentName))
	if err != nil || percent < 1 {
		return nil
	}
	answer, err := supervisor.Ask(h.root, supervisor.Request{Do: "environment", Job: h.getenv("SLURM_JOB_ID")}, taskTime, taskTime)
	if err != nil || answer.Environment == nil {
		return err
	}
	e := answer.Environment
	fmt.Fprintf(h.out, "export CUDA_MPS_PIPE_DIRECTORY=%s\nexport CUDA_VISIBLE_DEVICES=%s\n", e.Pipe, e.Visible)
	if limit := e.Limit(min(percent, e.Percent)); limit != "" {
		fmt.Fprintf(h.out, "export CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=%s\n", limit)
	}
	return nil
}
