package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"

	"github.com/berth-hpc/berth/components/advisor/placement"
	"github.com/berth-hpc/berth/components/advisor/placement/custody"
	"github.com/berth-hpc/berth/components/advisor/rerank"
	"github.com/berth-hpc/berth/components/advisor/rerank/lease"
	"github.com/berth-hpc/berth/components/advisor/service"
	"github.com/berth-hpc/berth/components/advisor/snapshot"
	"github.com/berth-hpc/berth/components/advisor/transition"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// serving are the flags of `advisor serve`.
type serving struct {
	socket, listen, metrics      string
	settings, checkpoints, state string
	tokenFile, jwtKey            string
	slurmrestd, slurmUser        string
	serviceAddress, serviceFile  string
	record                       string
	every                        time.Duration
	connections                  int
	log                          *slog.Logger
}

func newServe() *cobra.Command {
	var o serving
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve a policy to job_submit.lua and the placement controller",
		Long: `serve answers POST /decide, /act and /snapshot, and GET /healthz, /readyz, /metrics and /openapi.json, on a unix socket
(for whoever may open it) and on TCP (for whoever has the token). With --slurmrestd it keeps its picture of the cluster up to date by itself.

The settings file is read again when it changes: {"mode": "shadow", "topology": "rtx4070:1x1", "maxBoost": 1000, "snapshotTtlSeconds": 30}
and more. The advisor may make live shadow by itself, and never the other way round.`,
		Example: "  advisor serve --socket /run/advisor/advisor.sock --settings settings.json --slurmrestd http://slurm-rest:6820 --jwt-key jwt_hs256.key",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.log = slog.New(slog.NewJSONHandler(c.ErrOrStderr(), nil))
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&o.socket, "socket", "", "unix socket to serve on")
	f.StringVar(&o.listen, "listen", "", "address to serve on by TCP, :8080 for example; needs --token-file or --jwt-key")
	f.StringVar(&o.metrics, "metrics", "", "address to serve /metrics alone on by TCP, to whoever asks: :8081 for example")
	f.StringVar(&o.settings, "settings", "", "settings file (JSON)")
	f.StringVar(&o.checkpoints, "checkpoints", "", "directory of checkpoints, each named sha256-<its digest>")
	f.StringVar(&o.state, "state", "", "directory in which a demotion, the ranks of waiting jobs and what placement promises are kept; made if it is missing. Without it nothing is re-ranked or placed")
	f.StringVar(&o.tokenFile, "token-file", "", "file with the bearer token; left out: derived from --jwt-key")
	f.StringVar(&o.jwtKey, "jwt-key", "", "Slurm's JWT key (HS256), to ask slurmrestd and to derive the token from")
	f.StringVar(&o.slurmrestd, "slurmrestd", "", "slurmrestd to take snapshots from: http://host:port or unix:/path; left out: they come by POST /snapshot")
	f.StringVar(&o.slurmUser, "slurm-user", "slurm", "user that slurmctld takes the advisor for")
	f.DurationVar(&o.every, "snapshot-every", 10*time.Second, "time between two snapshots")
	f.StringVar(&o.serviceAddress, "service", "", "host:port of a second advisor, for --service-file")
	f.StringVar(&o.serviceFile, "service-file", "", "file to keep \"ADDRESS PORT TOKEN\" of --service in, for job_submit.lua, which looks no name up")
	f.StringVar(&o.record, "log", "", "directory of the record of what happens to jobs; needs --slurmrestd")
	f.IntVar(&o.connections, "connections", 256, "connections that are open at once on each listener; more wait")
	c.AddCommand(newHealth(), newServeBench(), newServeSoak())
	return c
}

func (o *serving) run(ctx context.Context) error {
	if o.settings == "" || (o.socket == "" && o.listen == "") {
		return errors.New("--settings, and --socket or --listen, are needed")
	}
	token, err := bearerToken(o.tokenFile, o.jwtKey)
	if err != nil {
		return err
	}
	if o.listen != "" && token == "" {
		return errors.New("--listen needs --token-file or --jwt-key: nobody is let in without a token")
	}
	if o.state != "" {
		if err := os.MkdirAll(o.state, 0o700); err != nil {
			return fmt.Errorf("make the state directory: %w", err)
		}
	}
	s := service.New(o.state, o.log)
	digest, err := o.configure(s, "")
	if err != nil {
		// A site that can't be read is served in mode off, and says so: a pod that restarts for ever helps nobody.
		o.log.Error("the settings are refused", "file", o.settings, "why", err.Error())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var background sync.WaitGroup
	background.Go(func() { o.follow(ctx, s, digest) })
	if o.slurmrestd != "" {
		client, err := slurmrest.New(o.slurmrestd, &slurmrest.TokenSource{KeyFile: o.jwtKey, User: o.slurmUser})
		if err != nil {
			return err
		}
		agent := &snapshot.Agent{Slurm: client, Target: s, Log: o.log, Every: o.every}
		var observe []func(*snapshot.Delta)
		if o.record != "" {
			observer, err := o.observer(s)
			if err != nil {
				return err
			}
			defer observer.Log.Close()
			observe = append(observe, observer.Observe)
		}
		if o.state != "" {
			ranker := rerank.New(client, s, filepath.Join(o.state, lease.File), o.log)
			observe = append(observe, ranker.Observe)
			background.Go(func() { ranker.Run(ctx) })
			placer := placement.New(client, placement.InProcess{Service: s}, s.Placing, filepath.Join(o.state, custody.File), o.log)
			placer.Changed, placer.Count = agent.Refresh, func(of placement.Outcome) { s.CountPlacement(string(of)) }
			observe = append(observe, placer.Observe)
			background.Go(func() { placer.Run(ctx) })
		}
		agent.Changed = func(d *snapshot.Delta) {
			for _, observe := range observe {
				observe(d)
			}
		}
		background.Go(func() { agent.Run(ctx) })
	}
	if o.serviceAddress != "" && o.serviceFile != "" {
		background.Go(func() { o.announce(ctx, token) })
	}
	err = o.serve(ctx, s, token)
	cancel()
	background.Wait()
	return err
}

// Size and number of the record's files: 512 MiB, hundreds of thousands of jobs. They share slurmctld's state volume, 2 GiB unless
// the site says otherwise, and must leave it room.
const (
	recordSize  = 16 << 20
	recordFiles = 32
)

// observer writes down what happens to jobs, beside what this service says of them.
func (o *serving) observer(s *service.Service) (*transition.Observer, error) {
	log, err := transition.Open(o.record, recordSize, recordFiles)
	if err != nil {
		return nil, err
	}
	observer := &transition.Observer{Log: log, Errors: o.log, Advise: func(j *snapshot.Job) transition.Advice {
		a := s.Consider(j)
		return transition.Advice{
			Boost: a.Boost, Advice: a.Advice, Value: a.Value, Mode: string(a.Mode), Checkpoint: a.Checkpoint, Abstain: string(a.Abstain),
		}
	}}
	return observer, observer.Restore()
}

// bearerToken is the token in a file, or the one derived from the JWT key; "" where there is neither.
func bearerToken(tokenFile, jwtKey string) (string, error) {
	switch {
	case tokenFile != "":
		data, err := os.ReadFile(tokenFile)
		if err != nil {
			return "", fmt.Errorf("read the token: %w", err)
		}
		token := strings.TrimSpace(string(data))
		if len(token) < 16 {
			return "", fmt.Errorf("the token in %s has fewer than 16 characters", tokenFile)
		}
		return token, nil
	case jwtKey != "":
		key, err := os.ReadFile(jwtKey)
		if err != nil {
			return "", fmt.Errorf("read the JWT key: %w", err)
		}
		return service.Token(key), nil
	}
	return "", nil
}

// maxCheckpoint bounds a checkpoint file.
const maxCheckpoint = 256 << 20

// configure gives the service the settings file if its content is not that of last.
func (o *serving) configure(s *service.Service, last string) (content string, err error) {
	data, err := os.ReadFile(o.settings)
	if err != nil {
		return last, fmt.Errorf("read the settings: %w", err)
	}
	if string(data) == last {
		return last, nil
	}
	err = s.Configure(data, func(digest string) ([]byte, error) {
		if o.checkpoints == "" {
			return nil, errors.New("no directory of checkpoints is given (--checkpoints)")
		}
		file, err := os.Open(filepath.Join(o.checkpoints, strings.Replace(digest, ":", "-", 1)))
		if err != nil {
			return nil, err
		}
		defer file.Close()
		data, err := io.ReadAll(io.LimitReader(file, maxCheckpoint+1))
		if err == nil && len(data) > maxCheckpoint {
			err = fmt.Errorf("the checkpoint is longer than %d bytes", maxCheckpoint)
		}
		return data, err
	})
	return string(data), err
}

// follow reads the settings again and again: a ConfigMap changes under a process without a signal. Settings whose checkpoint
// was refused are tried again, because the file may be on its way.
func (o *serving) follow(ctx context.Context, s *service.Service, last string) {
	told := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Second):
		}
		if s.Health().Refused != "" {
			last = ""
		}
		var err error
		last, err = o.configure(s, last)
		switch {
		case err == nil:
			told = ""
		case err.Error() != told:
			o.log.Error("the settings are refused", "file", o.settings, "why", err.Error())
			told = err.Error()
		}
	}
}

// announce keeps the second advisor's address in a file, because job_submit.lua must not wait for DNS. While the name does not
// resolve, the last address stays.
func (o *serving) announce(ctx context.Context, token string) {
	host, port, err := net.SplitHostPort(o.serviceAddress)
	if err != nil {
		o.log.Error("--service is not host:port", "why", err.Error())
		return
	}
	last := ""
	for {
		if addresses, err := net.DefaultResolver.LookupHost(ctx, host); err == nil && len(addresses) > 0 {
			line := fmt.Sprintf("%s %s %s\n", addresses[0], port, token)
			if line != last {
				if err := renameio.WriteFile(o.serviceFile, []byte(line), 0o600); err != nil {
					o.log.Error("the service's address can't be written", "why", err.Error())
				} else {
					last = line
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Second):
		}
	}
}

// serve listens until the context ends.
func (o *serving) serve(ctx context.Context, s *service.Service, token string) error {
	var servers []*http.Server
	failed := make(chan error, 3)
	start := func(l net.Listener, h http.Handler) {
		server := service.Server(h)
		servers = append(servers, server)
		go func() { failed <- server.Serve(netutil.LimitListener(l, o.connections)) }()
	}
	if o.socket != "" {
		l, err := listenUnix(o.socket)
		if err != nil {
			return err
		}
		start(l, s.Handler(""))
		defer os.Remove(o.socket)
	}
	if o.listen != "" {
		l, err := net.Listen("tcp", o.listen)
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		start(l, s.Handler(token))
	}
	if o.metrics != "" {
		l, err := net.Listen("tcp", o.metrics)
		if err != nil {
			return fmt.Errorf("listen for scrapes: %w", err)
		}
		start(l, s.Metrics())
	}
	o.log.Info("serving", "socket", o.socket, "listen", o.listen, "metrics", o.metrics)
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	patience, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	for _, server := range servers {
		_ = server.Shutdown(patience)
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// listenUnix takes the place of whatever socket a process before left there, in one step: no client finds nothing.
func listenUnix(path string) (net.Listener, error) {
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("make the socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: next, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make the socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(next, 0o660); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("make the socket: %w", err)
	}
	return l, nil
}

func newHealth() *cobra.Command {
	var socket string
	c := &cobra.Command{
		Use:     "health",
		Short:   "Ask an advisor on its unix socket how it is, for a probe",
		Example: "  advisor serve health --socket /run/advisor/advisor.sock",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			client := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, "unix", socket)
				},
			}}
			response, err := client.Get("http://advisor/healthz")
			if err != nil {
				return err
			}
			defer response.Body.Close()
			_, err = io.Copy(c.OutOrStdout(), io.LimitReader(response.Body, 64<<10))
			if response.StatusCode != http.StatusOK {
				return fmt.Errorf("the advisor answers %s", response.Status)
			}
			return err
		},
	}
	c.Flags().StringVar(&socket, "socket", "/run/advisor/advisor.sock", "the advisor's socket")
	return c
}
