package openb

import (
	"fmt"
	"strings"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
	"github.com/berth-hpc/berth/components/advisor/sim/trace"
)

// Bounds of what a line may say: thousandths of CPUs, MiB, and cards of one node.
const (
	mostAmount = 1 << 50
	mostCards  = 1 << 10
)

// ReadNodes reads the node list: sn, cpu_milli, memory_mib, gpu, model.
func ReadNodes(path string) ([]*cluster.Node, error) {
	var nodes []*cluster.Node
	cards := int64(0)
	err := trace.Rows(path, []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}, func(r trace.Row) error {
		v, err := whole(r, []string{"cpu_milli", "memory_mib", "gpu"}, []int64{mostAmount, mostAmount, mostCards})
		if err != nil {
			return err
		}
		cards += v[2]
		nodes = append(nodes, cluster.NewNode(r.Text("sn"), r.Text("model"), v[0], v[1], int(v[2]), 0))
		return nil
	})
	if err == nil && cards == 0 {
		err = fmt.Errorf("%s: the list has no node with a card; name the node list of a cluster that has", path)
	}
	return nodes, err
}

// ReadPods reads a pod list.
func ReadPods(path string) ([]Pod, error) {
	var pods []Pod
	cards := int64(0)
	err := trace.Rows(path, []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}, func(r trace.Row) error {
		v, err := whole(r, []string{"cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}, []int64{mostAmount, mostAmount, mostCards, cluster.WholeCard})
		if err != nil {
			return err
		}
		p := Pod{Name: r.Text("name"), Demand: cluster.Demand{CPUMilli: v[0], MemMiB: v[1], Cards: int32(v[2]), Milli: int32(v[3])}}
		if p.Demand.Cards == 0 {
			p.Demand.Milli = 0
		}
		if t := r.Text("gpu_spec"); t != "" {
			p.Demand.Types = strings.Split(t, "|")
		}
		cards += v[2] * v[3]
		pods = append(pods, p)
		return nil
	})
	if err == nil && cards == 0 {
		err = fmt.Errorf("%s: the list has no pod that asks for a card; name a pod list that has", path)
	}
	return pods, err
}

// whole reads several whole numbers, none above its bound.
func whole(r trace.Row, names []string, most []int64) ([]int64, error) {
	v := make([]int64, len(names))
	for i, n := range names {
		var err error
		if v[i], err = r.Whole(n, 0, most[i]); err != nil {
			return nil, err
		}
	}
	return v, nil
}
