// Package command is the autoscaler's command line: it reads flags, builds the manager and the loop, and runs them.
package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/autoscaler/record"
	"github.com/berth-hpc/berth/components/autoscaler/scaler"
	"github.com/berth-hpc/berth/components/slurmrest"
)

type options struct {
	namespace, workersNamespace, config string
	slurmrestd, jwtKey, slurmUser       string
	listen                              string
	leaderElect, logJSON                bool
}

// Main runs the command and returns its exit status: 0 after a signal, 1 after an error.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	command := newCommand()
	command.SetArgs(args)
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "autoscaler:", err)
		return 1
	}
	return 0
}

func newCommand() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "autoscaler",
		Short: "Give the Slurm nodes that slurmctld wants up their pods, and take away those of the others",
		Long: `Give the Slurm nodes that slurmctld wants up their pods, and take away those of the others.

slurmctld decides which nodes are up; the autoscaler follows what slurmrestd says of them. Without a fresh answer it
changes nothing. It runs in the cluster, or outside with the current context of KUBECONFIG.`,
		Example:       "  autoscaler --slurmrestd http://slurm-rest.slurm:6820 --jwt-key /etc/slurm-keys/jwt/jwt_hs256.key",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(command *cobra.Command, _ []string) error { return run(command.Context(), o) },
	}
	flags := command.Flags()
	flags.StringVar(&o.namespace, "namespace", "slurm", "namespace of the SlurmConfig and of the leader's lease")
	flags.StringVar(&o.workersNamespace, "workers-namespace", "slurm-workers", "namespace of the WorkerPools and their pods")
	flags.StringVar(&o.config, "slurm-config", "slurm", "name of the SlurmConfig")
	flags.StringVar(&o.slurmrestd, "slurmrestd", "http://slurm-rest:6820", "slurmrestd: http://host:port or unix:/path")
	flags.StringVar(&o.jwtKey, "jwt-key", "/etc/slurm-keys/jwt/jwt_hs256.key", "file with the cluster's HS256 key for auth/jwt")
	flags.StringVar(&o.slurmUser, "slurm-user", "slurm", "user that slurmctld takes the autoscaler for: SlurmUser or another operator")
	flags.StringVar(&o.listen, "listen", ":8080", "address of /poke, /decisions, /metrics, /healthz and /readyz")
	flags.BoolVar(&o.leaderElect, "leader-elect", true, "let one replica at a time act")
	flags.BoolVar(&o.logJSON, "log-json", true, "write the log as JSON lines")
	command.AddCommand(newRemovePools(), newDecisions(), newReplay())
	command.CompletionOptions.DisableDefaultCmd = true
	return command
}

func run(ctx context.Context, o options) error {
	log := newLog(o.logJSON)
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	slurm, err := slurmrest.New(o.slurmrestd, &slurmrest.TokenSource{KeyFile: o.jwtKey, User: o.slurmUser})
	if err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the Kubernetes API: %w", err)
	}
	mgr, err := newManager(config, o)
	if err != nil {
		return err
	}
	metrics, err := scaler.NewMetrics(ctrlmetrics.Registry)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	loop := &scaler.Loop{
		Slurm: slurm, Kubernetes: mgr.GetClient(), Live: mgr.GetAPIReader(),
		Events: mgr.GetEventRecorder("berth-autoscaler"), Metrics: metrics, Log: log, Record: new(record.Recorder),
		ConfigNamespace: o.namespace, ConfigName: o.config, WorkersNamespace: o.workersNamespace,
	}
	if err := mgr.Add(loop); err != nil {
		return err
	}
	if err := watch(ctx, mgr, loop); err != nil {
		return err
	}
	if err := mgr.Add(server(o.listen, mgr, loop)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func newLog(json bool) *slog.Logger {
	if json {
		return slog.New(slog.NewJSONHandler(os.Stdout, nil))
	}
	return slog.New(slog.NewTextHandler(os.Stdout, nil))
}

// newManager makes the manager: caches of exactly the namespaces that the autoscaler may read, and leader election.
func newManager(config *rest.Config, o options) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	ours, err := labels.NewRequirement(v1alpha1.LabelPool, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	selector := labels.NewSelector().Add(*ours)
	workers := map[string]cache.Config{o.workersNamespace: {}}
	selected := map[string]cache.Config{o.workersNamespace: {LabelSelector: selector}}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Metrics:                       metricsserver.Options{BindAddress: "0"}, // served with the rest
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              "berth-autoscaler",
		LeaderElectionNamespace:       o.namespace,
		LeaderElectionReleaseOnCancel: true,
		Cache: cache.Options{
			ByObject: map[client.Object]cache.ByObject{
				&v1alpha1.SlurmConfig{}:      {Namespaces: map[string]cache.Config{o.namespace: {}}},
				&v1alpha1.WorkerPool{}:       {Namespaces: workers},
				&corev1.Pod{}:                {Namespaces: selected},
				&appsv1.ControllerRevision{}: {Namespaces: selected},
				&corev1.Node{}:               {Transform: slimHost},
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	return mgr, nil
}

// slimHost drops what the loop never reads of a host and what makes most of its size.
func slimHost(object any) (any, error) {
	if host, ok := object.(*corev1.Node); ok {
		host.ManagedFields, host.Annotations = nil, nil
		host.Status = corev1.NodeStatus{Conditions: host.Status.Conditions}
	}
	return object, nil
}

// watch pokes the loop when a pool, a pod or the configuration changes, so that nothing waits for the next round.
func watch(ctx context.Context, mgr manager.Manager, loop *scaler.Loop) error {
	poke := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { loop.Hints().Poke() },
		UpdateFunc: func(before, after any) {
			if wakes(before, after) {
				loop.Hints().Poke()
			}
		},
		DeleteFunc: func(any) { loop.Hints().Poke() },
	}
	for _, object := range []client.Object{&v1alpha1.WorkerPool{}, &v1alpha1.SlurmConfig{}, &corev1.Pod{}, &corev1.Node{}} {
		informer, err := mgr.GetCache().GetInformer(ctx, object)
		if err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
		if _, err := informer.AddEventHandler(poke); err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	// The accepted templates are read every round; fill their cache before the first.
	if _, err := mgr.GetCache().GetInformer(ctx, &appsv1.ControllerRevision{}); err != nil {
		return fmt.Errorf("watch the accepted templates: %w", err)
	}
	return nil
}

// wakes reports whether a change needs a round now; the loop's own writes (a pool's status, a pod's labels) need none.
func wakes(before, after any) bool {
	switch after := after.(type) {
	case *v1alpha1.WorkerPool:
		before := before.(*v1alpha1.WorkerPool)
		return before.Generation != after.Generation || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
	case *corev1.Pod:
		before := before.(*corev1.Pod)
		return before.Status.Phase != after.Status.Phase || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
	case *corev1.Node: // not its heartbeats
		return usable(before.(*corev1.Node)) != usable(after)
	case *v1alpha1.SlurmConfig:
		return before.(*v1alpha1.SlurmConfig).Status.AcceptedHash != after.Status.AcceptedHash
	}
	return false
}

// usable tells whether workers may be on a host, as far as a change of it is concerned.
func usable(host *corev1.Node) bool {
	for _, condition := range host.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return false
		}
	}
	return !host.Spec.Unschedulable && len(host.Spec.Taints) == 0
}

// server serves hints, metrics and probes. Every replica has it; a hint to one that does not lead is lost, and the leader
// sees the change in its next round.
func server(address string, mgr manager.Manager, loop *scaler.Loop) manager.Runnable {
	mux := http.NewServeMux()
	mux.Handle("/poke", loop.Hints())
	mux.Handle("/decisions", loop.Record)
	mux.Handle("/metrics", promhttp.HandlerFor(ctrlmetrics.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			http.Error(w, "the caches of Kubernetes' objects are not filled yet", http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return &manager.Server{
		Name:   "poke",
		Server: &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second},
	}
}
