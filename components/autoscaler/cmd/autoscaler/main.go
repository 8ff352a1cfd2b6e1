// Command autoscaler makes worker pods follow Slurm's node states.
package main

import (
	"os"

	"github.com/berth-hpc/berth/components/autoscaler/command"
)

func main() { os.Exit(command.Main(os.Args[1:])) }
