package slurmconf

import (
	"fmt"
	"time"

	"github.com/berth-hpc/berth/components/jobsubmit"
	"github.com/berth-hpc/berth/renderer/site"
)

// Where the chart puts what the advisor and job_submit.lua share.
const (
	advisorSocket  = "/run/advisor/advisor.sock"
	advisorService = "/run/advisor/service"
)

// slurmUID is Slurm's own user in the images, as Debian's packages make it.
const slurmUID = 64030

// jobSubmit writes job_submit.lua, "" where the site needs none.
func jobSubmit(s *site.Site) (string, error) {
	own := s.Slurm.JobSubmit
	settings := jobsubmit.Settings{
		Mode: s.Advisor.Mode, Deadline: time.Duration(s.Advisor.Guardrails.DeadlineMS) * time.Millisecond, MaxBoost: s.Advisor.Guardrails.MaxBoost,
		Socket: advisorSocket, Service: advisorService, Rerank: s.Advisor.Rerank.Mode != jobsubmit.Off, SlurmUID: slurmUID,
		RequireTimeLimit: own.Require.TimeLimit, RequireAccount: own.Require.Account,
		NoLoginShell: !knowsGetEnvTimeout(s),
		Before:       own.Before, After: own.After, Modify: own.Modify,
	}
	if !settings.Needed() {
		return "", nil
	}
	script, err := jobsubmit.Script(settings)
	if err != nil {
		return "", fmt.Errorf("slurm.jobSubmit.%w", err)
	}
	return script, nil
}
