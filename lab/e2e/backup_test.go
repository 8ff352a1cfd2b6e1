package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A backup, then everything on the volumes of the database and of the state deleted, then the restore: accounting has the old records,
// the job that was held is held, the one that ran still runs and ends once, and new jobs run.
func TestBackupRestore(t *testing.T) {
	r := begin(t, 25*time.Minute)
	s := r.clone()
	ended := r.submit(student, "--partition=cpu --comment=before", "echo began; echo ended")
	r.waitJob(ended, "COMPLETED", workerStarts)
	j := r.runningJob(student, "--partition=cpu --time=30")
	held := r.submit(researcher, "--partition=cpu --hold", "echo began; echo ended")

	file := filepath.Join(s.dir, "..", "lab.zip")
	if out := s.must("berth", "backup", siteName, file); !strings.Contains(out, "1 RUNNING") || !strings.Contains(out, ": whole") {
		t.Errorf("berth backup says\n%s", out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v %v; want it for its owner alone", info, err)
	}
	if _, err := s.command("berth", "backup", siteName, file); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("a second backup of that name: %v", err)
	}
	after := r.submit(researcher, "--partition=cpu --hold", "true")
	if out, err := s.command("berth", "restore", siteName, file); err == nil || !strings.Contains(out, "nothing was done; with --yes it is") {
		t.Errorf("without --yes: %v %s", err, out)
	}
	damaged := filepath.Join(s.dir, "..", "damaged.zip")
	s.must("sh", "-c", "head -c 20000 "+file+" > "+damaged)
	if _, err := s.command("berth", "restore", siteName, damaged, "--yes"); err == nil || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("a damaged one: %v", err)
	}

	// The disaster: both volumes are emptied under their programs, which start anew on nothing.
	controller, database := r.slurmctldStart(), "slurm-database-0"
	r.kubectl("exec", "-n", platform, database, "-c", "mariadb", "--", "sh", "-c", "rm -rf /var/lib/mysql/*")
	r.kubectl("exec", "-n", platform, controllerPod, "-c", controllerContainer, "--", "sh", "-c", "rm -rf /var/spool/slurm/state /var/spool/slurm/conf")
	r.kubectl("delete", "pod", "-n", platform, database, controllerPod, "--grace-period=0", "--force", "--wait=false")
	r.kubectl("delete", "pod", "-n", platform, "-l", labelRole+"=accounting", "--wait=false")
	r.eventually(5*time.Minute, "another slurmctld, on nothing", func() (bool, string) {
		var p pod
		if err := r.get(&p, "pod", "-n", platform, controllerPod); err != nil {
			return false, err.Error()
		}
		if now := r.slurmctldStartOf(p); now == "" || now == controller {
			return false, names([]pod{p})
		}
		_, err := r.inController("test -e /var/spool/slurm/state")
		out, _ := r.inController("squeue --noheader --states=all")
		return err == nil && !strings.Contains(out, ended), out
	})

	out := s.must("berth", "restore", siteName, file, "--yes")
	t.Logf("berth restore says\n%s", out)
	if !strings.Contains(out, "site "+siteName+" is as of ") {
		t.Errorf("berth restore says\n%s", out)
	}
	r.eventually(converges, "Flux has it all again", func() (bool, string) {
		err := s.lag()
		if err != nil {
			return false, err.Error()
		}
		return true, ""
	})
	if got := r.mustAs(student, "sacct --noheader --parsable2 --allocations --format=state --jobs="+ended); got != "COMPLETED" {
		t.Errorf("sacct has %q of the job that had ended", got)
	}
	if now, err := r.lookJob(held); err != nil || now.state != "PENDING" || now.reason != "JobHeldUser" || now.user != researcher {
		t.Errorf("after the restore: %v %v; want it held by its user", now, err)
	}
	if now, err := r.lookJob(after); err == nil {
		t.Errorf("a job of after the backup is there: %v", now)
	}
	if left, err := r.inController("ls -A /var/spool/slurm | grep '^[.]' || true"); err != nil || strings.TrimSpace(left) != "" {
		t.Errorf("left on the state's volume: %q %v", left, err)
	}
	r.mustAs(researcher, "scontrol release "+held)
	r.waitJob(held, "COMPLETED", workerStarts)
	r.waitJob(r.submit(student, "--partition=cpu", "echo began; echo ended"), "COMPLETED", workerStarts)
	// Its worker was lost to the slurmctld that knew nothing; requeued or not, its record is whole.
	r.inLogin("touch " + outputDir + "/e2e-" + j.id + ".end")
	r.inController("scontrol update jobid=" + j.id + " starttime=now")
	r.waitJob(j.id, "COMPLETED", workerStarts+2*time.Minute)
}
