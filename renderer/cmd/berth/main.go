// Command berth describes, checks and renders a Slurm site. What it does is in package command.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/berth-hpc/berth/renderer/command"
)

func main() { os.Exit(run()) }

// garbage is how much garbage may lie beside what lives, in percent. A run is short and little of it lives long: with Go's own
// 100 a third of its time goes into collecting. GOGC says otherwise.
const garbage = 400

// grace is what a command has after an interrupt to end by itself.
const grace = 2 * time.Second

func run() int {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// What an interrupt has not ended by then does not listen: an evaluation of CUE's cannot be stopped. A render that is cut off here
	// is the old tree or the new one, as when it is killed.
	context.AfterFunc(ctx, func() {
		stop() // a second interrupt ends the process at once
		time.Sleep(grace)
		fmt.Fprintln(os.Stderr, "berth: interrupted")
		os.Exit(command.ExitError)
	})
	env, err := command.Process()
	if err != nil {
		fmt.Fprintln(os.Stderr, "berth: "+err.Error())
		return command.ExitError
	}
	return command.Run(ctx, env, os.Args[1:])
}
