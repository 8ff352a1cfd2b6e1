package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/guard/accounting"
	"github.com/berth-hpc/berth/components/guard/slurm"
	"github.com/berth-hpc/berth/components/guard/slurmconf"
)

// Slurm is what the guard needs of Slurm.
type Slurm interface {
	Try(ctx context.Context, scratch string, files map[string]string) (slurm.Verdict, error)
	Ping(ctx context.Context) error
	InForce(ctx context.Context) (bool, error)
	Reconfigure(ctx context.Context) error
	Jobs(ctx context.Context) ([]slurmconf.Job, error)
	// Drain keeps new jobs off nodes that nobody has drained or set down yet.
	Drain(ctx context.Context, nodes []string, reason string) error
	// Undrain lifts the drains that have the reason. Nodes of renew that are up are powered down, to come up new.
	Undrain(ctx context.Context, nodes, renew []string, reason string) error
	SetPartition(ctx context.Context, name, state string) error
}

// Accounts is what the guard needs of Slurm's database.
type Accounts interface {
	// Reconcile adds and modifies until the database says what the accounts say. It returns what it did.
	Reconcile(ctx context.Context, cluster string, accounts v1alpha1.Accounts) ([]string, error)
	// Leave deletes what has left the site and has no jobs any more. It returns what it did, and what stays with why.
	Leave(ctx context.Context, cluster string, gone accounting.Owned) (did []string, stays accounting.Owned, why []string)
}

// Reservations is what the guard needs of slurmctld's reservations.
type Reservations interface {
	// Reconcile makes, changes and deletes until slurmctld has the wanted reservations. It returns what it did.
	Reconcile(ctx context.Context, wanted []v1alpha1.Reservation) ([]string, error)
	// ByHand returns the nodes of the reservations that people made, by name.
	ByHand(ctx context.Context) (map[string][]string, error)
}

// Outcome is what the guard found and did about one generation.
type Outcome struct {
	State v1alpha1.ConfigState
	// Message says why; Slurm's own words where it refused.
	Message string
	// Accepted is the hash of the configuration that slurmctld runs with; "" while there is none.
	Accepted string
	// AccountsDone says that the database agrees with the SlurmConfig.
	AccountsDone bool
	// Note says what is not as it should be although the configuration is applied: a reservation that cannot be made yet, a user who left
	// and whose jobs run.
	Note string
	// Did is what was done in the database and to reservations, for the record.
	Did []string
	// Again says when to look again without a change; 0: at the usual pace.
	Again time.Duration
}

// Guard decides about one cluster's configuration. Its methods must not run concurrently.
type Guard struct {
	Slurm        Slurm
	Accounts     Accounts
	Reservations Reservations
	Store        *Store
	// Scratch is a directory for trials, not on the state volume.
	Scratch string
	// Keys is the directory where Slurm's keys are mounted, slurm.jwks or slurm.key; "": nobody looks whether they change.
	Keys string
	Log  *slog.Logger

	refused      map[string]string // hash → Slurm's words, so that a refused configuration is tried once and not every 15 s
	newKeys      string            // sum of mounted keys that the daemons have not been made to read
	newKeysSince time.Time         // when they were seen first
	interrupted  time.Time         // since when slurmctld is down in the middle of a change; zero: it is not
}

const (
	// soon is the pace while something is awaited: jobs that must end, slurmctld or slurmdbd that must come up.
	soon = 15 * time.Second
	// starting is the pace of a first start.
	starting = 2 * time.Second
	// comesUp is how long slurmctld may take to come up on a configuration that it has not run with before.
	comesUp = 2 * time.Minute
)

// Reconcile makes slurmctld run with the configuration, or finds why it must not. An error means that the guard could not
// do its work; nothing is lost, and it tries again.
func (g *Guard) Reconcile(ctx context.Context, config *v1alpha1.SlurmConfig) (Outcome, error) {
	hash := config.Spec.Hash()
	accepted, err := g.recover(ctx)
	if err != nil {
		return Outcome{}, err
	}
	if err := g.release(ctx, accepted, hash); err != nil {
		g.Log.Warn("the hold of a change stays for now", "error", err)
	}
	if accepted != hash {
		if words, known := g.refused[hash]; known {
			return g.afterRefusal(ctx, accepted, words), nil
		}
		outcome, err := g.change(ctx, config, hash, accepted)
		if err != nil || outcome.State != v1alpha1.ConfigApplied {
			return outcome, err
		}
		if err := g.release(ctx, hash, hash); err != nil {
			g.Log.Warn("the hold of a change stays for now", "error", err)
		}
	} else if outcome, done, err := g.keepInForce(ctx, hash); err != nil || !done {
		return outcome, err
	}
	if err := g.rereadKeys(ctx, time.Now()); err != nil {
		g.Log.Warn("Slurm's keys", "error", err)
	}
	return g.accounts(ctx, config, hash), nil
}

// recover returns the accepted configuration, after mending what a crash between two steps of a change left: slurmctld
// either took up the new one, then it is the accepted one, or it did not, then the old one is put back.
func (g *Guard) recover(ctx context.Context) (accepted string, err error) {
	current, err := g.Store.Current()
	if err != nil {
		return "", fmt.Errorf("read the state volume: %w", err)
	}
	if accepted, err = g.Store.Accepted(); err != nil {
		return "", fmt.Errorf("read the state volume: %w", err)
	}
	if current == accepted {
		return accepted, nil
	}
	inForce, err := g.Slurm.InForce(ctx)
	switch {
	case err == nil && inForce:
		if told, err := g.settle(ctx, current, accepted); err != nil || told != "" {
			return told, err
		}
		g.Log.Info("slurmctld already runs with the newest configuration", "hash", current)
		return current, g.Store.Accept(current)
	case accepted == "": // a first start: slurmctld waits for current and has not come up yet
		return "", nil
	case errors.Is(err, slurm.ErrDown):
		// It may be starting on current at this very moment. If it does not come up, current is to blame.
		if g.interrupted.IsZero() {
			g.interrupted = time.Now()
		}
		if time.Since(g.interrupted) < comesUp {
			return "", fmt.Errorf("a change was interrupted: %w", err)
		}
	case err != nil:
		return "", err
	}
	g.interrupted = time.Time{}
	g.Log.Warn("a change was interrupted before slurmctld took it up: putting the accepted configuration back", "accepted", accepted, "interrupted", current)
	return accepted, g.Store.Use(accepted)
}

// settle handles an interrupted change of other files than slurm.conf. slurmctld's hash is of slurm.conf alone, so nothing says
// whether it has read gres.conf, topology.conf or the hooks since. Reading the new ones once more hurts no job: none was there to
// be hurt when the change began, and its hold still keeps others away. It returns the accepted configuration if it was slurmctld
// that refused, "" if slurmctld runs with the new one.
func (g *Guard) settle(ctx context.Context, current, accepted string) (string, error) {
	if accepted == "" {
		return "", nil // slurmctld has started on it, and on no other
	}
	before, err := g.Store.Files(accepted)
	if err != nil {
		return "", fmt.Errorf("read the accepted configuration: %w", err)
	}
	now, err := g.Store.Files(current)
	if err != nil {
		return "", fmt.Errorf("read the interrupted configuration: %w", err)
	}
	if before["slurm.conf"] != now["slurm.conf"] {
		return "", nil
	}
	g.Log.Info("a change of other files than slurm.conf was interrupted: slurmctld reads them again", "hash", current)
	if err := g.Slurm.Reconfigure(ctx); err != nil {
		g.Log.Warn("slurmctld does not take them up: putting the accepted configuration back", "accepted", accepted, "error", err)
		return accepted, g.Store.Use(accepted)
	}
	return "", nil
}

// change tries a new configuration and applies it unless it is refused or must wait.
func (g *Guard) change(ctx context.Context, config *v1alpha1.SlurmConfig, hash, accepted string) (Outcome, error) {
	if current, err := g.Store.Current(); err == nil && current == hash && accepted == "" {
		return g.first(ctx, config, hash) // tried already
	}
	verdict, err := g.Slurm.Try(ctx, g.Scratch, config.Spec.Files)
	if err != nil {
		return Outcome{}, err
	}
	if !verdict.Accepted {
		return g.refuse(ctx, hash, accepted, verdict.Words), nil
	}
	if accepted == "" {
		return g.first(ctx, config, hash)
	}
	refusal, waiting, err := g.endangered(ctx, config, hash, accepted)
	switch {
	case errors.Is(err, slurm.ErrDown):
		return Outcome{State: v1alpha1.ConfigPending, Accepted: accepted, Again: soon,
			Message: "slurmctld does not answer, so nobody can say which jobs the change would hurt: " + err.Error()}, nil
	case err != nil:
		return Outcome{}, err
	case refusal != "":
		return g.refuse(ctx, hash, accepted, refusal), nil
	case waiting != "":
		g.Log.Info("waiting for jobs", "hash", hash, "why", waiting)
		return Outcome{State: v1alpha1.ConfigWaitingForJobs, Accepted: accepted, Message: waiting, Again: soon}, nil
	}
	return g.apply(ctx, config, hash, accepted)
}

// first gives a new cluster its first configuration; slurmctld's container waits for it.
func (g *Guard) first(ctx context.Context, config *v1alpha1.SlurmConfig, hash string) (Outcome, error) {
	if err := errors.Join(g.Store.Write(hash, config.Spec.Files), g.Store.Use(hash)); err != nil {
		return Outcome{}, fmt.Errorf("write the configuration: %w", err)
	}
	inForce, err := g.Slurm.InForce(ctx)
	if err != nil || !inForce {
		return Outcome{State: v1alpha1.ConfigPending, Again: starting, Message: "slurmctld starts on its first configuration"}, nil
	}
	g.Log.Info("first configuration applied", "hash", hash)
	return Outcome{State: v1alpha1.ConfigApplied, Accepted: hash}, g.Store.Accept(hash)
}

// endangered finds what a change would do to living jobs: a refusal where no waiting helps, or the jobs to wait for. While
// there are such jobs it keeps new ones from joining them; when it returns neither, no job can start where the change
// would kill it.
func (g *Guard) endangered(ctx context.Context, config *v1alpha1.SlurmConfig, hash, accepted string) (refusal, waiting string, err error) {
	files, err := g.Store.Files(accepted)
	if err != nil {
		return "", "", fmt.Errorf("read the accepted configuration: %w", err)
	}
	from, err := slurmconf.Read(files)
	if err != nil {
		return "", "", fmt.Errorf("read the accepted configuration: %w", err)
	}
	to, err := slurmconf.Read(config.Spec.Files)
	if err != nil {
		return err.Error(), "", nil
	}
	dangers, err := slurmconf.Dangers(from, to)
	if err != nil {
		return err.Error(), "", nil
	}
	if len(dangers) == 0 {
		return "", "", nil
	}
	for _, danger := range dangers {
		if danger.Never {
			return danger.What, "", nil
		}
	}
	if err := g.Slurm.Ping(ctx); err != nil {
		return "", "", err
	}
	if overridden(config, hash) {
		g.Log.Warn("applied although it may kill jobs: the site acknowledges it", "hash", hash)
		return "", "", nil
	}
	jobs, err := g.Slurm.Jobs(ctx)
	if err != nil {
		return "", "", err
	}
	hold := holdFor(hash, dangers, jobs, from)
	if err := g.hold(ctx, hold); err != nil {
		return "", "", err
	}
	// Once more: between the first look and the hold a job may have started.
	if jobs, err = g.Slurm.Jobs(ctx); err != nil {
		return "", "", err
	}
	waiting = waitingFor(dangers, jobs)
	if g.Reservations != nil {
		byHand, err := g.Reservations.ByHand(ctx)
		if err != nil {
			return "", "", err
		}
		waiting = joined(waiting, reservedBy(dangers, byHand))
	}
	if waiting != "" {
		waiting = joined(waiting, fmt.Sprintf("to apply it all the same, add %q to the site's acknowledge", overrideName(hash)))
	}
	return "", waiting, nil
}

// reservedBy names the reservations that people made and that a change would delete with their nodes.
func reservedBy(dangers []slurmconf.Danger, byHand map[string][]string) string {
	var lost []string
	for _, name := range slices.Sorted(maps.Keys(byHand)) {
		for _, danger := range dangers {
			if danger.Named && danger.Partition == "" && slices.ContainsFunc(byHand[name], func(node string) bool { return slices.Contains(danger.Nodes, node) }) {
				lost = append(lost, name)
			}
		}
	}
	if len(lost) == 0 {
		return ""
	}
	return "nodes leave the cluster: would delete reservation " + strings.Join(lost, ", ") + ", which somebody made by hand"
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// waitingFor names the dangers that would hurt jobs, and those jobs.
func waitingFor(dangers []slurmconf.Danger, jobs []slurmconf.Job) string {
	const named = 5 // as many as a person reads
	var parts []string
	for _, danger := range dangers {
		hurt := danger.Hurt(jobs)
		if len(hurt) == 0 {
			continue
		}
		var names []string
		for _, job := range hurt[:min(len(hurt), named)] {
			names = append(names, fmt.Sprintf("%s (%s, %s)", job.ID, job.User, job.Name))
		}
		if len(hurt) > named {
			names = append(names, fmt.Sprintf("and %d more", len(hurt)-named))
		}
		parts = append(parts, fmt.Sprintf("%s: would kill or lose job %s", danger.What, strings.Join(names, ", ")))
	}
	return strings.Join(parts, "; ")
}

// apply swaps the configuration and makes slurmctld read it. If slurmctld will not, the accepted one is put back, so that
// clients and a restart find what slurmctld runs with.
func (g *Guard) apply(ctx context.Context, config *v1alpha1.SlurmConfig, hash, accepted string) (Outcome, error) {
	if err := errors.Join(g.Store.Write(hash, config.Spec.Files), g.Store.Use(hash)); err != nil {
		return Outcome{}, fmt.Errorf("write the configuration: %w", err)
	}
	if err := g.Slurm.Ping(ctx); err != nil {
		// slurmctld is down and no job is endangered: it starts on the new configuration.
		return Outcome{State: v1alpha1.ConfigPending, Accepted: accepted, Message: "slurmctld does not answer; it finds the new configuration when it starts", Again: soon}, nil
	}
	if err := g.Slurm.Reconfigure(ctx); err != nil {
		if backErr := g.Store.Use(accepted); backErr != nil {
			return Outcome{}, fmt.Errorf("put the accepted configuration back after %w: %w", err, backErr)
		}
		return g.refuse(ctx, hash, accepted, "slurmctld did not take it up: "+err.Error()), nil
	}
	inForce, err := g.Slurm.InForce(ctx)
	if err != nil || !inForce {
		return Outcome{State: v1alpha1.ConfigPending, Accepted: accepted, Again: starting,
			Message: fmt.Sprintf("slurmctld was reconfigured but does not say yet that it runs with it (%v)", err)}, nil
	}
	if err := g.Store.Accept(hash); err != nil {
		return Outcome{}, fmt.Errorf("note the accepted configuration: %w", err)
	}
	clear(g.refused)
	g.Log.Info("applied", "hash", hash)
	return Outcome{State: v1alpha1.ConfigApplied, Accepted: hash}, nil
}

// keepInForce makes slurmctld run with the accepted configuration; done says that it does.
func (g *Guard) keepInForce(ctx context.Context, hash string) (outcome Outcome, done bool, err error) {
	inForce, err := g.Slurm.InForce(ctx)
	switch {
	case errors.Is(err, slurm.ErrDown):
		return Outcome{State: v1alpha1.ConfigPending, Accepted: hash, Message: err.Error(), Again: starting}, false, nil
	case err != nil:
		return Outcome{}, false, err
	case !inForce:
		g.Log.Warn("slurmctld runs with something else than the accepted configuration: reconfiguring", "hash", hash)
		if err := g.Slurm.Reconfigure(ctx); err != nil {
			return Outcome{State: v1alpha1.ConfigPending, Accepted: hash, Message: err.Error(), Again: soon}, false, nil
		}
	}
	return Outcome{}, true, nil
}

// accounts brings the database in line once the configuration is applied, and then the reservations, whose users and
// accounts must be in the database. A reservation that cannot be made yet holds nothing else up.
func (g *Guard) accounts(ctx context.Context, config *v1alpha1.SlurmConfig, hash string) Outcome {
	outcome := Outcome{State: v1alpha1.ConfigApplied, Accepted: hash}
	if g.Accounts != nil {
		done, note, err := g.keepAccounts(ctx, config)
		outcome.Did, outcome.Note = done, note
		for _, what := range done {
			g.Log.Info("database", "did", what)
		}
		if err != nil {
			outcome.Message, outcome.Again = "accounts: "+err.Error(), soon
			return outcome
		}
	}
	outcome.AccountsDone = true
	if g.Reservations != nil {
		done, err := g.Reservations.Reconcile(ctx, config.Spec.Reservations)
		outcome.Did = append(outcome.Did, done...)
		for _, what := range done {
			g.Log.Info("reservations", "did", what)
		}
		if err != nil {
			g.Log.Warn("reservations", "error", err)
			outcome.Note, outcome.Again = joined(outcome.Note, err.Error()), soon
		}
	}
	return outcome
}

func (g *Guard) refuse(ctx context.Context, hash, accepted, words string) Outcome {
	if g.refused == nil {
		g.refused = map[string]string{}
	}
	g.refused[hash] = words
	g.Log.Warn("refused", "hash", hash, "words", words)
	return g.afterRefusal(ctx, accepted, words)
}

// afterRefusal keeps the accepted configuration in force while a refused one stands in Git.
func (g *Guard) afterRefusal(ctx context.Context, accepted, words string) Outcome {
	outcome := Outcome{State: v1alpha1.ConfigRefused, Accepted: accepted, Message: words}
	if accepted != "" {
		if kept, done, err := g.keepInForce(ctx, accepted); err != nil {
			outcome.Message += "; and the accepted one: " + err.Error()
		} else if !done {
			outcome.Message += "; and the accepted one: " + kept.Message
		}
	}
	return outcome
}
