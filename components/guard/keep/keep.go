// Package keep makes slurmctld keep as many nodes of each pool up as the autoscaler says in the WorkerPools' status, by
// SuspendExcNodes at run time: one list for all pools, which a reconfigure sets back to the file's. It starts no node; the
// autoscaler does, and it decides no number.
package keep

import (
	"context"
	"fmt"
	"log/slog"
	"sort"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
)

const (
	// pace is how often the pools are read, and check how often slurmctld is asked for the list that it has: a reconfigure
	// or a restart sets it back. SuspendTime is minutes, so nothing is powered down in between.
	pace  = 5 * time.Second
	check = 30 * time.Second
	// askTimeout bounds a question to slurmctld, roundTimeout a round with its reconfigure.
	askTimeout   = 30 * time.Second
	roundTimeout = 3 * time.Minute
)

// Programs runs Slurm's programs.
type Programs interface {
	Run(ctx context.Context, timeout time.Duration, name string, args ...string) (string, error)
	// Reconfigure makes slurmctld read its configuration again.
	Reconfigure(ctx context.Context) error
}

// Keeper keeps slurmctld's list in step with the pools.
type Keeper struct {
	Slurm      Programs
	Kubernetes client.Reader
	// Namespace is where the WorkerPools are.
	Namespace string
	Log       *slog.Logger

	wanted  string
	checked time.Time
	failing bool
}

// Run keeps the list until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	for {
		err := k.Round(ctx, time.Now())
		if ctx.Err() != nil {
			return
		}
		if failing := err != nil; failing != k.failing {
			k.failing = failing
			if failing {
				k.Log.Warn("cannot tell slurmctld which nodes stay up; it keeps the list that it has", "error", err)
			} else {
				k.Log.Info("slurmctld is told again which nodes stay up")
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pace):
		}
	}
}

// Round compares and, where they differ, sets.
func (k *Keeper) Round(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	var pools v1alpha1.WorkerPoolList
	if err := k.Kubernetes.List(ctx, &pools, client.InNamespace(k.Namespace)); err != nil {
		return fmt.Errorf("list the WorkerPools: %w", err)
	}
	wanted, known := List(pools.Items)
	if !known || wanted == k.wanted && now.Sub(k.checked) < check {
		return nil
	}
	has, err := k.current(ctx)
	if err != nil {
		return err
	}
	before := has
	if wanted == "" && has != "" {
		// slurmctld 24.11 goes by the counts of the list before until it gets another one with counts: an empty one frees no
		// node. Only a reconfigure forgets them; it sets the file's list.
		if err := k.Slurm.Reconfigure(ctx); err != nil {
			return fmt.Errorf("make slurmctld forget the nodes that stay up: %w", err)
		}
		if has, err = k.current(ctx); err != nil {
			return err
		}
	}
	if has != wanted {
		if _, err := k.Slurm.Run(ctx, askTimeout, "scontrol", "update", "SuspendExcNodes="+wanted); err != nil {
			return fmt.Errorf("set the nodes that stay up: %w", err)
		}
	}
	if before != wanted {
		k.Log.Info("nodes that stay up", "before", before, "now", wanted)
	}
	k.wanted, k.checked = wanted, now
	return nil
}

// List writes the list of all pools, in Slurm's form: slurm-worker-cpu-[0-3]:2. It is not known while a pool has no floor
// in its status: the autoscaler has not looked at it yet, and the list of the file, which has the pool's minimum, is better.
func List(pools []v1alpha1.WorkerPool) (list string, known bool) {
	var parts []string
	for i := range pools {
		spec, floor := &pools[i].Spec, pools[i].Status.Floor
		if floor == nil {
			return "", false
		}
		if nodes := min(floor.Nodes, spec.Max); nodes > 0 {
			names := fmt.Sprintf("%s-0", spec.NodePrefix)
			if spec.Max > 1 {
				names = fmt.Sprintf("%s-[0-%d]", spec.NodePrefix, spec.Max-1)
			}
			parts = append(parts, fmt.Sprintf("%s:%d", names, nodes))
		}
	}
	sort.Strings(parts)
	return strings.Join(parts, ","), true
}

// current asks for slurmctld's SuspendExcNodes, its parts in order; "" where it has none.
func (k *Keeper) current(ctx context.Context) (string, error) {
	config, err := k.Slurm.Run(ctx, askTimeout, "scontrol", "show", "config")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(config) {
		key, value, found := strings.Cut(line, "=")
		if !found || strings.TrimSpace(key) != "SuspendExcNodes" {
			continue
		}
		value = strings.TrimSpace(value)
		if value == "(null)" {
			return "", nil
		}
		parts := strings.Split(value, ",")
		sort.Strings(parts)
		return strings.Join(parts, ","), nil
	}
	return "", fmt.Errorf("scontrol show config says no SuspendExcNodes")
}
