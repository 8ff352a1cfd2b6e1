package openb

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/berth-hpc/berth/components/advisor/sim/cluster"
)

// ReadNodes reads the node list: sn, cpu_milli, memory_mib, gpu, model.
func ReadNodes(path string) ([]*cluster.Node, error) {
	var nodes []*cluster.Node
	err := readCSV(path, []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}, func(s map[string]string, v func(string) int64) {
		nodes = append(nodes, cluster.NewNode(s["sn"], s["model"], v("cpu_milli"), v("memory_mib"), int(v("gpu")), 0))
	})
	return nodes, err
}

// ReadPods reads a pod list.
func ReadPods(path string) ([]Pod, error) {
	var pods []Pod
	err := readCSV(path, []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}, func(s map[string]string, v func(string) int64) {
		p := Pod{Name: s["name"], Demand: cluster.Demand{CPUMilli: v("cpu_milli"), MemMiB: v("memory_mib"), Cards: int32(v("num_gpu")), Milli: int32(v("gpu_milli"))}}
		if p.Demand.Cards == 0 {
			p.Demand.Milli = 0
		}
		if t := s["gpu_spec"]; t != "" {
			p.Demand.Types = strings.Split(t, "|")
		}
		pods = append(pods, p)
	})
	return pods, err
}

// readCSV calls row for every line, with its fields by name and a reader of whole numbers.
func readCSV(path string, need []string, row func(map[string]string, func(string) int64)) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cannot open the list: %w", err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	header, err := r.Read()
	if err != nil {
		return fmt.Errorf("%s:1: cannot read the header: %w", path, err)
	}
	for _, n := range need {
		if !strings.Contains(","+strings.Join(header, ",")+",", ","+n+",") {
			return fmt.Errorf("%s:1: the header has no column %q", path, n)
		}
	}
	for {
		rec, err := r.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		line, _ := r.FieldPos(0)
		fields := map[string]string{}
		for i, h := range header {
			fields[h] = rec[i]
		}
		var bad error
		row(fields, func(name string) int64 {
			v, err := strconv.ParseFloat(fields[name], 64)
			if (err != nil || v < 0 || v > 1e15) && bad == nil {
				bad = fmt.Errorf("%s:%d: %s: %q is not an amount", path, line, name, fields[name])
			}
			return int64(v)
		})
		if bad != nil {
			return bad
		}
	}
}
