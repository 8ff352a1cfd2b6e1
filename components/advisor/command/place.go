package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/components/advisor/placement"
	"github.com/berth-hpc/berth/components/advisor/placement/custody"
	"github.com/berth-hpc/berth/components/advisor/service"
	"github.com/berth-hpc/berth/components/advisor/snapshot"
	"github.com/berth-hpc/berth/components/slurmrest"
	"github.com/berth-hpc/berth/components/slurmrest/hostlist"
)

// placing are the flags of `advisor place`.
type placing struct {
	scheduler, tokenFile  string
	slurmrestd, slurmUser string
	jwtKey, state         string
	nodes                 []string
	terms                 custody.Terms
	giveUp, startWithin   time.Duration
	every                 time.Duration
	once, shadow, live    bool
	log                   *slog.Logger
}

func newPlace() *cobra.Command {
	var o placing
	c := &cobra.Command{
		Use:   "place",
		Short: "Give held jobs a node that an advisor chooses",
		Long: `place takes jobs that their users hold (sbatch --hold) and that are chosen by the beginning of their names, by account, by QOS or by comment;
asks the advisor at --scheduler-url which of them goes where; requires that node of the job and releases it. In shadow, the default, it
only says what it would do. A job that gets no place in time, or does not start on it, goes back to Slurm's own rules and says so in
its administrator comment. "advisor serve" does the same by itself where its settings say so; this command is for a Slurm beside it.`,
		Example: `  advisor place --scheduler-url http://advisor:8080 --slurmrestd http://slurm-rest:6820 --jwt-key jwt_hs256.key --once
  advisor place --scheduler-url unix:/run/advisor/advisor.sock --slurmrestd http://slurm-rest:6820 --jwt-key jwt_hs256.key --no-shadow --node-name slurm-worker-gpu-[0-3]`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.log = slog.New(slog.NewJSONHandler(c.ErrOrStderr(), nil))
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&o.scheduler, "scheduler-url", "unix:/run/advisor/advisor.sock", "the advisor: http://host:port or unix:/path")
	f.StringVar(&o.tokenFile, "token-file", "", "file with the advisor's bearer token; left out: derived from --jwt-key")
	f.StringVar(&o.slurmrestd, "slurmrestd", "", "slurmrestd: http://host:port or unix:/path")
	f.StringVar(&o.jwtKey, "jwt-key", "", "Slurm's JWT key (HS256), to ask slurmrestd")
	f.StringVar(&o.slurmUser, "slurm-user", "slurm", "user that slurmctld takes this program for; an operator or administrator of Slurm's")
	f.StringVar(&o.terms.JobNamePrefix, "job-name-prefix", "placed-", "place held jobs whose name begins so; \"\": none by name")
	f.StringSliceVar(&o.terms.Accounts, "account", nil, "place held jobs of this account too")
	f.StringSliceVar(&o.terms.QOS, "qos", nil, "place held jobs of this QOS too")
	f.StringArrayVar(&o.terms.Comments, "comment", nil, "place held jobs with this comment too")
	f.StringArrayVar(&o.nodes, "node-name", nil, "give jobs only this node, or these (a host list); left out: all that the advisor knows")
	f.BoolVar(&o.once, "once", false, "look once, place one job at most, and end")
	f.BoolVar(&o.shadow, "shadow", true, "only say what would be done")
	f.BoolVar(&o.live, "no-shadow", false, "place jobs, if the advisor is live too")
	f.DurationVar(&o.giveUp, "give-up", 15*time.Minute, "release a job without a place so long after its submission")
	f.DurationVar(&o.startWithin, "start-within", 10*time.Minute, "let a job run anywhere that has not started so long after its placement")
	f.DurationVar(&o.every, "every", 10*time.Second, "time between two looks at slurmctld")
	f.StringVar(&o.state, "state", "", "directory for what is promised of held jobs, so that others can keep it; one program at a time changes jobs by it")
	c.MarkFlagsMutuallyExclusive("shadow", "no-shadow")
	return c
}

// picture keeps the controller's own picture of the cluster. What the advisor decides on is the advisor's.
type picture struct{ snapshot.Store }

func (p *picture) Snapshot(d *snapshot.Delta) error {
	_, err := p.Apply(d, time.Now())
	return err
}

func (o *placing) run(ctx context.Context) error {
	if o.slurmrestd == "" || o.jwtKey == "" {
		return errors.New("--slurmrestd and --jwt-key are needed: jobs are changed through slurmrestd")
	}
	o.terms.GiveUpSeconds, o.terms.StartSeconds = int(o.giveUp/time.Second), int(o.startWithin/time.Second)
	if err := o.terms.Check(); err != nil {
		return err
	}
	mode := service.Live
	if o.shadow && !o.live {
		mode = service.Shadow
	}
	token, err := bearerToken(o.tokenFile, o.jwtKey)
	if err != nil {
		return err
	}
	advisor, err := placement.NewRemote(o.scheduler, token)
	if err != nil {
		return err
	}
	client, err := slurmrest.New(o.slurmrestd, &slurmrest.TokenSource{KeyFile: o.jwtKey, User: o.slurmUser})
	if err != nil {
		return err
	}
	promise := ""
	if o.state != "" {
		promise = filepath.Join(o.state, custody.File)
	}
	controller := placement.New(client, advisor, func() (service.Mode, custody.Terms) { return mode, o.terms }, promise, o.log)
	for _, names := range o.nodes {
		more, err := hostlist.Expand(names)
		if err != nil {
			return fmt.Errorf("--node-name: %w", err)
		}
		controller.Nodes = append(controller.Nodes, more...)
	}
	agent := &snapshot.Agent{Slurm: client, Target: &picture{}, Log: o.log, Every: o.every, Changed: controller.Observe}
	controller.Changed = agent.Refresh
	if o.once {
		agent.Batch = snapshot.MaxJobs
		if err := agent.Round(ctx, time.Now()); err != nil {
			return err
		}
		return controller.Round(ctx, time.Now())
	}
	var background sync.WaitGroup
	background.Go(func() { agent.Run(ctx) })
	controller.Run(ctx)
	background.Wait()
	return nil
}
