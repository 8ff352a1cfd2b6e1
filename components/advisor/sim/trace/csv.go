package trace

import (
	"strconv"
	"strings"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// readPhillyCSV reads the flattened Philly trace. Users gave no estimates, so limits equal run times (the engine can blur
// them). Each GPU job takes whole cards; CPU and memory are not in the file.
func readPhillyCSV(in *input, emit func(workload.Job) bool) error {
	t, err := newTable(in, ",", "timestamp", "duration", "num_gpus")
	if err != nil {
		return err
	}
	id := int64(0)
	return t.rows(emit, func() (j workload.Job, keep bool, err error) {
		id++
		if j.Submit, err = in.timestamp(t.str("timestamp")); err != nil {
			return j, false, err
		}
		run, err := t.number("duration")
		if err != nil {
			return j, false, err
		}
		gpus, err := t.count("num_gpus")
		if err != nil {
			return j, false, err
		}
		j.ID, j.Account = id, t.str("cluster")
		j.Partition = j.Account
		return gpuJob(in, j, gpus, run)
	})
}

// gpuJob fills in cards and run time, leaving out what could not run.
func gpuJob(in *input, j workload.Job, gpus int32, run float64) (workload.Job, bool, error) {
	switch {
	case gpus <= 0:
		in.report.repair("job of zero GPUs, left out")
		return j, false, nil
	case run < 0:
		in.report.repair("job with a negative run time, left out")
		return j, false, nil
	case !(run <= workload.MaxSeconds):
		return j, false, in.errorf("a run time of %g s is out of range", run)
	case workload.Seconds(run) == 0:
		in.report.repair("job of zero run time, left out")
		return j, false, nil
	}
	j.GPUs, j.Procs, j.GPUMilli = gpus, gpus, 1000
	j.Run = workload.Seconds(run)
	if j.Limit == 0 {
		j.Limit = j.Run
	}
	return j, true, nil
}

// readOpenb reads pods of Alibaba's 2023 GPU trace. The file has one task a line with creation and deletion in seconds.
func readOpenb(in *input, emit func(workload.Job) bool) error {
	t, err := newTable(in, ",", "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time", "deletion_time")
	if err != nil {
		return err
	}
	return t.rows(emit, func() (j workload.Job, keep bool, err error) {
		v, err := t.numbers("cpu_milli", "memory_mib", "creation_time")
		if err != nil {
			return j, false, err
		}
		gpus, err := t.count("num_gpu")
		if err != nil {
			return j, false, err
		}
		milli, err := t.count("gpu_milli")
		if err != nil {
			return j, false, err
		}
		name := t.str("name")
		id, err := strconv.ParseInt(name[strings.LastIndexByte(name, '-')+1:], 10, 64)
		if err != nil {
			return j, false, in.errorf("the name %q does not end in a number", name)
		}
		j.ID = id
		j.CPUMilli, j.MemMiB, j.Submit = int64(v[0]), int64(v[1]), workload.Seconds(v[2])
		j.GPUs, j.GPUMilli = gpus, milli
		j.Procs = max(gpus, 1)
		j.QOS = t.str("qos")
		if j.QOS == "LS" {
			j.Class = workload.Latency
		}
		if s := t.str("gpu_spec"); s != "" {
			j.GPUTypes = strings.Split(s, "|")
		}
		start := j.Submit
		if s := t.str("scheduled_time"); s != "" {
			v, err := in.number("scheduled_time", s)
			if err != nil {
				return j, false, err
			}
			start = workload.Seconds(v)
		}
		end, err := t.number("deletion_time")
		if err != nil {
			return j, false, err
		}
		j.Run = workload.Seconds(end) - start
		if j.Run <= 0 {
			in.report.repair("pod deleted before it was scheduled, left out")
			return j, false, nil
		}
		j.Limit = j.Run
		return j, true, nil
	})
}

// readAlibaba2020 reads pai_task_table.csv of the 2020 trace: job_name, task_name, inst_num, status, start_time, end_time,
// plan_cpu (percent of a core), plan_mem (GiB), plan_gpu (percent of a card), gpu_type; a task is inst_num equal instances. The trace has no
// submission time: the start is taken for it, as its readers do.
func readAlibaba2020(in *input, emit func(workload.Job) bool) error {
	t, err := newTable(in, ",", "job_name", "inst_num", "start_time", "end_time", "plan_gpu")
	if err != nil {
		return err
	}
	id := int64(0)
	return t.rows(emit, func() (j workload.Job, keep bool, err error) {
		id++
		if t.str("start_time") == "" || t.str("end_time") == "" {
			in.report.repair("task without start or end, left out")
			return j, false, nil
		}
		if t.str("plan_gpu") == "" {
			in.report.repair("task without a GPU, left out")
			return j, false, nil
		}
		v, err := t.numbers("inst_num", "start_time", "end_time", "plan_gpu")
		if err != nil {
			return j, false, err
		}
		inst, run, gpu := v[0], v[2]-v[1], v[3]
		if inst < 1 || run <= 0 || gpu <= 0 || inst > 1e6 || gpu > 1e5 {
			in.report.repair("task of no instances, no GPU or no run time, left out")
			return j, false, nil
		}
		j.ID, j.User = id, t.str("user")
		j.Submit, j.Run = workload.Seconds(v[1]), workload.Seconds(run)
		j.Limit = j.Run
		if s := strings.TrimSpace(t.str("gpu_type")); s != "" && s != "MISC" {
			j.GPUTypes = []string{s}
		}
		j.CPUMilli = int64(optional(t.str("plan_cpu")) * 10 * inst)
		j.MemMiB = int64(optional(t.str("plan_mem")) * 1024 * inst)
		if gpu < 100 && inst == 1 {
			j.GPUs, j.GPUMilli = 1, int32(gpu*10)
		} else {
			// Instances of less than a card are gathered on whole cards: a gang has no shares here.
			j.GPUs, j.GPUMilli = int32((gpu*inst+99)/100), 1000
		}
		j.Procs = j.GPUs
		return j, true, nil
	})
}

// optional reads a number that may be missing; anything unreadable or negative counts as none.
func optional(s string) float64 {
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || !(v >= 0 && v < 1e9) {
		return 0
	}
	return v
}

// readMuri reads Muri's CSV: times in milliseconds, run time = iterations × iteration_time.
func readMuri(in *input, emit func(workload.Job) bool) error {
	t, err := newTable(in, ",", "job_id", "num_gpu", "submit_time", "iterations", "model_name", "iteration_time")
	if err != nil {
		return err
	}
	return t.rows(emit, func() (j workload.Job, keep bool, err error) {
		v, err := t.numbers("job_id", "submit_time", "iterations", "iteration_time")
		if err != nil {
			return j, false, err
		}
		gpus, err := t.count("num_gpu")
		if err != nil {
			return j, false, err
		}
		if t.has("batch_size") {
			if j.Batch, err = t.count("batch_size"); err != nil {
				return j, false, err
			}
		}
		j.ID, j.Submit, j.Model = int64(v[0]), workload.Seconds(v[1]/1000), t.str("model_name")
		return gpuJob(in, j, gpus, v[2]*v[3]/1000)
	})
}

// readTiresias reads the CSV of Tiresias' simulator (seconds).
func readTiresias(in *input, emit func(workload.Job) bool) error {
	t, err := newTable(in, ",", "job_id", "num_gpu", "submit_time", "model_name", "duration")
	if err != nil {
		return err
	}
	return t.rows(emit, func() (j workload.Job, keep bool, err error) {
		v, err := t.numbers("job_id", "submit_time", "duration")
		if err != nil {
			return j, false, err
		}
		gpus, err := t.count("num_gpu")
		if err != nil {
			return j, false, err
		}
		j.ID, j.Submit, j.Model = int64(v[0]), workload.Seconds(v[1]), t.str("model_name")
		return gpuJob(in, j, gpus, v[2])
	})
}

// readElasticFlow reads ElasticFlow's CSV (seconds); ddl is the absolute deadline, duration the user's estimate.
func readElasticFlow(in *input, emit func(workload.Job) bool) error {
	t, err := newTable(in, ",", "job_id", "submit_time", "model_name", "ddl", "batch_size", "num_gpu", "real_duration", "duration")
	if err != nil {
		return err
	}
	return t.rows(emit, func() (j workload.Job, keep bool, err error) {
		v, err := t.numbers("job_id", "submit_time", "ddl", "real_duration", "duration")
		if err != nil {
			return j, false, err
		}
		gpus, err := t.count("num_gpu")
		if err != nil {
			return j, false, err
		}
		if j.Batch, err = t.count("batch_size"); err != nil {
			return j, false, err
		}
		j.ID, j.Submit, j.Model = int64(v[0]), workload.Seconds(v[1]), t.str("model_name")
		j.Deadline = workload.Seconds(max(v[2], 0))
		j.Limit = workload.Seconds(max(v[4], 0))
		return gpuJob(in, j, gpus, v[3])
	})
}

// Azure's trace has tokens and no times. These rates turn tokens into seconds on one card of relative speed 1; they are of
// the size of a 7-billion-parameter model on one data-centre card and only ratios matter: prefill 4000 tokens/s, decode 50 tokens/s.
const (
	prefillTokensPerSecond = 4000
	decodeTokensPerSecond  = 50
)

// readAzure reads Azure's LLM inference requests. A request becomes a latency job on a tenth of a card whose deadline is
// three times its time alone.
func readAzure(in *input, emit func(workload.Job) bool) error {
	t, err := newTable(in, ",", "TIMESTAMP", "ContextTokens", "GeneratedTokens")
	if err != nil {
		return err
	}
	id := int64(0)
	return t.rows(emit, func() (j workload.Job, keep bool, err error) {
		id++
		if j.Submit, err = in.timestamp(t.str("TIMESTAMP")); err != nil {
			return j, false, err
		}
		context, err := t.count("ContextTokens")
		if err != nil {
			return j, false, err
		}
		generated, err := t.count("GeneratedTokens")
		if err != nil {
			return j, false, err
		}
		j.ID, j.Class = id, workload.Latency
		j.Model = "llm-inference"
		j, keep, err = gpuJob(in, j, 1, float64(context)/prefillTokensPerSecond+float64(generated)/decodeTokensPerSecond)
		j.GPUMilli = 100
		j.Deadline = j.Submit + 3*j.Run
		return j, keep, err
	})
}
