package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/components/autoscaler/record"
)

func newDecisions() *cobra.Command {
	var from string
	var since time.Duration
	command := &cobra.Command{
		Use:   "decisions",
		Short: "Print what the last rounds of a running autoscaler saw and did, a JSON line each",
		Long: `Print what the last rounds of a running autoscaler saw and did, a JSON line each.

A line says what changed of a pool since the line before it, and what was done. The newest 8 MiB are kept, by the replica that
leads; a restart begins anew. autoscaler replay shows them in words.`,
		Example: `  autoscaler decisions
  kubectl exec --namespace slurm deploy/slurm-autoscaler -- /autoscaler decisions --since 1h >decisions.jsonl`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if since > 0 {
				from += "?since=" + time.Now().Add(-since).UTC().Format(time.RFC3339)
			}
			return decisions(command.Context(), from, command.OutOrStdout())
		},
	}
	command.Flags().StringVar(&from, "from", "http://127.0.0.1:8080/decisions", "where the autoscaler serves them")
	command.Flags().DurationVar(&since, "since", 0, "only rounds not older than this; 0: all that are kept")
	return command
}

func decisions(ctx context.Context, from string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: is it an autoscaler's address?", from, answer.Status)
	}
	_, err = io.Copy(out, answer.Body)
	return err
}

func newReplay() *cobra.Command {
	return &cobra.Command{
		Use:   "replay [FILE]",
		Short: "Show recorded rounds in words, and decide them again",
		Long: `Show recorded rounds in words, and decide them again.

FILE, or the standard input, is what autoscaler decisions printed. Each step is shown with its reason; where this program would
decide otherwise from the very same state, that is shown too, and the command ends with an error.`,
		Example: `  autoscaler replay decisions.jsonl
  kubectl exec --namespace slurm deploy/slurm-autoscaler -- /autoscaler decisions | autoscaler replay`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			log, name := command.InOrStdin(), "standard input"
			if len(args) == 1 {
				name = args[0]
				file, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer func() { _ = file.Close() }()
				log = file
			}
			if err := replay(log, command.OutOrStdout()); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		},
	}
}

func replay(log io.Reader, out io.Writer) error {
	rounds, otherwise := 0, 0
	err := record.Read(log, func(round record.Round, state record.State) error {
		rounds++
		at := round.At.Format("2006-01-02T15:04:05.000Z07:00")
		for _, done := range round.Done {
			node := state.Nodes[done.Node]
			line := fmt.Sprintf("%s %s %s %s: %s (Slurm: %s", at, round.WorkerPool, done.Kind, done.Node, done.Why, node.State)
			if node.Reason != "" {
				line += fmt.Sprintf(", reason %q", node.Reason)
			}
			line += ")"
			if done.Failed != "" {
				line += "; not done: " + done.Failed
			}
			_, _ = fmt.Fprintln(out, strings.ReplaceAll(line, "\n", " "))
		}
		if difference := record.Difference(round, state); difference != "" {
			otherwise++
			_, _ = fmt.Fprintf(out, "%s %s decided otherwise: %s\n", at, round.WorkerPool, difference)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case rounds == 0:
		return errors.New("the log is empty: only the replica that leads records its rounds")
	case otherwise > 0:
		return fmt.Errorf("%d of %d rounds are decided otherwise by this program", otherwise, rounds)
	}
	return nil
}
