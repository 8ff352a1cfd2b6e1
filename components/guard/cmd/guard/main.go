// Command guard keeps slurmctld's configuration and Slurm's accounts as a SlurmConfig says.
package main

import (
	"os"

	"github.com/berth-hpc/berth/components/guard/command"
)

func main() { os.Exit(command.Main(os.Args[1:])) }
