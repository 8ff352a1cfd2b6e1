package trace

import (
	"strings"
	"testing"

	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// fuzz feeds a reader anything, beginning with the seeds and gzipped or not as they come. Readers never panic, never give an invalid
// job, never one out of order; errors name file and line.
func fuzz(f *testing.F, format string, seeds ...string) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) { readAnything(t, text, format) })
}

func readAnything(t *testing.T, text, format string) {
	for _, lenient := range []bool{false, true} {
		tr, err := Read("t", strings.NewReader(text), Options{Format: format, Lenient: lenient})
		if err != nil {
			return
		}
		last := workload.Time(-1 << 62)
		for j, err := range tr.Jobs() {
			if err != nil {
				if !strings.HasPrefix(err.Error(), "t:") {
					t.Fatalf("the error does not say where: %v", err)
				}
				break
			}
			if j.Submit < last || j.Limit <= 0 || j.Run < 0 || j.Validate() != nil {
				t.Fatalf("bad job %+v after %d", j, last)
			}
			last = j.Submit
		}
	}
}

func FuzzSWF(f *testing.F) {
	fuzz(f, "swf",
		swfLine,
		"; MaxProcs: 8\n2 5 -1 10\n"+swfLine,
		strings.Replace(swfLine, "100", "1e300", 1))
}

func FuzzSacct(f *testing.F) {
	fuzz(f, "sacct",
		"JobIDRaw|JobID|User|Submit|Start|End|TimelimitRaw|AllocCPUS|AllocTRES|State\n12|12|ann|2026-01-05T10:00:00|2026-01-05T10:01:00|2026-01-05T11:01:00|90|4|cpu=4,gres/gpu:a=1,gres/mps=25,mem=16G|COMPLETED\n",
		sacctHead+"12_3|2026-01-05T10:00:00|2026-01-05T10:01:00|2026-01-05T11:01:00|TIMEOUT|cpu=2K\n12_[4-9%2]|2026-01-05T10:00:00|Unknown|Unknown|PENDING|\n",
		"JobID|Submit|Eligible|Start|End|Timelimit|State|ReqCPUS|SubmitLine\n1|2026-01-05T10:00:00|2026-01-05T10:00:30|2026-01-05T10:01:00|2026-01-05T11:01:00|1-12:00:00|CANCELLED by 0|2|sbatch -a 1-3%1 x\n")
}

func FuzzSacctJSON(f *testing.F) {
	fuzz(f, "sacct-json",
		`{"jobs":[{"job_id":7,"time":{"start":1,"end":2}}]}`,
		`{"meta":{"slurm":{}},"jobs":[{"job_id":7,"array":{"job_id":5,"limits":{"max":{"running":{"tasks":2}}}},"time":{"submission":1000,"start":1010,"end":1110,"limit":{"set":true,"number":5}},"state":{"current":"COMPLETED"},"tres":{"allocated":[{"type":"gres","name":"mps","count":25}]}}]}`)
}

func FuzzPhilly(f *testing.F) {
	fuzz(f, "philly",
		"timestamp,duration,num_gpus\n2017-10-09 07:01:55,66.0,2\n",
		"timestamp,duration,num_gpus,gpu_time,cluster\n\"2017-03-26 02:30:00\",1e11,0,1,x\n")
}

func FuzzPhillyJSON(f *testing.F) {
	fuzz(f, "philly-json",
		`[{"jobid":"a","attempts":[{"start_time":"2017-10-07 01:00:00","end_time":"2017-10-07 02:00:00","detail":[{"ip":"m","gpus":["g"]}]}],"submitted_time":"2017-10-07 00:59:00"}]`,
		`[{"jobid":"a","attempts":[{"start_time":"None"}],"submitted_time":"2017-10-07 00:59:00 PDT"}]`)
}

func FuzzOpenb(f *testing.F) {
	fuzz(f, "openb",
		"name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\nopenb-pod-0001,6000,12288,1,460,10,110\n",
		"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\np-1,1,1,0,0,A|B,LS,Running,10,110,20\n")
}

func FuzzAlibaba2020(f *testing.F) {
	fuzz(f, "alibaba2020",
		"job_name,inst_num,start_time,end_time,plan_gpu\nj1,2,100,400,100\n",
		"job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\nj,w,1,T,50,60,600,29,25,MISC\nj,w,1e6,T,50,60,1e9,1e9,1e5,V100\n")
}

func FuzzGavel(f *testing.F) {
	fuzz(f, "gavel",
		"LM (batch size 20)\tcmd\t--steps\t1\t647\t5.5\t2\n",
		"CycleGAN\tcmd\t-n\t0\t1e11\t0\t1\nA3C\t\t\t\t-1\t-1\t0\n")
}

func FuzzMuri(f *testing.F) {
	fuzz(f, "muri",
		"job_id,num_gpu,submit_time,iterations,model_name,iteration_time\n3,4,1000,10,bert,190\n",
		"job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,priority\n3,0,-1,1e11,bert,4,9,1,1e11,0\n")
}

func FuzzTiresias(f *testing.F) {
	fuzz(f, "tiresias",
		"job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n0,1,0,606,vgg19,164,30\n",
		"job_id,num_gpu,submit_time,model_name,duration\n0,1,5,a,0\n1,1,2,b,1e11\n")
}

func FuzzElasticFlow(f *testing.F) {
	fuzz(f, "elasticflow",
		"job_id,submit_time,real_iteration,model_name,ddl,batch_size,num_gpu,real_duration,duration,iteration\n0,5,12,vgg16,771,256,1,97,100,12\n",
		"job_id,submit_time,model_name,ddl,batch_size,num_gpu,real_duration,duration\n0,5,a,-1,0,1,1e11,-1\n")
}

func FuzzAzure(f *testing.F) {
	fuzz(f, "azure",
		"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4000,50\n",
		"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16T18:17:03Z,0,0\n1969-01-01 00:00:00,2147483647,2147483647\n")
}

// FuzzFormat lets the reader find out the format.
func FuzzFormat(f *testing.F) {
	fuzz(f, "auto", swfLine, "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4000,50\n", `{"meta":{"slurm":{}},"jobs":[]}`, "\x1f\x8b")
}
