package guard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/guard/slurmconf"
)

// holdReason is the reason of nodes that the guard drains. It is not one of the autoscaler's ("berth:"), which would
// power the nodes down and use them again before the change is applied.
const holdReason = "guard: waits for this node's jobs to change the configuration"

// Hold is what is kept from taking new jobs while a change waits for those that it would kill. It is written down before
// anything is drained, so that a guard that starts anew can lift it.
type Hold struct {
	// Hash is the configuration that waits.
	Hash string `json:"hash"`
	// Nodes are drained; those of Renew are new after the change, so that their pods are made from the new template.
	Nodes []string `json:"nodes,omitempty"`
	Renew []string `json:"renew,omitempty"`
	// Partitions are set to a state, and have the other one in the accepted configuration.
	Partitions map[string]HeldPartition `json:"partitions,omitempty"`
}

// HeldPartition is a partition's state while a change waits, and the one that it has otherwise.
type HeldPartition struct{ Held, Otherwise string }

// holdFor is what a change needs to be kept free of new jobs: exactly the nodes and partitions that its dangers name. Nodes
// that a waiting job names are left open: drained, they would never run that job, and the change would wait for ever.
func holdFor(hash string, dangers []slurmconf.Danger, jobs []slurmconf.Job, from *slurmconf.Config) Hold {
	hold := Hold{Hash: hash, Partitions: map[string]HeldPartition{}}
	partition := func(name, state string) {
		hold.Partitions[name] = HeldPartition{Held: state, Otherwise: strings.ToUpper(cmp.Or(from.Partitions[name]["state"], "UP"))}
	}
	for _, danger := range dangers {
		switch {
		case danger.All:
			// DOWN: jobs may be submitted and wait, those that run go on, and none starts.
			for name := range from.Partitions {
				if _, draining := hold.Partitions[name]; !draining {
					partition(name, "DOWN")
				}
			}
		case danger.Partition != "" && len(danger.Nodes) == 0:
			// DRAIN: what is queued runs, nothing more is queued.
			partition(danger.Partition, "DRAIN")
		default:
			open := map[string]bool{}
			for _, job := range jobs {
				if danger.Named && !job.Running {
					for _, node := range job.Nodes {
						open[node] = true
					}
				}
			}
			for _, node := range danger.Nodes {
				if open[node] {
					continue
				}
				hold.Nodes = append(hold.Nodes, node)
				if !danger.Named {
					hold.Renew = append(hold.Renew, node)
				}
			}
		}
	}
	for _, list := range []*[]string{&hold.Nodes, &hold.Renew} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return hold
}

// hold drains what a change needs free. What is held already stays so.
func (g *Guard) hold(ctx context.Context, wanted Hold) error {
	have, err := g.Store.Hold()
	if err != nil {
		return fmt.Errorf("read the state volume: %w", err)
	}
	same := have.Hash == wanted.Hash && slices.Equal(have.Nodes, wanted.Nodes) && maps.Equal(have.Partitions, wanted.Partitions)
	if same || len(wanted.Nodes)+len(wanted.Partitions) == 0 && have.Hash == "" {
		return nil
	}
	if have.Hash != "" && have.Hash != wanted.Hash {
		return errors.New("the hold of an earlier change is not lifted yet")
	}
	// A job that waits for one of its nodes by name needs it open again.
	opened := slices.DeleteFunc(slices.Clone(have.Nodes), func(node string) bool { return slices.Contains(wanted.Nodes, node) })
	if err := g.Slurm.Undrain(ctx, opened, nil, holdReason); err != nil {
		return fmt.Errorf("open nodes that waiting jobs name: %w", err)
	}
	if err := g.Store.SetHold(wanted); err != nil {
		return fmt.Errorf("write the state volume: %w", err)
	}
	g.Log.Info("holding", "nodes", wanted.Nodes, "partitions", wanted.Partitions, "hash", wanted.Hash)
	if err := g.Slurm.Drain(ctx, wanted.Nodes, holdReason); err != nil {
		return fmt.Errorf("drain the nodes that the change needs free: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(wanted.Partitions)) {
		if err := g.Slurm.SetPartition(ctx, name, wanted.Partitions[name].Held); err != nil {
			return fmt.Errorf("keep new jobs out of partition %s: %w", name, err)
		}
	}
	return nil
}

// release lifts the hold, if there is one that is not for the change that still waits. applied is the configuration that
// slurmctld runs with.
func (g *Guard) release(ctx context.Context, applied, wanted string) error {
	hold, err := g.Store.Hold()
	if err != nil {
		return fmt.Errorf("read the state volume: %w", err)
	}
	if hold.Hash == "" || hold.Hash == wanted && applied != wanted {
		return nil
	}
	var renew []string
	if hold.Hash == applied {
		renew = hold.Renew
	} else {
		// A reconfigure sets partitions to what the file says; without one it is done here.
		for _, name := range slices.Sorted(maps.Keys(hold.Partitions)) {
			if err := g.Slurm.SetPartition(ctx, name, hold.Partitions[name].Otherwise); err != nil {
				return fmt.Errorf("open partition %s again: %w", name, err)
			}
		}
	}
	if err := g.Slurm.Undrain(ctx, hold.Nodes, renew, holdReason); err != nil {
		return fmt.Errorf("use the drained nodes again: %w", err)
	}
	g.Log.Info("released", "nodes", hold.Nodes, "partitions", hold.Partitions, "hash", hold.Hash)
	return g.Store.SetHold(Hold{})
}

// overrideName is what an administrator writes into the site's acknowledge to have a change applied although it kills jobs.
func overrideName(hash string) string { return "kill-jobs/" + hash[:min(12, len(hash))] }

func overridden(config *v1alpha1.SlurmConfig, hash string) bool {
	return slices.Contains(config.Spec.Acknowledge, overrideName(hash))
}

const holdFile = "hold.json"

// Hold reads what is held; the zero value: nothing.
func (s *Store) Hold() (Hold, error) {
	text, err := os.ReadFile(filepath.Join(s.Dir, holdFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Hold{}, nil
	}
	if err != nil {
		return Hold{}, err
	}
	var hold Hold
	if err := json.Unmarshal(text, &hold); err != nil {
		return Hold{}, fmt.Errorf("%s: %w", holdFile, err)
	}
	return hold, nil
}

// SetHold notes what is held; the zero value: nothing.
func (s *Store) SetHold(hold Hold) error {
	path := filepath.Join(s.Dir, holdFile)
	if hold.Hash == "" {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	text, err := json.Marshal(hold)
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, text, 0o644)
}
