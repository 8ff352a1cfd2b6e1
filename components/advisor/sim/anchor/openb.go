package anchor

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/berth-hpc/berth/components/advisor/sim/compat/openb"
)

// OpenbPolicies are the placement policies of the published table.
var OpenbPolicies = []string{"random", "dot-product", "gpu-clustering", "gpu-packing", "best-fit", "fgd"}

// openbPublished holds the means of ten seeds (42 to 51) at 100 % arrived demand.
var openbPublished = map[string]map[string]float64{
	"default":     {"random": 86.30, "dot-product": 90.62, "gpu-clustering": 91.65, "gpu-packing": 91.78, "best-fit": 92.86, "fgd": 95.23},
	"gpushare100": {"random": 78.90, "dot-product": 81.98, "gpu-clustering": 82.22, "gpu-packing": 82.13, "best-fit": 84.62, "fgd": 86.64},
}

// openbSeeds are the first three of the published ten.
var openbSeeds = []int64{42, 43, 44}

// openbTolerance is the difference in percentage points that counts as equal.
const openbTolerance = 0.5

// OpenbMean is the mean allocation ratio over seeds at a percentage of arrived demand.
func OpenbMean(nodeList, podList, policy string, seeds []int64, at float64) (float64, error) {
	pods, err := openb.ReadPods(podList)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, s := range seeds {
		nodes, err := openb.ReadNodes(nodeList)
		if err != nil {
			return 0, err
		}
		r, err := openb.Simulate(nodes, pods, policy, s)
		if err != nil {
			return 0, err
		}
		sum += r.AllocationAt(at)
	}
	return sum / float64(len(seeds)), nil
}

// Openb checks Anchor C and the recorded sequence of FGD at seed 42.
func Openb(shared string, emit func(Cell)) error {
	dir := filepath.Join(shared, "traces", "openb")
	nodeList := filepath.Join(dir, "openb_node_list_gpu_node.csv")
	for _, tr := range []string{"default", "gpushare100"} {
		for _, p := range OpenbPolicies {
			m, err := OpenbMean(nodeList, filepath.Join(dir, "openb_pod_list_"+tr+".csv"), p, openbSeeds, 100)
			if err != nil {
				return err
			}
			pub := openbPublished[tr][p]
			emit(Cell{"openb", tr + "/" + p + "/allocation", pub, m, 2, math.Abs(pub-m) <= openbTolerance})
		}
	}
	return openbSequence(shared, nodeList, filepath.Join(dir, "openb_pod_list_default.csv"), emit)
}

// openbSequence compares every arrival of FGD at seed 42 with the recorded run: the pod, whether it was placed, thousandths in
// use and asked for.
func openbSequence(shared, nodeList, podList string, emit func(Cell)) error {
	f, err := os.Open(filepath.Join(shared, "golden", "fgd_default_seed42_sequence.csv"))
	if err != nil {
		return err
	}
	defer f.Close()
	recs, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return err
	}
	nodes, err := openb.ReadNodes(nodeList)
	if err != nil {
		return err
	}
	pods, err := openb.ReadPods(podList)
	if err != nil {
		return err
	}
	r, err := openb.Simulate(nodes, pods, "fgd", 42)
	if err != nil {
		return err
	}
	order, equal := 0, 0
	for i, rec := range recs[1:] {
		if i >= len(r.Arrivals) {
			break
		}
		a := &r.Arrivals[i]
		used, err1 := strconv.ParseInt(rec[5], 10, 64)
		arrived, err2 := strconv.ParseInt(rec[6], 10, 64)
		if err1 != nil || err2 != nil {
			return fmt.Errorf("golden sequence, line %d: not a number", i+2)
		}
		if rec[1] == a.Pod && arrived == a.ArrivedMilli {
			order++
			if (rec[2] == "1") == a.Scheduled && used == a.UsedMilli {
				equal++
			}
		}
	}
	n := float64(len(recs) - 1)
	emit(Cell{"openb", "default/fgd/seed42/arrivals", n, float64(order), 0, order == len(recs)-1 && order == len(r.Arrivals)})
	emit(Cell{"openb", "default/fgd/seed42/decisions", n, float64(equal), 0, equal == len(recs)-1})
	return nil
}
