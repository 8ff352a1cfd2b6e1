package anchor

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/berth-hpc/berth/components/advisor/sim/compat/muri"
)

// muriCluster is the cluster of the published runs: 8 nodes of 8 GPUs.
var muriCluster = muri.Cluster{Nodes: 8, GPUsPerNode: 8}

// MuriPolicies are the policies of the published table.
var MuriPolicies = []muri.Policy{muri.SRTF, muri.SRSF, muri.Tiresias}

// muriPublished holds the printed digits of the original's runs (golden/muri_reproduced.txt).
var muriPublished = map[string]map[muri.Policy]muri.Summary{
	"trace1": {
		muri.SRTF:     {Jobs: 1494, MeanJCT: 1370603.197651, Makespan: 26045465.532945, P99: 16647148.090740},
		muri.SRSF:     {Jobs: 1494, MeanJCT: 980140.569929, Makespan: 26065759.044845, P99: 15529913.227905},
		muri.Tiresias: {Jobs: 1494, MeanJCT: 3330371.306772, Makespan: 23556410.217355, P99: 14739851.505200},
	},
	"trace3": {
		muri.SRTF:     {Jobs: 992, MeanJCT: 193081.796, Makespan: 8174135.28, P99: 4538890.607},
		muri.SRSF:     {Jobs: 992, MeanJCT: 185021.8802, P99: 4189699.177},
		muri.Tiresias: {Jobs: 992, MeanJCT: 347213.2481, Makespan: 8174226.28, P99: 4983397.254},
	},
}

// Muri checks Anchor B.
func Muri(shared string, emit func(Cell)) error {
	for _, name := range []string{"trace1", "trace3"} {
		jobs, err := muri.ReadTrace(filepath.Join(shared, "traces", "muri", name+".csv"))
		if err != nil {
			return err
		}
		for _, p := range MuriPolicies {
			rs, err := muri.Run(jobs, muriCluster, p)
			if err != nil {
				return err
			}
			s, pub := muri.Summarise(rs), muriPublished[name][p]
			cell := func(what string, published, ours float64, decimals int) {
				if published != 0 {
					emit(Cell{"muri", fmt.Sprintf("%s/%s/%s", name, p, what), published, ours, decimals, digits(published, ours, decimals)})
				}
			}
			mean, span, p99 := 6, 6, 6
			if name == "trace3" {
				mean, span, p99 = 4, 2, 3
				if p == muri.SRTF {
					mean = 3
				}
			}
			cell("mean", pub.MeanJCT, s.MeanJCT, mean)
			cell("makespan", pub.Makespan, s.Makespan, span)
			cell("p99", pub.P99, s.P99, p99)
			if name == "trace3" {
				n, total, err := compareLog(filepath.Join(shared, "golden", "muri_trace3_"+string(p)+".job.csv"), rs)
				if err != nil {
					return err
				}
				emit(Cell{"muri", fmt.Sprintf("%s/%s/joblog", name, p), float64(total), float64(n), 0, n == total && total == len(rs)})
			}
		}
	}
	return nil
}

// compareLog counts the lines of the original's job log that ours equals, line by line and to 1e-6 s: job, cards, submission,
// start, end, time from start to end, executed time, completion time and pending time. The log's column "preempt" holds another
// counter of the original, which is 0 throughout, and is not compared.
func compareLog(path string, rs []muri.Result) (equal, total int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	recs, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return 0, 0, err
	}
	for i, rec := range recs[1:] {
		total++
		if i >= len(rs) {
			continue
		}
		var v [13]float64
		for k := range v {
			if v[k], err = strconv.ParseFloat(rec[k], 64); err != nil {
				return 0, 0, fmt.Errorf("%s:%d: %w", path, i+2, err)
			}
		}
		r := rs[i]
		near := func(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 }
		if int64(v[1]) == r.ID && int(v[2]) == r.GPUs && near(v[3], r.Submit) && near(v[4], r.Start) && near(v[5], r.End) &&
			near(v[6], r.End-r.Start) && near(v[7], r.Executed) && near(v[8], r.JCT) && near(v[10], r.Pending) {
			equal++
		}
	}
	return equal, total, nil
}
