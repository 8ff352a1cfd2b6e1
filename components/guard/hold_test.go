package guard

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/berth-hpc/berth/components/guard/slurmconf"
)

// What a change needs free of new jobs is what its dangers name, and nothing else.
func TestHoldFor(t *testing.T) {
	const base = `NodeName=c-[0-2] CPUs=2 Gres=gpu:1
NodeName=d-0 CPUs=4
PartitionName=c Nodes=c-[0-2]
PartitionName=d Nodes=d-0,c-2 State=INACTIVE
`
	running := slurmconf.Job{ID: "1", Running: true, Partitions: []string{"c"}, Nodes: []string{"c-0"}}
	naming := slurmconf.Job{ID: "2", Partitions: []string{"c"}, Nodes: []string{"c-1"}}
	for _, test := range []struct {
		name, to string
		jobs     []slurmconf.Job
		want     Hold
	}{
		{"nothing that hurts", base + "MaxJobCount=10\n", nil, Hold{}},
		{"a node's CPUs", "NodeName=c-[0-2] CPUs=2 Gres=gpu:1\nNodeName=d-0 CPUs=8\nPartitionName=c Nodes=c-[0-2]\nPartitionName=d Nodes=d-0,c-2\n",
			[]slurmconf.Job{running}, Hold{Nodes: []string{"d-0"}, Renew: []string{"d-0"}}},
		{"a pool's cards", "NodeName=c-[0-2] CPUs=2 Gres=gpu:2\nNodeName=d-0 CPUs=4\nPartitionName=c Nodes=c-[0-2]\nPartitionName=d Nodes=d-0,c-2\n",
			[]slurmconf.Job{naming}, Hold{Nodes: []string{"c-0", "c-1", "c-2"}, Renew: []string{"c-0", "c-1", "c-2"}}},
		{"a pool shrinks: a node that a waiting job names stays open", "NodeName=c-0 CPUs=2 Gres=gpu:1\nNodeName=d-0 CPUs=4\nPartitionName=c Nodes=c-0\nPartitionName=d Nodes=d-0\n",
			[]slurmconf.Job{running, naming}, Hold{Nodes: []string{"c-2"}}},
		{"a partition loses a node", "NodeName=c-[0-2] CPUs=2 Gres=gpu:1\nNodeName=d-0 CPUs=4\nPartitionName=c Nodes=c-[0-1]\nPartitionName=d Nodes=d-0,c-2\n",
			nil, Hold{Nodes: []string{"c-2"}}},
		{"a partition is removed", "NodeName=c-[0-2] CPUs=2 Gres=gpu:1\nNodeName=d-0 CPUs=4\nPartitionName=c Nodes=c-[0-2]\n",
			nil, Hold{Partitions: map[string]HeldPartition{"d": {"DRAIN", "INACTIVE"}}}},
		{"every job would die", base + "SelectTypeParameters=CR_CPU\n",
			nil, Hold{Partitions: map[string]HeldPartition{"c": {"DOWN", "UP"}, "d": {"DOWN", "INACTIVE"}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			from, err := slurmconf.Parse(base)
			if err != nil {
				t.Fatal(err)
			}
			to, err := slurmconf.Parse(test.to)
			if err != nil {
				t.Fatal(err)
			}
			dangers, err := slurmconf.Dangers(from, to)
			if err != nil {
				t.Fatal(err)
			}
			got := holdFor("h", dangers, test.jobs, from)
			test.want.Hash = "h"
			if test.want.Partitions == nil {
				test.want.Partitions = map[string]HeldPartition{}
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("held are %+v, want %+v", got, test.want)
			}
		})
	}
}

// Configurations and what is held lie on the volume whole or not at all, and the oldest go.
func TestStore(t *testing.T) {
	store := &Store{Dir: filepath.Join(t.TempDir(), "conf")}
	if current, err := store.Current(); current != "" || err != nil {
		t.Fatalf("an empty volume has %q, %v", current, err)
	}
	hashes := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"}
	for _, hash := range hashes {
		if err := store.Write(hash, map[string]string{"slurm.conf": "# " + hash + "\n"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Use("b"); err != nil {
		t.Fatal(err)
	}
	if err := store.Accept("a"); err != nil {
		t.Fatal(err)
	}
	if current, _ := store.Current(); current != "b" {
		t.Errorf("current is %q", current)
	}
	if files, err := store.Files("a"); err != nil || files["slurm.conf"] != "# a\n" {
		t.Errorf("the accepted configuration reads %q, %v", files, err)
	}
	if kept, _ := filepath.Glob(filepath.Join(store.Dir, "?")); len(kept) != keptConfigs+2 {
		t.Errorf("%d configurations stay: %v", len(kept), kept)
	}
	if err := os.Remove(filepath.Join(store.Dir, "b", "slurm.conf")); err != nil {
		t.Fatal(err)
	}
	if current, err := store.Current(); err == nil {
		t.Errorf("half a configuration is taken for %q", current)
	}
	if hold, err := store.Hold(); hold.Hash != "" || err != nil {
		t.Errorf("nothing was held: %+v %v", hold, err)
	}
	held := Hold{Hash: "b", Nodes: []string{"n"}, Partitions: map[string]HeldPartition{"p": {"DOWN", "UP"}}}
	for _, hold := range []Hold{held, {}} {
		if err := store.SetHold(hold); err != nil {
			t.Fatal(err)
		}
		if got, err := store.Hold(); err != nil || !reflect.DeepEqual(got, hold) {
			t.Errorf("held is %+v %v, want %+v", got, err, hold)
		}
	}
}
