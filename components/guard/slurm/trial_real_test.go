package slurm_test

import (
	"testing"

	"github.com/berth-hpc/berth/components/guard/slurm"
	"github.com/berth-hpc/berth/components/guard/slurmtest"
)

// A slurm.conf that a real slurmctld with accounting takes is accepted by a trial without, each time: what reads associations that the
// trial does not have would end it at times.
func TestRealTrialWithoutAssociations(t *testing.T) {
	machine := slurmtest.Start(t)
	programs := &slurm.Programs{Prefix: machine.Prefix()}
	conf := "ClusterName=lab\nSlurmctldHost=ctl\nSlurmUser=root\nAuthType=auth/slurm\nCredType=cred/slurm\n" +
		"AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key=" + machine.Key("jwt_hs256.key") + "\n" +
		"PriorityType=priority/multifactor\nPriorityFlags=SMALL_RELATIVE_TO_TIME,NO_FAIR_TREE\nPriorityWeightFairshare=10000\n" +
		"NodeName=n[1-2] CPUs=2 State=CLOUD\nPartitionName=all Nodes=ALL Default=YES\n"
	for range 20 {
		verdict, err := programs.Try(t.Context(), machine.Dir, map[string]string{"slurm.conf": conf})
		if err != nil || !verdict.Accepted {
			t.Fatalf("%+v (%v)", verdict, err)
		}
	}
}
