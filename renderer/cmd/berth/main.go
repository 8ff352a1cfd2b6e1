// Command berth describes, checks and renders a Slurm site. What it does is in package command.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/berth-hpc/berth/renderer/command"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	env, err := command.Process()
	if err != nil {
		fmt.Fprintln(os.Stderr, "berth: "+err.Error())
		return command.ExitError
	}
	return command.Run(ctx, env, os.Args[1:])
}
