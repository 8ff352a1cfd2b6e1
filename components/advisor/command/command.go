// Package command is the advisor's command line: one file a command. Commands hold flags and output; what they do lies in the
// packages they call.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Version is set at build time by -ldflags "-X …/components/advisor/command.Version=…".
var Version = "development"

// Exit codes of every command.
const (
	ExitOK       = 0 // all is well
	ExitProblems = 1 // the command worked and found something short
	ExitError    = 2 // wrong usage, or the command could not do its work
)

// problems is the error of a command that did its work and found something wrong, which it has already printed.
type problems struct{ summary string }

func (p problems) Error() string { return p.summary }

// New makes the command tree.
func New() *cobra.Command {
	root := &cobra.Command{
		Use:           "advisor",
		Short:         "Advise Slurm: simulate, train, evaluate and serve scheduling policies",
		Version:       Version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newSim(), newServe(), newPlace(), newLog(), newTrain(), newFinetune(), newSweep(), newCheckpoint())
	refuseStrangers(root)
	return root
}

// refuseStrangers makes commands that only hold others refuse words that none of them is called, where cobra shows help and succeeds.
func refuseStrangers(c *cobra.Command) {
	for _, sub := range c.Commands() {
		refuseStrangers(sub)
	}
	if !c.HasParent() || !c.HasSubCommands() || c.Runnable() {
		return
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		return fmt.Errorf("unknown command %q for %q; %s --help lists those there are", args[0], c.CommandPath(), c.CommandPath())
	}
}

// Run executes one command line and gives its exit code.
func Run(ctx context.Context, out, errs io.Writer, args []string) int {
	root := New()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	var p problems
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &p):
		fmt.Fprintln(errs, p.summary)
		return ExitProblems
	}
	fmt.Fprintln(errs, "advisor:", err)
	return ExitError
}
