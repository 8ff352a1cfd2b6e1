// Package parquetfile writes and reads jobs as Parquet. Unlike the formats of package trace it keeps all that a job has.
package parquetfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// Row is a job in our Parquet files, which keep all that a job has. Times are microseconds.
type Row struct {
	ID        int64   `parquet:"id"`
	Submit    int64   `parquet:"submit"`
	Run       int64   `parquet:"run"`
	Limit     int64   `parquet:"limit"`
	CancelAt  int64   `parquet:"cancel_at"`
	Procs     int32   `parquet:"procs"`
	CPUMilli  int64   `parquet:"cpu_milli"`
	MemMiB    int64   `parquet:"mem_mib"`
	GPUs      int32   `parquet:"gpus"`
	GPUMilli  int32   `parquet:"gpu_milli"`
	GPUMemMiB int32   `parquet:"gpu_mem_mib"`
	GPUTypes  string  `parquet:"gpu_types,dict"`
	Model     string  `parquet:"model,dict"`
	Util      int32   `parquet:"util"`
	Batch     int32   `parquet:"batch"`
	Latency   bool    `parquet:"latency"`
	User      string  `parquet:"user,dict"`
	Account   string  `parquet:"account,dict"`
	Partition string  `parquet:"partition,dict"`
	QOS       string  `parquet:"qos,dict"`
	Nice      int32   `parquet:"nice"`
	Array     int64   `parquet:"array"`
	ArrayMax  int32   `parquet:"array_limit,optional"`
	After     []int64 `parquet:"after,list"`
	Deadline  int64   `parquet:"deadline"`
}

func toRow(j *workload.Job) Row {
	return Row{ID: j.ID, Submit: j.Submit, Run: j.Run, Limit: j.Limit, CancelAt: j.CancelAt, Procs: j.Procs, CPUMilli: j.CPUMilli, MemMiB: j.MemMiB,
		GPUs: j.GPUs, GPUMilli: j.GPUMilli, GPUMemMiB: j.GPUMemMiB, GPUTypes: strings.Join(j.GPUTypes, "|"), Model: j.Model, Util: j.Util, Batch: j.Batch,
		Latency: j.Class == workload.Latency, User: j.User, Account: j.Account, Partition: j.Partition, QOS: j.QOS, Nice: j.Nice, Array: j.Array, ArrayMax: j.ArrayLimit,
		After: j.After, Deadline: j.Deadline}
}

func (r *Row) job() workload.Job {
	j := workload.Job{Run: r.Run, CancelAt: r.CancelAt}
	j.Request = workload.Request{ID: r.ID, Submit: r.Submit, Limit: r.Limit, Procs: r.Procs, CPUMilli: r.CPUMilli, MemMiB: r.MemMiB, GPUs: r.GPUs,
		GPUMilli: r.GPUMilli, GPUMemMiB: r.GPUMemMiB, Model: r.Model, Util: r.Util, Batch: r.Batch, User: r.User, Account: r.Account,
		Partition: r.Partition, QOS: r.QOS, Nice: r.Nice, Array: r.Array, ArrayLimit: r.ArrayMax, After: r.After, Deadline: r.Deadline}
	if r.GPUTypes != "" {
		j.GPUTypes = strings.Split(r.GPUTypes, "|")
	}
	if r.Latency {
		j.Class = workload.Latency
	}
	return j
}

// Write writes jobs, streaming. It returns the number of jobs.
func Write(w io.Writer, src workload.Source) (int, error) {
	pw := parquet.NewGenericWriter[Row](w, parquet.Compression(&parquet.Zstd), parquet.CreatedBy("berth", "1", ""))
	n := 0
	rows := make([]Row, 0, 1024)
	flush := func() error {
		_, err := pw.Write(rows)
		n += len(rows)
		rows = rows[:0]
		return err
	}
	for j, err := range src {
		if err != nil {
			return n, err
		}
		if rows = append(rows, toRow(&j)); len(rows) == cap(rows) {
			if err := flush(); err != nil {
				return n, fmt.Errorf("cannot write Parquet: %w", err)
			}
		}
	}
	if err := flush(); err != nil {
		return n, fmt.Errorf("cannot write Parquet: %w", err)
	}
	if err := pw.Close(); err != nil {
		return n, fmt.Errorf("cannot write Parquet: %w", err)
	}
	return n, nil
}

// Is says whether a file begins as Parquet files do. A file that cannot be opened does not.
func Is(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [4]byte
	n, _ := f.ReadAt(magic[:], 0)
	return string(magic[:n]) == "PAR1"
}

// Open streams the jobs of a file that Write wrote, in its order. Close it after reading.
func Open(path string) (workload.Source, io.Closer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot open the trace: %w", err)
	}
	src, err := source(path, f)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return src, f, nil
}

func source(path string, f *os.File) (workload.Source, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("cannot read the trace: %w", err)
	}
	pf, err := parquet.OpenFile(f, st.Size())
	if err != nil {
		return nil, fmt.Errorf("%s: not a Parquet file that can be read: %w", path, err)
	}
	for _, need := range []string{"id", "submit", "run", "limit", "gpus"} {
		if _, ok := pf.Schema().Lookup(need); !ok {
			return nil, fmt.Errorf("%s: the Parquet file has no column %q; only files that advisor sim export or generate wrote can be read", path, need)
		}
	}
	return func(yield func(workload.Job, error) bool) {
		r := parquet.NewGenericReader[Row](pf)
		defer r.Close()
		rows := make([]Row, 256)
		for {
			n, err := r.Read(rows)
			for i := range rows[:n] {
				j := rows[i].job()
				if err := j.Validate(); err != nil {
					yield(workload.Job{}, fmt.Errorf("%s: %w", path, err))
					return
				}
				if !yield(j, nil) {
					return
				}
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(workload.Job{}, fmt.Errorf("%s: cannot read: %w", path, err))
				return
			}
			clear(rows)
		}
	}, nil
}
