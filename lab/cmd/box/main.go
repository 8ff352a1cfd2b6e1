// Command box runs the lab in a box: real Kubernetes, Flux, git and Slurm on
// this machine.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/lab/box"
	"github.com/berth-hpc/berth/lab/build"
	"github.com/berth-hpc/berth/lab/egress"
	"github.com/berth-hpc/berth/lab/gitserver"
	"github.com/berth-hpc/berth/lab/supervisor"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := hidden(ctx, os.Args[1:]); !errors.Is(err, errNotHidden) {
		exit(err)
	}
	exit(command().ExecuteContext(ctx))
}

func exit(err error) {
	var status *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &status) && status.Exited() && errors.Is(err, errPassed):
		os.Exit(status.ExitCode())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// errPassed marks the failure of a command that was run for the user and has
// said itself what was wrong.
var errPassed = errors.New("command failed")

var errNotHidden = errors.New("not a hidden command")

// hidden runs what the box itself runs this program for.
func hidden(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errNotHidden
	}
	switch {
	case args[0] == box.InitCommand && len(args) == 2:
		text, err := os.ReadFile(args[1])
		if err != nil {
			return err
		}
		var c supervisor.Config
		if err := json.Unmarshal(text, &c); err != nil {
			return fmt.Errorf("%s: %w", args[1], err)
		}
		return supervisor.Run(c)
	case args[0] == box.GitServerCommand && len(args) == 3:
		return serveGit(ctx, args[1], args[2])
	case args[0] == box.AnswersCommand && len(args) == 2:
		client := &http.Client{Timeout: 2 * time.Second}
		resp, err := client.Get(args[1])
		if err == nil {
			resp.Body.Close()
		}
		return err
	case args[0] == egress.ProofCommand && len(args) == 2:
		return egress.ProveHere(ctx, args[1])
	}
	return errNotHidden
}

func serveGit(ctx context.Context, root, address string) error {
	handler, err := gitserver.Handler(root)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func command() *cobra.Command {
	var config box.Config
	open := func(cmd *cobra.Command) (*box.Box, error) {
		config.Out = cmd.OutOrStdout()
		return box.Open(config)
	}
	root := &cobra.Command{
		Use:           "box",
		Short:         "The lab in a box: real Kubernetes, Flux and Slurm on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&config.Dir, "dir", "", "the box's directory ($BERTH_LAB_DIR, else /var/lib/berth-lab)")
	flags.StringVar(&config.Source, "source", "", "the checkout of Berth (default: the one around the working directory)")
	flags.StringVar(&config.Site, "site", "", "the site that the box runs (default lab-box)")
	root.AddCommand(upCommand(open), downCommand(open), statusCommand(open), envCommand(open),
		kubectlCommand(open), enterCommand(open), imagesCommand(open), egressCommand(open), pushCommand(open), waitCommand(open))
	return root
}

type opener func(*cobra.Command) (*box.Box, error)

func upCommand(open opener) *cobra.Command {
	until := string(box.StageJobs)
	cmd := &cobra.Command{
		Use:     "up",
		Short:   "Build and start everything that is not up yet",
		Example: "  box up\n  box up --until=flux    # Kubernetes, git server and Flux only",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := open(cmd)
			if err != nil {
				return err
			}
			return b.Up(cmd.Context(), box.Stage(until))
		},
	}
	cmd.Flags().StringVar(&until, "until", until, fmt.Sprintf("stop after this stage: %v", box.Stages))
	return cmd
}

func downCommand(open opener) *cobra.Command {
	var purge bool
	cmd := &cobra.Command{
		Use:     "down",
		Short:   "End the box and check that nothing of it is left",
		Example: "  box down\n  box down --purge       # the repository, the clone and the volumes too",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := open(cmd)
			if err != nil {
				return err
			}
			return b.Down(cmd.Context(), purge)
		},
	}
	cmd.Flags().BoolVar(&purge, "purge", false, "remove the site's repository, clone, key, volumes and imported images too")
	return cmd
}

func statusCommand(open opener) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the box's daemons, the site's layers and the pods",
		Example: "  box status\n  box status --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := open(cmd)
			if err != nil {
				return err
			}
			s, err := b.Status(cmd.Context())
			if err != nil {
				return err
			}
			switch format {
			case "json":
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(s)
			case "text":
				fmt.Fprint(cmd.OutOrStdout(), s)
				return nil
			}
			return fmt.Errorf("--output %s: want text or json", format)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text or json")
	return cmd
}

func envCommand(open opener) *cobra.Command {
	return &cobra.Command{
		Use:     "env",
		Short:   "Print the exports that a shell needs to look around",
		Example: `  eval "$(box env)"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := open(cmd)
			if err != nil {
				return err
			}
			for _, v := range b.Env() {
				name, value, _ := strings.Cut(v, "=")
				fmt.Fprintf(cmd.OutOrStdout(), "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
			}
			return nil
		},
	}
}

func kubectlCommand(open opener) *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl [arguments]",
		Short:              "Run kubectl as the box's administrator",
		Example:            "  box kubectl get pods -A",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := open(cmd)
			if err != nil {
				return err
			}
			c := exec.CommandContext(cmd.Context(), b.KubectlPath(), args...)
			c.Env = append(os.Environ(), "KUBECONFIG="+b.Kubeconfig())
			return pass(c)
		},
	}
}

func enterCommand(open opener) *cobra.Command {
	return &cobra.Command{
		Use:                "enter [command]",
		Short:              "Run a command (a shell by default) on the box's node, inside its namespaces",
		Example:            "  box enter\n  box enter curl -s http://10.96.0.1:443",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := open(cmd)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				args = []string{"bash"}
			}
			c, err := b.EnterCommand(cmd.Context(), args...)
			if err != nil {
				return err
			}
			return pass(c)
		},
	}
}

// pass runs c with this process's terminal.
func pass(c *exec.Cmd) error {
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		return errors.Join(errPassed, err)
	}
	return nil
}

func imagesCommand(open opener) *cobra.Command {
	var slurm string
	cmd := &cobra.Command{
		Use:     "images [name...]",
		Short:   "Build the platform's images that changed, and import them if the box is up",
		Example: "  box images\n  box images slurm-worker\n  box images --slurm 26.05",
		RunE: func(cmd *cobra.Command, names []string) error {
			b, err := open(cmd)
			if err != nil {
				return err
			}
			release, err := build.ReleaseOf(slurm)
			if err != nil {
				return err
			}
			imported, err := b.Images(cmd.Context(), release, names...)
			if err != nil {
				return err
			}
			for _, name := range imported {
				fmt.Fprintln(cmd.OutOrStdout(), "imported", name)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&slurm, "slurm", build.Releases[0].Slurm, "release of Slurm in the images: 24.11 or 26.05")
	return cmd
}

func egressCommand(open opener) *cobra.Command {
	var prove bool
	cmd := &cobra.Command{
		Use:     "egress",
		Short:   "Print how many packets went to an address outside the box",
		Example: "  box egress\n  box egress --prove     # first show, in a namespace of its own, that the counter counts",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := open(cmd)
			if err != nil {
				return err
			}
			if prove {
				if err := b.ProveEgress(cmd.Context()); err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), "the counter counts")
			}
			c, err := b.Egress(cmd.Context())
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d packets, %d bytes\n", c.Packets, c.Bytes)
			return nil
		},
	}
	cmd.Flags().BoolVar(&prove, "prove", false, "show first that the counter counts")
	return cmd
}

func pushCommand(open opener) *cobra.Command {
	var message string
	cmd := &cobra.Command{
		Use:   "push",
		Short: "Commit what changed in the clone, push it, and ask Flux to look at once",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := open(cmd)
			if err != nil {
				return err
			}
			commit, err := b.Push(cmd.Context(), message)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), commit)
			return nil
		},
	}
	cmd.Flags().StringVarP(&message, "message", "m", "Change the site", "the commit's message")
	return cmd
}

func waitCommand(open opener) *cobra.Command {
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "wait [commit]",
		Short: "Wait until every layer is Ready, at the commit if one is named",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := open(cmd)
			if err != nil {
				return err
			}
			return b.WaitReady(cmd.Context(), strings.Join(args, ""), within)
		},
	}
	cmd.Flags().DurationVar(&within, "timeout", 5*time.Minute, "how long to wait")
	return cmd
}
