package bench

import (
	"fmt"
	"io"
	"strconv"
	"syscall"

	"github.com/berth-hpc/berth/components/advisor/sim/experiment"
	"github.com/berth-hpc/berth/components/advisor/sim/trace"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// large reads a long file of the standard workload format, made while it is read, and simulates it as `advisor sim run` does, with its
// table. What counts is the largest memory of the whole process: it follows the jobs in the system, not the file.
func large(megabytes int64) ([]Line, error) {
	_, block, err := lublin(20_000, load)
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	made := make(chan int64, 1)
	go func() {
		n, err := repeat(w, block, megabytes<<20)
		made <- n
		w.CloseWithError(err)
	}()
	t, err := trace.Read("generated", r, trace.Options{Format: "swf"})
	if err != nil {
		return nil, err
	}
	begin := processor()
	o, err := experiment.Run(experiment.Setup{Procs: procs, Policy: "fcfs+easy"}, t.Jobs())
	r.Close()
	if err != nil {
		return nil, err
	}
	took := (processor() - begin).Seconds()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return nil, err
	}
	jobs, peak := float64(o.Summary.Jobs), float64(u.Maxrss)*1024
	return []Line{
		{Name: "large.file", Value: float64(<-made) / (1 << 20), Unit: "MiB", Goal: "-", Verdict: "ok"},
		{Name: "large.jobs", Value: jobs, Unit: "jobs", Goal: fmt.Sprintf("longest-queue=%d", o.Pool.MaxWaiting), Verdict: "ok"},
		{Name: "large.time", Value: took, Unit: "s", Ratio: jobs / took, Goal: "-", Verdict: "ok"},
		{Name: "large.memory", Value: peak / (1 << 20), Unit: "MiB", Goal: "300MB", Verdict: verdict(peak < 300e6)},
	}, nil
}

// repeat writes the jobs again and again, each time after the last, until the file is so many bytes long. It gives the length.
func repeat(w io.Writer, jobs []workload.Job, size int64) (n int64, err error) {
	buf := make([]byte, 0, 1<<16)
	put := func(v int64) { buf = append(strconv.AppendInt(buf, v, 10), ' ') }
	shift, id := int64(0), int64(0)
	for {
		for i := range jobs {
			j := &jobs[i]
			id++
			put(id)
			put(shift + int64(workload.InSeconds(j.Submit)))
			put(-1)
			put(int64(workload.InSeconds(j.Run)))
			put(int64(j.Procs))
			buf = append(buf, "-1 -1 "...)
			put(int64(j.Procs))
			put(int64(workload.InSeconds(j.Limit)))
			buf = append(buf, "-1 1 "...)
			put(1 + id%50)
			buf = append(buf, "1 -1 -1 1 -1 -1\n"...)
			if len(buf) < 1<<15 {
				continue
			}
			k, err := w.Write(buf)
			if n += int64(k); err != nil || n >= size {
				return n, err
			}
			buf = buf[:0]
		}
		shift += int64(workload.InSeconds(jobs[len(jobs)-1].Submit))
	}
}
