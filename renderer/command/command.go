// Package command is the berth command line: one file a command, each constructed with what it needs and holding no logic of
// its own beyond flags, output and exit codes. The engine below it (load, compile, emit, inflate, secrets, status) knows
// nothing of a terminal.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Version is the berth version, set at build time by -ldflags "-X …/renderer/command.Version=…".
var Version = "development"

// version is Version, or what "go install …@v1.2.3" built this from.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && Version == "development" && strings.HasPrefix(info.Main.Version, "v") {
		return info.Main.Version
	}
	return Version
}

// Exit codes of every command.
const (
	ExitOK       = 0 // all is well; nothing differs
	ExitProblems = 1 // the site has problems, the tree differs, something is not ready
	ExitError    = 2 // wrong usage, or the command could not do its work
)

const exitCodesHelp = `Exit codes: 0 all is well, 1 problems found or differences seen, 2 wrong usage or an error.`

// Environment is what a command sees of the process it runs in.
type Environment struct {
	In          io.Reader
	Out, Err    io.Writer
	Directory   string                   // where relative paths start
	Variable    func(name string) string // environment variables
	OutTerminal bool                     // whether Out is a terminal
}

// Process is the environment of this process.
func Process() (Environment, error) {
	directory, err := os.Getwd()
	if err != nil {
		return Environment{}, err
	}
	return Environment{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Directory: directory, Variable: os.Getenv,
		OutTerminal: term.IsTerminal(int(os.Stdout.Fd())),
	}, nil
}

// problems is the error of a command that did its work and found something wrong, which it has already printed.
type problems struct{ summary string }

func (p problems) Error() string { return p.summary }

// Run executes one command line and returns its exit code.
func Run(ctx context.Context, env Environment, args []string) int {
	root := New(env)
	root.SetArgs(args)
	root.SetIn(env.In)
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	err := root.ExecuteContext(ctx)
	var found problems
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &found):
		if found.summary != "" {
			fmt.Fprintln(env.Err, found.summary)
		}
		return ExitProblems
	}
	fmt.Fprintln(env.Err, "berth: "+err.Error())
	return ExitError
}

// New constructs the command tree.
func New(env Environment) *cobra.Command {
	shared := &settings{env: env}
	root := &cobra.Command{
		Use:   "berth",
		Short: "Slurm on Kubernetes, described by one CUE file and kept true by Git",
		Long: `berth turns a site, one value in clusters/*.cue, into what Flux applies to a cluster.

` + exitCodesHelp,
		Example: `  # A new repository for a lab
  berth init mylab

  # Check the sites and render them
  berth vet
  berth render`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.PersistentFlags().StringVarP(&shared.repository, "repository", "C", env.Variable("BERTH_REPOSITORY"),
		"root of the repository that holds clusters/ (default: the nearest one above the current directory; $BERTH_REPOSITORY)")
	root.PersistentFlags().StringVarP(&shared.output, "output", "o", orDefault(env.Variable("BERTH_OUTPUT"), "table"),
		"output format: table, json or yaml ($BERTH_OUTPUT)")
	_ = root.RegisterFlagCompletionFunc("output", func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return outputFormats(c), cobra.ShellCompDirectiveNoFileComp
	})
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error { return shared.checkOutput(c) }
	root.AddCommand(
		newInit(shared), newVet(shared), newCheck(shared), newRender(shared), newDiff(shared), newExplain(shared), newTrace(shared), newInflate(shared), newSecrets(shared), newKeys(shared), newStatus(shared), newUsage(shared), newVersion(shared),
		newSchema(shared), newDocs(shared), newFormat(shared), newImport(shared), newMigrate(shared), newDrain(shared), newUndrain(shared), newBackup(shared), newRestore(shared),
	)
	return root
}

func orDefault(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}
