// Package command is the guard's command line: it reads flags, builds the guard and its watcher, and runs them.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/client-go/kubernetes"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/guard"
	"github.com/berth-hpc/berth/components/guard/accounting"
	"github.com/berth-hpc/berth/components/guard/await"
	"github.com/berth-hpc/berth/components/guard/custodian"
	"github.com/berth-hpc/berth/components/guard/keep"
	"github.com/berth-hpc/berth/components/guard/lost"
	"github.com/berth-hpc/berth/components/guard/ranks"
	"github.com/berth-hpc/berth/components/guard/reservation"
	"github.com/berth-hpc/berth/components/guard/slurm"
	"github.com/berth-hpc/berth/components/guard/slurmconf"
)

type options struct {
	namespace, name, store, scratch string
	workersNamespace                string
	awaitSocket, keys               string
	ranks, placement                string
	accounts, logJSON               bool
}

// Main runs the command and returns its exit status: 0 after a signal, 1 after an error.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	command := newCommand()
	command.SetArgs(args)
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "guard:", err)
		return 1
	}
	return 0
}

func newCommand() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "guard",
		Short: "Try, apply or refuse the configuration that a SlurmConfig asks for",
		Long: `Try, apply or refuse the configuration that a SlurmConfig asks for.

Each new generation is tried on a scratch slurmctld. It is applied by a reconfigure where no job is hurt by that, waits
where jobs would be, and is refused with Slurm's own words where slurmctld does not take it; the last accepted one stays
in force. Accounts, users and QOS are added to and modified in Slurm's database; users and accounts that left are deleted
when they have no jobs. Reservations of the SlurmConfig are made, kept and deleted in slurmctld.`,
		Example:       "  guard --namespace slurm --name slurm",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(command *cobra.Command, _ []string) error { return run(command.Context(), o) },
	}
	flags := command.Flags()
	flags.StringVar(&o.namespace, "namespace", "slurm", "namespace of the SlurmConfig")
	flags.StringVar(&o.name, "name", "slurm", "name of the SlurmConfig")
	flags.StringVar(&o.workersNamespace, "workers-namespace", "", "namespace of the WorkerPools, whose floors slurmctld is told; empty: the configuration's stay")
	flags.StringVar(&o.store, "store", "/var/spool/slurm/conf", "directory of the accepted configurations, on the state volume")
	flags.StringVar(&o.scratch, "scratch", os.TempDir(), "directory for trials")
	flags.StringVar(&o.awaitSocket, "await-socket", "", "socket on which a job's PrologSlurmctld waits for the job's nodes; empty: none")
	flags.StringVar(&o.keys, "keys", "", "directory where Slurm's keys are mounted, to make its daemons read new ones; empty: do not")
	flags.StringVar(&o.ranks, "ranks", "", "file of the ranks that the advisor gives to waiting jobs, to end those that it does not renew; empty: do not")
	flags.StringVar(&o.placement, "placement", "", "file of what placement promises of held jobs, to keep it when nobody renews it; empty: do not")
	flags.BoolVar(&o.accounts, "accounts", true, "keep accounts, users and QOS in Slurm's database")
	flags.BoolVar(&o.logJSON, "log-json", true, "write the log as JSON lines")
	command.AddCommand(newPoke())
	return command
}

func run(ctx context.Context, o options) error {
	handler := slog.Handler(slog.NewTextHandler(os.Stdout, nil))
	if o.logJSON {
		handler = slog.NewJSONHandler(os.Stdout, nil)
	}
	ctrl.SetLogger(logr.FromSlogHandler(handler))
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the Kubernetes API: %w", err)
	}
	// Every call is bounded; watches end by the server and begin again.
	config.Timeout = 0
	api, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make the Kubernetes client: %w", err)
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make the Kubernetes client: %w", err)
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: clientset.EventsV1()})
	broadcaster.StartRecordingToSink(ctx.Done())
	defer broadcaster.Shutdown()

	store := &guard.Store{Dir: o.store}
	programs := &slurm.Programs{Conf: store.Conf()}
	waiting := &await.Server{Pending: programs.PoweringUp, Patience: func() time.Duration { return patience(store.Conf()) }, Log: slog.New(handler)}
	daemon := releasing{programs, waiting}
	g := &guard.Guard{Slurm: daemon, Store: store, Scratch: o.scratch, Keys: o.keys, Log: slog.New(handler)}
	if o.accounts {
		g.Accounts = &accounting.Database{Programs: programs}
	}
	g.Reservations = &reservation.Keeper{Programs: programs, Zone: time.Local}
	watcher := &guard.Watcher{
		Guard: g, Kubernetes: api, Events: broadcaster.NewRecorder(scheme, "berth-guard"),
		Key: client.ObjectKey{Namespace: o.namespace, Name: o.name},
	}
	if o.workersNamespace != "" {
		keeper := &keep.Keeper{Slurm: daemon, Kubernetes: api, Namespace: o.workersNamespace, Log: g.Log}
		go keeper.Run(ctx)
	}
	finder := &lost.Finder{Slurm: programs, Log: g.Log}
	go finder.Run(ctx)
	strays := &lost.Strays{Slurm: daemon, Log: g.Log}
	go strays.Run(ctx)
	if o.ranks != "" {
		keeper := &ranks.Keeper{Slurm: programs, Ledger: o.ranks, Log: g.Log}
		go keeper.Run(ctx)
	}
	if o.placement != "" {
		keeper := &custodian.Keeper{Slurm: programs, Promise: o.placement, Log: g.Log}
		go keeper.Run(ctx)
	}
	g.Log.Info("started", "SlurmConfig", watcher.Key.String(), "store", o.store)
	if o.awaitSocket == "" {
		return watcher.Run(ctx)
	}
	listener, err := listen(o.awaitSocket)
	if err != nil {
		return fmt.Errorf("listen for jobs that wait for their nodes: %w", err)
	}
	served := make(chan error, 1)
	go func() { served <- waiting.Serve(ctx, listener) }()
	return errors.Join(watcher.Run(ctx), <-served)
}

// patience is how long a job may wait for its nodes: a little less than ResumeTimeout (Slurm's default: 60 s).
func patience(conf string) time.Duration {
	const early = 10 * time.Second
	seconds := 60
	if text, err := os.ReadFile(conf); err == nil {
		if config, err := slurmconf.Parse(string(text)); err == nil {
			if n, err := strconv.Atoi(config.Settings["resumetimeout"]); err == nil {
				seconds = n
			}
		}
	}
	return max(0, time.Duration(seconds)*time.Second-early)
}

// listen takes the socket over from a guard that has ended.
func listen(socket string) (net.Listener, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", socket)
}

// releasing lets all waiting prologs go before a reconfigure, which they would hold up.
type releasing struct {
	*slurm.Programs
	waiting *await.Server
}

func (r releasing) Reconfigure(ctx context.Context) error {
	defer r.waiting.Release()()
	return r.Programs.Reconfigure(ctx)
}

// pokeTimeout bounds a poke, DNS included: slurmctld runs one script at a time.
const pokeTimeout = time.Second

func newPoke() *cobra.Command {
	var url string
	command := &cobra.Command{
		Use:   "poke WHAT [HOSTLIST]",
		Short: "Tell the autoscaler that Slurm resumes or suspends nodes",
		Long: `Tell the autoscaler that Slurm resumes or suspends nodes, for Slurm's ResumeProgram, SuspendProgram and
ResumeFailProgram. It is a hint and never fails: node states are the truth, and the autoscaler reads them by itself. Where Slurm names
a resume file (SLURM_RESUME_FILE) the autoscaler is told for which jobs, too.`,
		Example:      "  guard poke resume slurm-worker-cpu-[0-1]",
		Args:         cobra.RangeArgs(1, 2),
		SilenceUsage: true,
		Run: func(command *cobra.Command, args []string) {
			if err := poke(command.Context(), url, strings.Join(args, " ")+"\n"+resumeFile()); err != nil {
				fmt.Fprintf(os.Stderr, "poke: %v; the autoscaler will see it in its next round\n", err)
			}
		},
	}
	command.Flags().StringVar(&url, "url", "http://slurm-autoscaler:8080/poke", "the autoscaler")
	return command
}

// resumeFile is what Slurm says about the jobs whose nodes it powers up; "" where it says nothing, or more than a hint holds.
func resumeFile() string {
	const limit = 1 << 19
	file, err := os.Open(os.Getenv("SLURM_RESUME_FILE"))
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil || len(text) > limit {
		return ""
	}
	return string(text)
}

func poke(ctx context.Context, url, body string) error {
	ctx, cancel := context.WithTimeout(ctx, pokeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "text/plain")
	poker := http.Client{Transport: &http.Transport{DialContext: new(net.Dialer).DialContext, DisableKeepAlives: true}}
	response, err := poker.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("the autoscaler answered %s", response.Status)
	}
	return nil
}
