// Command mps shares a worker's card among jobs by CUDA MPS.
package main

import (
	"os"

	"github.com/berth-hpc/berth/components/mps/command"
)

func main() { os.Exit(command.Main(os.Args[1:])) }
