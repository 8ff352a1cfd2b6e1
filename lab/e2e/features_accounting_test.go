package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Features of Slurm that are about what was used, by whom, and about the tools that people know.

// F11: what each account used of the cards is what its jobs had, to the second.
func TestF11GPUHours(t *testing.T) {
	r := begin(t, 10*time.Minute)
	one := r.submit(student, "--partition=gpu --gres=gpu:1", "sleep 20")
	two := r.submit(researcher, "--partition=gpu --gres=gpu:1 --nodes=2", "sleep 15")
	r.waitJob(one, "COMPLETED", workerStarts)
	r.waitJob(two, "COMPLETED", workerStarts)
	for _, want := range []struct {
		user, id, account string
		cards, seconds    int
	}{{student, one, "vision", 1, 20}, {researcher, two, "language", 2, 15}} {
		r.eventually(60*time.Second, "the card time of account "+want.account, func() (bool, string) {
			out, err := r.as(want.user, "sacct --noheader --parsable2 --allocations --format=account,elapsedraw,alloctres --jobs="+want.id)
			if err != nil {
				return false, err.Error()
			}
			fields := strings.Split(strings.TrimSpace(out), "|")
			if len(fields) != 3 {
				return false, out
			}
			elapsed, _ := strconv.Atoi(fields[1])
			return fields[0] == want.account && elapsed >= want.seconds && elapsed < want.seconds+30 &&
				strings.Contains(fields[2]+",", fmt.Sprintf("gres/gpu=%d,", want.cards)), out
		})
	}
	// sreport reads what slurmdbd has rolled up, whole hours: for those it must agree with the jobs.
	hours, err := r.inController(`now=$(date +%s); end=$((now - now % 3600)); f=%Y-%m-%dT%H:%M:%S; echo $(date -d @$((end - 3600)) +$f) $(date -d @$end +$f)`)
	if err != nil {
		t.Fatal(err)
	}
	span := strings.Fields(hours)
	const sum = `awk -F'|' '{ n = split($3, t, ","); for (i = 1; i <= n; i++) if (split(t[i], p, "=") == 2 && p[1] == "cpu") s += p[2] * $2 } END { print s + 0 }'`
	jobs, err := r.inController("sacct --allusers --noheader --parsable2 --allocations --truncate --starttime=" + span[0] + " --endtime=" + span[1] + " --accounts=vision,language --format=account,elapsedraw,alloctres | " + sum)
	if err != nil {
		t.Fatal(err)
	}
	report, err := r.inController("sreport --noheader --parsable2 -t seconds cluster AccountUtilizationByUser accounts=vision,language start=" + span[0] + " end=" + span[1] + " format=account,login,used | awk -F'|' '$2 == \"\" { s += $3 } END { print s + 0 }'")
	if err != nil {
		t.Fatal(err)
	}
	ran, _ := strconv.ParseFloat(strings.TrimSpace(jobs), 64)
	reported, _ := strconv.ParseFloat(strings.TrimSpace(report), 64)
	t.Logf("the hour before: %.0f CPU seconds by sacct, %.0f by sreport", ran, reported)
	switch {
	case reported == 0:
		t.Log("slurmdbd has rolled up no hour of this box yet: sreport is not compared")
	case reported < 0.95*ran-60 || reported > 1.05*ran+60:
		t.Errorf("sreport says %.0f CPU seconds, the jobs had %.0f", reported, ran)
	}
}

// F17: the tools that people and their scripts know answer as everywhere.
func TestF17Tools(t *testing.T) {
	r := begin(t, 6*time.Minute)
	id := r.submit(student, "--partition=cpu --hold", "true")
	for _, tool := range []struct{ command, want string }{
		{"squeue --jobs=" + id, `^ +JOBID PARTITION +NAME +USER ST +TIME +NODES NODELIST\(REASON\)\n +` + id + ` +cpu +e2e +student PD +0:00 +1 \(JobHeldUser\)$`},
		{"sinfo --partition=cpu", `^PARTITION AVAIL +TIMELIMIT +NODES +STATE NODELIST\ncpu\* +up +7-00:00:00 +[1-9][0-9]* +[a-z]+[~#%!*]? slurm-worker-cpu-`},
		{"scontrol show job " + id, `^JobId=` + id + ` JobName=e2e\n +UserId=student\(2001\) GroupId=student\(2001\)`},
		{"sbatch --partition=cpu --hold --output=/dev/null --wrap true", `^Submitted batch job [0-9]+$`},
		{"sacctmgr --noheader --parsable2 show association user=student format=account,user", `(?m)^vision\|student$`},
		{"scancel --me --state=PENDING; sleep 1; squeue --me --noheader --states=PENDING | wc -l", `^0$`},
	} {
		if out, err := r.as(student, tool.command); err != nil || !regexp.MustCompile(tool.want).MatchString(strings.TrimRight(out, "\n")) {
			t.Errorf("%s answers\n%s%v\nwant %s", tool.command, out, err, tool.want)
		}
	}
	done := r.submit(researcher, "--partition=cpu", "true")
	r.waitJob(done, "COMPLETED", workerStarts)
	r.eventually(60*time.Second, "sacct has the job", func() (bool, string) {
		out, err := r.as(researcher, "sacct --jobs="+done)
		return err == nil && regexp.MustCompile(`^JobID +JobName +Partition +Account +AllocCPUS +State ExitCode *\n[- ]+\n`+done+` +e2e +cpu +language +1 +COMPLETED +0:0 *\n`+done+`\.batch +batch `).MatchString(out), out
	})
}

// F18: a thousand jobs of a second each, submitted one by one; how many a second, and how long slurmctld took to answer.
func TestF18ManySmallJobs(t *testing.T) {
	r := begin(t, 25*time.Minute)
	r.crowd()
	if out, err := r.inController("sdiag --reset"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	began := time.Now()
	out := r.mustAs(student, `for i in $(seq 1000); do
  sbatch --parsable --job-name=e2e-small --partition=cpu --mem-per-cpu=50M --output=/dev/null --wrap 'sleep 1'
done | wc -l`)
	submitted := time.Since(began)
	defer func() { _, _ = r.inController("scancel --user=" + student + " --name=e2e-small") }()
	if out != "1000" {
		t.Fatalf("%s jobs were submitted", out)
	}
	r.eventually(15*time.Minute, "all jobs have ended", func() (bool, string) {
		out, err := r.as(student, "squeue --me --noheader --name=e2e-small | wc -l")
		return err == nil && strings.TrimSpace(out) == "0", out
	})
	took := time.Since(began)
	r.eventually(3*time.Minute, "1,000 records", func() (bool, string) {
		out, err := r.as(student, fmt.Sprintf("sacct --noheader --parsable2 --allocations --name=e2e-small --starttime=now-%dminutes --format=state | sort | uniq -c", int(took.Minutes())+2))
		if err != nil {
			return false, err.Error()
		}
		return strings.Join(strings.Fields(out), " ") == "1000 COMPLETED", out
	})
	t.Logf("1,000 jobs: submitted in %.0f s (%.1f a second), ended after %.0f s (%.1f a second)",
		submitted.Seconds(), 1000/submitted.Seconds(), took.Seconds(), 1000/took.Seconds())
	diag, err := r.inController("sdiag")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`REQUEST_SUBMIT_BATCH_JOB +\([^)]*\) +count:([0-9]+) +ave_time:([0-9]+)`).FindStringSubmatch(diag)
	if row == nil {
		t.Fatalf("sdiag names no submissions:\n%s", diag)
	}
	t.Logf("slurmctld took %s µs for a submission, on average of %s", row[2], row[1])
	if average, _ := strconv.Atoi(row[2]); average > 1_000_000 {
		t.Errorf("a submission took slurmctld %d µs", average)
	}
}

// F20: a user's scrontab runs at its time, also after the controller's pod was replaced.
func TestF20Scrontab(t *testing.T) {
	r := begin(t, 15*time.Minute)
	r.mustAs(student, "rm -f "+outputDir+"/e2e-cron; printf '%s\\n' '#SCRON --partition=cpu --job-name=e2e --time=2 --output=/dev/null' '* * * * * date +%H:%M >> "+outputDir+"/e2e-cron' | scrontab -")
	defer func() {
		ctx, cancel := aftermath()
		defer cancel()
		r.ctx = ctx
		if out, err := r.as(student, "scrontab -r; rm -f "+outputDir+"/e2e-cron"); err != nil {
			t.Errorf("take the scrontab away: %v: %s", err, out)
		}
	}()
	runs := func(n int, what string, bound time.Duration) {
		t.Helper()
		r.eventually(bound, what, func() (bool, string) {
			out, _ := r.as(student, "cat "+outputDir+"/e2e-cron; squeue --me --format='%i %T %r %S'")
			return strings.Count(out, ":") >= n && len(regexp.MustCompile(`(?m)^[0-9]{2}:[0-9]{2}$`).FindAllString(out, -1)) >= n, out
		})
	}
	runs(1, "the nightly job has run", workerStarts+2*time.Minute)
	if got := r.mustAs(student, "scrontab -l"); !strings.Contains(got, "* * * * * date") {
		t.Errorf("scrontab -l shows %q", got)
	}
	before := r.slurmctldStart()
	r.kubectl("delete", "pod", "-n", platform, controllerPod, "--wait=false")
	r.eventually(150*time.Second, "another controller answers", func() (bool, string) {
		var p pod
		if err := r.get(&p, "pod", "-n", platform, controllerPod); err != nil {
			return false, err.Error()
		}
		if !p.serving() || r.slurmctldStartOf(p) == before {
			return false, names([]pod{p})
		}
		out, err := r.inController("scontrol ping")
		return err == nil && strings.Contains(out, "is UP"), out
	})
	done := len(strings.Fields(r.mustAs(student, "cat "+outputDir+"/e2e-cron")))
	runs(done+1, "the nightly job runs after the restart", workerStarts+2*time.Minute)
}

// F22: after a job, seff says how well it used what it had, and agrees with sacct.
func TestF22Efficiency(t *testing.T) {
	r := begin(t, 6*time.Minute)
	id := r.submit(student, "--partition=gpu-rtx3080 --gres=gpu:1 --ntasks=2 --mem=512M", "timeout 8 bash -c 'while :; do :; done'; sleep 4")
	r.waitJob(id, "COMPLETED", workerStarts)
	var seff string
	r.eventually(60*time.Second, "seff has the job's end", func() (bool, string) {
		out, err := r.as(student, "seff "+id)
		seff = out
		return err == nil && strings.Contains(out, "State: COMPLETED (exit code 0)"), fmt.Sprint(out, err)
	})
	row := strings.Split(r.mustAs(student, "sacct --noheader --parsable2 --allocations --format=totalcpu,elapsed,elapsedraw,ncpus --jobs="+id), "|")
	cpus, _ := strconv.Atoi(row[3])
	elapsed, _ := strconv.Atoi(row[2])
	for _, want := range []string{
		"Job ID: " + id + "\n", "User/Group: student/student\n", "Cores: 2\n",
		"Job Wall-clock time: " + row[1] + "\n",
		fmt.Sprintf(" of %02d:%02d:%02d core-walltime", cpus*elapsed/3600, cpus*elapsed%3600/60, cpus*elapsed%60),
		" of 512.00 MB\n", "GPU time: " + row[1] + " (1 allocated)",
	} {
		if !strings.Contains(seff, want) {
			t.Errorf("seff prints\n%s\nwithout %q", seff, want)
		}
	}
	used := regexp.MustCompile(`CPU Utilized: 00:00:(\d+)`).FindStringSubmatch(seff)
	if used == nil {
		t.Fatalf("seff says no CPU time:\n%s", seff)
	}
	if n, _ := strconv.Atoi(used[1]); n < 2 || n > 12 {
		t.Errorf("seff counts %d s of CPU for a loop of 8 s; sacct says %s", n, row[0])
	}
	if out, err := r.as(researcher, "seff 999999"); err == nil || !strings.Contains(err.Error(), "knows no job 999999") {
		t.Errorf("seff of a job that is none: %q %v", out, err)
	}
}
