package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
)

// lookEvery is how often a removal looks whether the pools have gone.
const lookEvery = 2 * time.Second

func newRemovePools() *cobra.Command {
	var namespace string
	command := &cobra.Command{
		Use:   "remove-pools",
		Short: "Delete all WorkerPools and wait until their jobs have ended and they are gone",
		Long: `Delete all WorkerPools and wait until their jobs have ended and they are gone.

An uninstall does this first: the autoscaler lets a pool go when its last job has ended, so it must still be there. What a
pool waits for is written whenever that changes. An end by a signal takes nothing back: the pools go on leaving.`,
		Example: "  autoscaler remove-pools --workers-namespace slurm-workers",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if namespace == "" { // which would be all namespaces
				return errors.New("--workers-namespace is empty; name the namespace whose WorkerPools are to go, slurm-workers for example")
			}
			config, err := ctrl.GetConfig()
			if err != nil {
				return fmt.Errorf("find the Kubernetes API: %w", err)
			}
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				return err
			}
			kubernetes, err := client.New(config, client.Options{Scheme: scheme})
			if err != nil {
				return fmt.Errorf("reach the Kubernetes API: %w", err)
			}
			return removePools(command.Context(), kubernetes, namespace, lookEvery, command.OutOrStdout())
		},
	}
	command.Flags().StringVar(&namespace, "workers-namespace", "slurm-workers", "namespace of the WorkerPools")
	return command
}

// removePools deletes the WorkerPools of the namespace and returns when none is left, or with an error that names those that
// are when ctx ends. An API server that does not answer is asked again; one that refuses is an error.
func removePools(ctx context.Context, kubernetes client.Client, namespace string, every time.Duration, out io.Writer) error {
	said := map[string]string{}
	for {
		left, err := removalRound(ctx, kubernetes, namespace)
		switch {
		case err == nil && len(left) == 0:
			_, _ = fmt.Fprintln(out, "no worker pool is left")
			return nil
		case err != nil && !transient(err):
			return err
		case err != nil:
			left = []waiting{{"the Kubernetes API", err.Error()}}
		}
		now := map[string]string{}
		for _, pool := range left {
			now[pool.name] = pool.why
			if said[pool.name] != pool.why {
				_, _ = fmt.Fprintf(out, "%s: %s\n", pool.name, pool.why)
			}
		}
		said = now
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: still there: %s", context.Cause(ctx), describe(left))
		case <-time.After(every):
		}
	}
}

// waiting is a pool that is still there, and what it waits for.
type waiting struct{ name, why string }

// removalRound deletes the pools that nobody has deleted yet, and lists all that are there.
func removalRound(ctx context.Context, kubernetes client.Client, namespace string) ([]waiting, error) {
	var pools v1alpha1.WorkerPoolList
	err := kubernetes.List(ctx, &pools, client.InNamespace(namespace))
	if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) { // the kind itself is gone
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the WorkerPools of %s: %w", namespace, err)
	}
	var left []waiting
	for i := range pools.Items {
		pool := &pools.Items[i]
		if pool.DeletionTimestamp.IsZero() {
			if err := kubernetes.Delete(ctx, pool); client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("delete WorkerPool %s/%s: %w", namespace, pool.Name, err)
			}
		}
		why := "waits for the autoscaler to see that it is deleted"
		if c := apimeta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionReady); c != nil && !pool.DeletionTimestamp.IsZero() && c.Status != metav1.ConditionTrue {
			why = c.Message
		}
		left = append(left, waiting{pool.Name, why})
	}
	return left, nil
}

func describe(left []waiting) string {
	parts := make([]string, len(left))
	for i, pool := range left {
		parts[i] = pool.name + " (" + pool.why + ")"
	}
	return strings.Join(parts, ", ")
}

// transient tells whether asking again may help: everything but a refusal of the request itself.
func transient(err error) bool {
	return !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err)
}
