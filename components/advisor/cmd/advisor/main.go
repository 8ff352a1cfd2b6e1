// Command advisor advises Slurm; see `advisor --help`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/berth-hpc/berth/components/advisor/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command.Run(ctx, os.Stdout, os.Stderr, os.Args[1:])
	stop()
	os.Exit(code)
}
