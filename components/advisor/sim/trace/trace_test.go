package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

func read(t testing.TB, text string, opt Options) ([]workload.Job, *Report, error) {
	t.Helper()
	tr, err := Read("t", strings.NewReader(text), opt)
	if err != nil {
		return nil, nil, err
	}
	jobs, err := workload.Collect(tr.Jobs())
	return jobs, &tr.Report, err
}

const swfLine = "1 0 -1 100 4 -1 -1 4 200 -1 1 7 2 -1 -1 1 -1 -1\n"

// Every format is recognised and read; the files are made by hand from the formats' documentation.
func TestFormats(t *testing.T) {
	for _, c := range []struct {
		name, text string
		jobs       int
		check      func(workload.Job) bool
	}{
		{"swf", "; MaxProcs: 8\n" + swfLine, 1, func(j workload.Job) bool {
			return j.Procs == 4 && j.Run == 100*workload.Second && j.Limit == 200*workload.Second && j.User == "user7"
		}},
		{"sacct", "JobIDRaw|JobID|User|Account|Partition|QOS|Submit|Start|End|TimelimitRaw|AllocCPUS|AllocTRES|State\n" +
			"12|12|ann|vision|gpu|normal|2026-01-05T10:00:00|2026-01-05T10:01:00|2026-01-05T11:01:00|90|4|billing=4,cpu=4,gres/gpu:rtx4070=1,gres/gpu=1,mem=16G,node=1|COMPLETED\n" +
			"12.batch|12.batch||vision||||2026-01-05T10:01:00|2026-01-05T11:01:00||4|cpu=4|COMPLETED\n" +
			"13|9_2|bo|vision|gpu|normal|2026-01-05T10:00:01|2026-01-05T10:02:00|2026-01-05T10:03:00|UNLIMITED|2|cpu=2,gres/mps=25,mem=4G|CANCELLED by 1000\n" +
			"14|14|bo|vision|gpu|normal|2026-01-05T10:00:02|Unknown|Unknown|10|2||PENDING\n", 2, func(j workload.Job) bool {
			return j.ID == 12 && j.GPUs == 1 && j.GPUMilli == 1000 && j.GPUTypes[0] == "rtx4070" && j.MemMiB == 16384 && j.Run == workload.Hour && j.Limit == 90*workload.Minute && j.CPUMilli == 4000
		}},
		{"sacct-json", `{"meta":{"slurm":{"version":{"major":"24"}}},"jobs":[{"job_id":7,"array":{"job_id":5,"task_id":{"set":true,"number":2}},"association":{"account":"a","user":"u","partition":"p","cluster":"c"},"partition":"p","qos":"normal","time":{"submission":1000,"eligible":1000,"start":1010,"end":1110,"limit":{"set":true,"infinite":false,"number":5}},"state":{"current":["COMPLETED"]},"tres":{"allocated":[{"type":"cpu","name":"","id":1,"count":2},{"type":"mem","name":"","id":2,"count":2048},{"type":"gres","name":"mps","id":1003,"count":25}]},"required":{"CPUs":2}},{"job_id":8,"time":{"start":0,"end":0},"state":{"current":["PENDING"]}}]}`,
			1, func(j workload.Job) bool {
				return j.ID == 7 && j.Array == 5 && j.GPUMilli == 250 && j.GPUs == 1 && j.Run == 100*workload.Second && j.Limit == 300*workload.Second && j.MemMiB == 2048 && j.User == "u"
			}},
		{"philly", "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,2,132.0,11cb48\n2017-10-08 07:01:55,5,1,5,6214e9\n", 2,
			func(j workload.Job) bool { return j.GPUs == 1 && j.Account == "6214e9" }},
		{"philly-json", `[{"status":"Pass","vc":"ee9e8c","jobid":"application_1","attempts":[{"start_time":"2017-10-07 01:00:00","end_time":"2017-10-07 02:00:00","detail":[{"ip":"m1","gpus":["gpu0","gpu1"]}]},{"start_time":"2017-10-07 03:00:00","end_time":"2017-10-07 03:30:00","detail":[]}],"submitted_time":"2017-10-07 00:59:00","user":"u1"},
			{"status":"Killed","vc":"x","jobid":"application_2","attempts":[],"submitted_time":"2017-10-07 00:59:00","user":"u1"}]`, 1,
			func(j workload.Job) bool { return j.GPUs == 2 && j.Run == 90*workload.Minute && j.User == "u1" }},
		{"openb", "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\nopenb-pod-0001,6000,12288,1,460,V100M16|V100M32,LS,Running,10,110,20\n", 1,
			func(j workload.Job) bool {
				return j.ID == 1 && j.GPUMilli == 460 && len(j.GPUTypes) == 2 && j.Run == 90*workload.Second && j.Class == workload.Latency
			}},
		{"alibaba2020", "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\nj1,worker,2,Terminated,100,400,600,29,100,V100\nj2,tf,1,Terminated,50,60,600,29,25,MISC\nj3,ps,1,Running,70,,600,29,,\n", 2,
			func(j workload.Job) bool { return j.GPUs == 1 && j.GPUMilli == 250 && j.Run == 10*workload.Second }},
		{"gavel", "LM (batch size 20)\tcmd\t--steps\t1\t647\t5.5\t2\n", 1, func(j workload.Job) bool {
			return j.GPUs == 2 && j.Run == 10*workload.Second && j.Batch == 20 && j.Model == "LM"
		}},
		{"muri", "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,priority\n3,4,1000,10,bert,4,9,1,190,0\n", 1,
			func(j workload.Job) bool {
				return j.Submit == workload.Second && j.Run == 1900*workload.Millisecond && j.GPUs == 4
			}},
		{"tiresias", "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n0,1,0,606,vgg19,164,30\n", 1, func(j workload.Job) bool { return j.Run == 164*workload.Second }},
		{"elasticflow", "job_id,submit_time,real_iteration,model_name,ddl,batch_size,num_gpu,real_duration,duration,iteration\n0,5,12,vgg16,771,256,1,97,100,12\n", 1,
			func(j workload.Job) bool {
				return j.Deadline == 771*workload.Second && j.Limit == 100*workload.Second && j.Run == 97*workload.Second
			}},
		{"azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4000,50\n", 1, func(j workload.Job) bool { return j.Run == 2*workload.Second && j.Class == workload.Latency }},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr, err := Read("t", strings.NewReader(c.text), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if tr.Format.Name != c.name {
				t.Fatalf("recognised as %s", tr.Format.Name)
			}
			jobs, err := workload.Collect(tr.Jobs())
			if err != nil || len(jobs) != c.jobs {
				t.Fatalf("%d jobs, want %d: %v (%s)", len(jobs), c.jobs, err, tr.Report.String())
			}
			if !c.check(jobs[0]) {
				t.Errorf("first job is %+v", jobs[0])
			}
		})
	}
}

const sacctHead = "JobID|Submit|Start|End|State|AllocTRES\n"

// Slurm's arrays: the tasks know their array, and how many of them may run at once where sacct says so.
func TestArrays(t *testing.T) {
	row := func(id, state, line string) string {
		return id + "|2026-01-05T10:00:00|2026-01-05T10:01:00|2026-01-05T11:01:00|" + state + "|cpu=1|" + line + "\n"
	}
	head := strings.TrimSuffix(sacctHead, "\n") + "|SubmitLine\n"
	for name, text := range map[string]string{
		"record of tasks that wait": head + row("12_[4-10%2]", "PENDING", "") + row("12_3", "COMPLETED", ""),
		"--array=":                  head + row("12_3", "COMPLETED", "sbatch --array=1-10%2 run.sh"),
		"-a":                        head + row("12_3", "COMPLETED", "sbatch -a 1-10%2 run.sh"),
		"-a without a space":        head + row("12_3", "COMPLETED", "sbatch -a1-10%2 run.sh"),
		"json": `{"jobs":[{"job_id":15,"array":{"job_id":12,"limits":{"max":{"running":{"tasks":2}}}},"time":{"submission":1,"start":2,"end":9},
			"state":{"current":["COMPLETED"]},"required":{"CPUs":1}}]}`,
	} {
		format := "sacct"
		if name == "json" {
			format = "sacct-json"
		}
		jobs, _, err := read(t, text, Options{Format: format})
		if err != nil || len(jobs) != 1 || jobs[0].Array != 12 || jobs[0].ArrayLimit != 2 {
			t.Errorf("%s: %+v, %v", name, jobs, err)
		}
	}
	jobs, _, err := read(t, head+row("12_3", "COMPLETED", "sbatch run.sh --array=1-9%4x")+row("13", "COMPLETED", "sbatch -A lab run.sh"), Options{Format: "sacct"})
	if err != nil || len(jobs) != 2 || jobs[0].ArrayLimit != 0 || jobs[1].Array != 0 {
		t.Errorf("without a bound: %+v, %v", jobs, err)
	}
}

// Bad lines stop the reader with file and line, or are counted where that was asked for.
func TestBadTraces(t *testing.T) {
	for _, c := range []struct{ name, format, text, want string }{
		{"truncated line", "swf", swfLine + "2 5 -1 10\n", "t:2: 4 of 18 columns; the line is truncated"},
		{"not a number", "swf", strings.Replace(swfLine, "100", "abc", 1), `t:1: column 4: "abc" is not a number; mend or remove the line`},
		{"infinity", "swf", strings.Replace(swfLine, "100", "inf", 1), `t:1: column 4: "inf" is out of range`},
		{"empty table", "philly", "", "t:1: the trace is empty; name one"},
		{"missing column", "philly", "timestamp,duration\n", `t:1: the header has no column "num_gpus"`},
		{"bad timestamp", "philly", "timestamp,duration,num_gpus\nyesterday,1,1\n", `t:2: "yesterday" is not a timestamp`},
		{"truncated table", "philly", "timestamp,duration,num_gpus\n2017-10-09 07:01:55,66.0\n", "t:2: 2 fields where the header has 3"},
		{"fraction of a card count", "philly", "timestamp,duration,num_gpus\n2017-10-09 07:01:55,1,1.5\n", `t:2: num_gpus: "1.5" is not a whole number`},
		{"truncated JSON", "sacct-json", `{"jobs":[{"job_id":1`, "t:1: not the output of sacct --json"},
		{"other JSON", "philly-json", `{"jobs":[]}`, "t:1: not a Philly job log"},
		{"unknown model", "gavel", "Nobody's model (batch size 1)\tc\t-n\t1\t5\t0\t1\n", "give Gavel's simulation_throughputs.json"},
		{"bytes without an end of line", "swf", strings.Repeat("1 ", 1<<20), "t:1: the line is longer than 1048576 bytes"},
		{"table without an end of columns", "philly", "timestamp,duration,num_gpus" + strings.Repeat(",x", 2000) + "\n", "t:1: the header has 2003 columns; at most 1024 are read"},
		{"row without an end of fields", "philly", "timestamp,duration,num_gpus\n" + strings.Repeat("1,", 2000) + "\n", "t:2: 2001 fields where the header has 3"},
		{"element without an end", "sacct-json", `{"jobs":[{"job_id":1,"name":"` + strings.Repeat("x", 9<<20), "an element is longer than 8388608 bytes"},
		{"run time beyond the clock", "muri", "job_id,num_gpu,submit_time,iterations,model_name,iteration_time\n3,4,1000,1e11,bert,1e11\n", "t:2: a run time of 1e+19 s is out of range"},
		{"memory beyond counting", "sacct", sacctHead + "1|2026-01-05T10:00:00|2026-01-05T10:01:00|2026-01-05T11:01:00|COMPLETED|mem=99999999999999P\n", "t:2: TRES mem: "},
		{"negative fraction of a card", "openb", "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\np-1,6000,12288,1,-460,10,110\n", `t:2: gpu_milli: "-460" is not a whole number`},
		{"share of several cards", "openb", "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\np-1,6000,12288,2,460,10,110\n", "t:2: job 1: 2 cards and a share of 460 thousandths"},
		{"zone that the trace's does not use", "philly-json", `[{"jobid":"a","submitted_time":"2017-10-09 07:01:55 PDT","attempts":[]}]`, "is in zone PDT, which UTC does not use; name the trace's zone with --timezone"},
		{"unknown format", "", "hello\nworld\n", "the format is not recognised; name it with --format"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := read(t, c.text, Options{Format: c.format})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
	jobs, r, err := read(t, swfLine+"2 5 -1 10\n"+strings.Replace(swfLine, "1 0", "3 9", 1), Options{Format: "swf", Lenient: true})
	if err != nil || len(jobs) != 2 || r.Repairs["line that cannot be read, skipped"] != 1 {
		t.Errorf("lenient: %d jobs, %v, %v", len(jobs), r, err)
	}
}

// What is repaired is counted and named.
func TestRepairs(t *testing.T) {
	text := "; Version: 2.2\r\n" +
		"1 10 -1 100 4 -1 -1 4 200 -1 1 1 1 -1 -1 1 -1 -1\r\n" +
		"2 5 -1 100 4 -1 -1 4 -1 -1 1 1 1 -1 -1 1 -1 -1\r\n" + // earlier than the one before
		"3 11 -1 100 0 -1 -1 0 200 -1 1 1 1 -1 -1 1 -1 -1\r\n" + // no processors
		"4 -3 -1 100 1 -1 -1 1 200 -1 1 1 1 -1 -1 1 -1 -1\r\n" + // submitted before time
		"5 12 -1 -1 1 -1 -1 1 200 -1 5 1 1 -1 -1 1 -1 -1" // never ran, no newline at the end
	jobs, r, err := read(t, text, Options{})
	if err != nil || len(jobs) != 2 || jobs[0].ID != 2 || jobs[0].Limit != 100*workload.Second {
		t.Fatalf("%v %v", jobs, err)
	}
	for _, what := range []string{"job out of order, put in its place", "job of zero processors, left out", "job with a negative submission time, left out", "job that never ran (negative run time), left out"} {
		if r.Repairs[what] != 1 {
			t.Errorf("%q is counted %d times: %v", what, r.Repairs[what], r.Repairs)
		}
	}
	// Local times that clocks skipped or made twice.
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("no time zones here")
	}
	_, r, err = read(t, "timestamp,duration,num_gpus\n2017-03-26 02:30:00,1,1\n2017-10-29 02:30:00,1,1\n2017-06-01 02:30:00,1,1\n", Options{Location: berlin})
	if err != nil || len(r.Repairs) != 2 {
		t.Errorf("clock changes: %v, %v", r, err)
	}
}

func TestFarOutOfOrder(t *testing.T) {
	var b strings.Builder
	for i := range 20 {
		fmt.Fprintf(&b, "%d %d -1 1 1 -1 -1 1 1 -1 1 1 1 -1 -1 1 -1 -1\n", i+1, 100+i)
	}
	b.WriteString("99 0 -1 1 1 -1 -1 1 1 -1 1 1 1 -1 -1 1 -1 -1\n")
	_, _, err := read(t, b.String(), Options{Window: 8})
	var e *Error
	if !errors.As(err, &e) || e.Line != 21 || !strings.Contains(e.Msg, "sort the file by submission") {
		t.Errorf("error %v", err)
	}
	if jobs, _, err := read(t, b.String(), Options{Window: 64}); err != nil || jobs[0].ID != 99 {
		t.Errorf("within the window: %v", err)
	}
}

func TestGzip(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(swfLine))
	z.Close()
	if jobs, _, err := read(t, b.String(), Options{}); err != nil || len(jobs) != 1 {
		t.Errorf("%d jobs, %v", len(jobs), err)
	}
	if _, _, err := read(t, b.String()[:b.Len()-6], Options{}); err == nil || !strings.Contains(err.Error(), "t:") {
		t.Errorf("a cut gzip file reads without an error that names it: %v", err)
	}
}

// endless makes a trace of so many lines without holding it.
type endless struct {
	line, lines int
	rest        []byte
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.rest) == 0 {
		if e.line == e.lines {
			return 0, errEOF
		}
		e.line++
		e.rest = fmt.Appendf(e.rest[:0], "%d %d -1 10 1 -1 -1 1 10 -1 1 1 1 -1 -1 1 -1 -1\n", e.line, e.line)
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

var errEOF = func() error { _, err := strings.NewReader("").Read(make([]byte, 1)); return err }()

// A long trace is streamed: memory does not grow with it.
func TestStreams(t *testing.T) {
	tr, err := Read("t", &endless{lines: 200_000}, Options{Format: "swf"})
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	n := 0
	for _, err := range tr.Jobs() {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); n != 200_000 || grown > 8<<20 {
		t.Errorf("%d jobs read, the heap grew by %d bytes", n, grown)
	}
}

func TestSWFRoundTrip(t *testing.T) {
	jobs, _, err := read(t, swfLine+"2 7 -1 50 2 -1 -1 2 60 -1 1 8 2 -1 -1 1 1 -1\n", Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if n, err := WriteSWF(&b, workload.FromSlice(jobs), 8, nil); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	again, r, err := read(t, b.String(), Options{})
	if err != nil || r.Header["MaxProcs"] != "8" {
		t.Fatal(err, r)
	}
	for i := range jobs {
		a, b := jobs[i], again[i]
		if a.ID != b.ID || a.Submit != b.Submit || a.Run != b.Run || a.Limit != b.Limit || a.Procs != b.Procs || len(a.After) != len(b.After) {
			t.Errorf("%+v became %+v", a, b)
		}
	}
}

// The real traces, where they are: every job is read or its fate counted.
func TestSharedTraces(t *testing.T) {
	dir := "../../../../../shared/traces"
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no traces at %s", dir)
	}
	throughputs, err := LoadThroughputs(filepath.Join(dir, "gavel", "simulation_throughputs.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file, format string
		jobs         int
	}{
		{"swf/lublin_256.swf", "swf", 10000}, {"swf/hpc2n.swf", "swf", 3145}, {"philly/philly.csv", "philly", 82247}, {"muri/trace3.csv", "muri", 992},
		{"tiresias/60_job.csv", "tiresias", 60}, {"elasticflow/philly_103959.csv", "elasticflow", 876},
		{"azure_llm/AzureLLMInferenceTrace_code.csv", "azure", 8819}, {"azure_llm/AzureLLMInferenceTrace_conv.csv", "azure", 19366}, {"openb/openb_pod_list_default.csv", "openb", 0}, {"gavel/103959.trace", "gavel", 0},
	} {
		tr, err := Open(filepath.Join(dir, c.file), Options{Throughputs: throughputs})
		if err != nil {
			t.Error(err)
			continue
		}
		jobs, err := workload.Collect(tr.Jobs())
		tr.Close()
		if err != nil || tr.Format.Name != c.format || len(jobs) == 0 || c.jobs != 0 && len(jobs) != c.jobs {
			t.Errorf("%s: %s, %d jobs, want %d: %v\n%s", c.file, tr.Format.Name, len(jobs), c.jobs, err, tr.Report.String())
		}
		for i := 1; i < len(jobs); i++ {
			if jobs[i].Submit < jobs[i-1].Submit {
				t.Fatalf("%s: job %d is out of order", c.file, jobs[i].ID)
			}
		}
	}
}

// A file cut in the middle of its compressed bytes says so at the line that is not there, not at the first.
func TestCutGzip(t *testing.T) {
	var lines strings.Builder
	x := uint32(1)
	for range 5000 {
		x = x*1664525 + 1013904223
		fmt.Fprintf(&lines, "%d 0 -1 %d 1 -1 -1 1 %d -1 1 1 1 -1 -1 1 -1 -1\n", x, x>>8, x>>7)
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(lines.String())); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, err := read(t, b.String()[:b.Len()/2], Options{})
	var at *Error
	if !errors.As(err, &at) || at.Line < 2000 || !strings.Contains(at.Msg, "the compressed file ends in its middle") {
		t.Errorf("error %v, want one behind line 2000", err)
	}
}

// Lines of a table that a reader of its own refuses are told with file and line, gzipped or not.
func TestRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.csv")
	for text, want := range map[string]string{
		"a,b\r\n1,x\r\n": "",
		"a,b\n1,x\n2\n":  ":3: 1 fields where the header has 2; the line is truncated; mend or remove the line",
		"a,b\n1.5,x\n":   `:2: a: "1.5" is not a whole number from 1 to 9; mend or remove the line`,
		"a,b\n11,x\n":    `:2: a: "11" is not a whole number from 1 to 9`,
		"a,b\nNaN,x\n":   `:2: a: "NaN" is out of range`,
		"b\nx\n":         `:1: the header has no column "a"`,
		"":               ":1: the trace is empty",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var got []string
		err := Rows(path, []string{"a"}, func(r Row) error {
			v, err := r.Whole("a", 1, 9)
			got = append(got, fmt.Sprintf("%d %s", v, r.Text("b")))
			return err
		})
		switch {
		case want == "" && (err != nil || !slices.Equal(got, []string{"1 x"})):
			t.Errorf("%q: %q, %v", text, got, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), "t.csv"+want)):
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
}
