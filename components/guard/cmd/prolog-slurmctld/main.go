// Command prolog-slurmctld is Slurm's PrologSlurmctld: it ends when the job's nodes are up, and slurmctld starts the job
// then. It always ends with 0: another status would requeue the job.
package main

import (
	"os"

	"github.com/berth-hpc/berth/components/guard/await"
)

func main() {
	socket := "/run/slurm/await.sock"
	if other := os.Getenv("BERTH_AWAIT_SOCKET"); other != "" {
		socket = other
	}
	if hosts := os.Getenv("SLURM_JOB_NODELIST"); hosts != "" {
		await.Wait(socket, hosts)
	}
}
