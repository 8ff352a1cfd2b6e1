// Package command is the command line of mps: the supervisor of a worker's card, and Slurm's hooks that ask it.
package command

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-hpc/berth/components/mps/card"
	"github.com/berth-hpc/berth/components/mps/slurm"
	"github.com/berth-hpc/berth/components/mps/supervisor"
)

type options struct {
	root, log, program, users, memory, reserve, devices, node, conf string
	recover, poll, ask                                              time.Duration
}

// Main runs the command and returns its exit status: 0 after a signal, 1 after an error.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	command := newCommand()
	command.SetArgs(args)
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "mps:", err)
		return 1
	}
	return 0
}

func newCommand() *cobra.Command {
	root := "/run/berth/mps"
	command := &cobra.Command{Use: "mps", Short: "Share this worker's card among jobs by CUDA MPS", SilenceUsage: true, SilenceErrors: true}
	command.PersistentFlags().StringVar(&root, "root", root, "where the supervisor listens and keeps a directory a card")
	command.AddCommand(supervise(&root), cards())
	for _, hook := range []struct {
		name, short string
		run         func(hooks) error
	}{
		{"prolog", "Slurm's Prolog: make the card ready for the job", hooks.prolog},
		{"epilog", "Slurm's Epilog: give the job's share of the card back", hooks.epilog},
		{"task-prolog", "Slurm's TaskProlog: print what a task with a share of the card needs in its environment", hooks.taskProlog},
	} {
		command.AddCommand(&cobra.Command{Use: hook.name, Short: hook.short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return hook.run(hooks{root: root, getenv: os.Getenv, out: cmd.OutOrStdout()})
		}})
	}
	return command
}

func cards() *cobra.Command {
	var devices, links string
	var expect int
	command := &cobra.Command{Use: "cards", Short: "Name this pod's cards as gres.conf does, and check that they are as many as the site says", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		found, note, err := findCards(devices)
		if err == nil {
			err = card.Links(found, expect, devices, links)
		}
		if err != nil && note != "" {
			err = fmt.Errorf("%w (found by device files: %s)", err, note)
		}
		return err
	}}
	flags := command.Flags()
	flags.StringVar(&devices, "devices", "/dev", "directory of the cards' device files")
	flags.StringVar(&links, "links", "/run/berth/cards", "directory of their names in gres.conf")
	flags.IntVar(&expect, "expect", 1, "how many cards the site gives this worker")
	return command
}

func findCards(devices string) ([]card.Card, string, error) {
	return card.Find(card.NVML(), card.Devices{Dir: devices, Visible: os.Getenv("NVIDIA_VISIBLE_DEVICES")})
}

func supervise(root *string) *cobra.Command {
	var o options
	command := &cobra.Command{Use: "supervise", Short: "Own the card's MPS daemon while jobs have shares", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		o.root = *root
		s, err := o.supervisor(slog.New(slog.NewJSONHandler(os.Stdout, nil)))
		if err != nil {
			return err
		}
		go s.Watch(cmd.Context())
		return s.Serve(cmd.Context())
	}}
	flags := command.Flags()
	flags.StringVar(&o.users, "users", "one", "one: Slurm keeps a second user's jobs away; trusted: users share the card's server")
	flags.StringVar(&o.memory, "card-memory", "", "the card's memory, for example 12Gi, where NVML does not tell it")
	flags.StringVar(&o.reserve, "reserve", "512Mi", "of the card's memory what the MPS server and the driver need")
	flags.StringVar(&o.log, "log", "/var/spool/slurmd/mps", "directory of the daemon's own logs")
	flags.StringVar(&o.program, "program", "nvidia-cuda-mps-control", "NVIDIA's MPS control program")
	flags.StringVar(&o.devices, "devices", "/dev", "directory of the card's device file")
	flags.StringVar(&o.node, "node", "", "this worker's name in Slurm (the host's)")
	flags.StringVar(&o.conf, "slurm-conf", "/run/slurm/conf/slurm.conf", "slurm.conf, for KillWait")
	flags.DurationVar(&o.recover, "recover", time.Minute, "how long the server may take no clients before the node is drained")
	flags.DurationVar(&o.poll, "poll", time.Second, "time between two looks at the server")
	flags.DurationVar(&o.ask, "ask", 10*time.Second, "time between two questions to Slurm about the jobs with shares")
	return command
}

func (o options) supervisor(logger *slog.Logger) (*supervisor.Supervisor, error) {
	if o.users != "one" && o.users != "trusted" {
		return nil, fmt.Errorf("--users: %q is neither one nor trusted", o.users)
	}
	if o.node == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("--node: %w", err)
		}
		o.node = name
	}
	memory, err := size("--card-memory", o.memory)
	if err != nil {
		return nil, err
	}
	reserve, err := size("--reserve", o.reserve)
	if err != nil {
		return nil, err
	}
	return supervisor.New(supervisor.Config{
		Root: o.root, Log: o.log, Program: o.program, Shared: o.users == "trusted", Memory: memory, Reserve: reserve,
		Cards: func() ([]card.Card, string, error) { return findCards(o.devices) },
		Slurm: slurm.Commands{Node: o.node, Conf: o.conf, Timeout: 10 * time.Second},
		JobOf: func(pid int) (string, bool) { return slurm.JobOf("/proc", pid) },
		Start: 15 * time.Second, Stop: 10 * time.Second, Command: 5 * time.Second,
		Recover: o.recover, Poll: o.poll, Ask: o.ask, Logger: logger,
	})
}

func size(flag, text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Value() < 0 {
		return 0, fmt.Errorf("%s: %q is no amount of memory; write for example 12Gi", flag, text)
	}
	return uint64(q.Value()), nil
}
