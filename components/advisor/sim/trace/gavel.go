package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

func sniffGavel(head string) bool {
	f := strings.Split(firstLine(head), "\t")
	if len(f) != 7 {
		return false
	}
	_, err := strconv.ParseFloat(f[5], 64)
	return err == nil && strings.Contains(f[0], "batch size")
}

// gavelReference holds steps per second alone on one V100 for the models of Gavel's traces, as measured by its authors, from
// simulation_throughputs.json; --throughputs replaces it.
var gavelReference = map[string]float64{
	"ResNet-50 (batch size 64)":        4.39,
	"ResNet-18 (batch size 128)":       18.0,
	"Transformer (batch size 64)":      8.62,
	"LM (batch size 20)":               64.7,
	"CycleGAN":                         4.43,
	"A3C":                              7.18,
	"Recommendation (batch size 2048)": 7.47,
}

// Throughputs is Gavel's table of measured speeds: GPU type → "('model', scale)" → steps per second alone.
type Throughputs map[string]map[string]float64

// LoadThroughputs reads the speeds alone ("null" keys) of Gavel's simulation_throughputs.json.
func LoadThroughputs(path string) (Throughputs, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the throughput table: %w", err)
	}
	var raw map[string]map[string]map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, fmt.Errorf("%s: not a throughput table: %w", path, err)
	}
	t := Throughputs{}
	for gpu, models := range raw {
		t[gpu] = map[string]float64{}
		for m, with := range models {
			var v float64
			if json.Unmarshal(with["null"], &v) == nil && v > 0 {
				t[gpu][m] = v
			}
		}
	}
	return t, nil
}

var errNoSpeed = errors.New("no measured speed")

// rate is steps per second on V100s.
func (t Throughputs) rate(model string, scale int32) (float64, error) {
	if v := t["v100"][fmt.Sprintf("('%s', %d)", model, scale)]; v > 0 {
		return v, nil
	}
	if v := t["v100"][fmt.Sprintf("('%s', 1)", model)]; v > 0 {
		return v, nil // no measurement at this scale: as fast as alone, which is what data parallelism with a fixed step costs
	}
	if v := gavelReference[model]; v > 0 {
		return v, nil
	}
	return 0, errNoSpeed
}

// readGavel reads Gavel's traces: model, command, steps argument, needs data directory, steps, arrival in seconds, scale
// factor (cards). Run time = steps ÷ measured steps per second on V100.
func readGavel(in *input, emit func(workload.Job) bool) error {
	id := int64(0)
	for {
		line, err := in.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		j, keep, err := gavelJob(in, strings.Split(line, "\t"))
		if err != nil {
			if err = in.bad(err); err != nil {
				return err
			}
			continue
		}
		id++
		j.ID = id
		if keep && !emit(j) {
			return errStopped
		}
	}
}

func gavelJob(in *input, f []string) (j workload.Job, keep bool, err error) {
	if len(f) != 7 {
		return j, false, in.errorf("%d fields where a Gavel trace has 7, separated by tabs", len(f))
	}
	steps, err := in.number("steps", f[4])
	if err != nil {
		return j, false, err
	}
	arrival, err := in.number("arrival", f[5])
	if err != nil {
		return j, false, err
	}
	scale, err := in.count("scale factor", f[6])
	if err != nil {
		return j, false, err
	}
	if arrival < 0 {
		in.report.repair("job with a negative submission time, left out")
		return j, false, nil
	}
	rate, err := in.opt.Throughputs.rate(f[0], scale)
	if err != nil {
		return j, false, in.errorf("%v for %q on %d GPUs; give Gavel's simulation_throughputs.json with --throughputs", err, f[0], scale)
	}
	j.Submit, j.Model = workload.Seconds(arrival), f[0]
	if i := strings.Index(f[0], "(batch size "); i >= 0 {
		j.Batch = int32(optional(strings.TrimSuffix(f[0][i+len("(batch size "):], ")")))
		j.Model = strings.TrimSpace(f[0][:i])
	}
	return gpuJob(in, j, scale, steps/rate)
}
