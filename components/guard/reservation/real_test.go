package reservation_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/guard/reservation"
	"github.com/berth-hpc/berth/components/guard/slurmtest"
)

// Reservations on a real slurmctld, from nothing to nothing: what is wanted is made once, drift is mended, what people
// made is left alone, and one in which a job runs is deleted after the job.
func TestRealReservations(t *testing.T) {
	s := slurmtest.Start(t, "w-0", "w-1").Configure(`DefMemPerCPU=100
NodeName=w-0 NodeHostname=ctl Port=7000 CPUs=2 RealMemory=1000
NodeName=w-1 NodeHostname=ctl Port=7001 CPUs=2 RealMemory=1000 State=CLOUD
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=600
PartitionName=cpu Nodes=ALL Default=YES State=UP
`, nil)
	s.Slurmctld()
	client := s.Client
	zone := time.FixedZone("two hours east", 2*3600)
	keeper := &reservation.Keeper{Programs: s.Programs(), Zone: zone}
	keep := func(wanted ...v1alpha1.Reservation) []string {
		t.Helper()
		done, err := keeper.Reconcile(context.Background(), wanted)
		if err != nil {
			t.Fatalf("%v\n%s", err, client("scontrol", "show", "reservation"))
		}
		again, err := keeper.Reconcile(context.Background(), wanted)
		if err != nil || len(again) > 0 {
			t.Fatalf("a second look did %q, %v\n%s", again, err, client("scontrol", "show", "reservation"))
		}
		return done
	}
	show := func(name string) string {
		t.Helper()
		return client("scontrol", "show", "reservation", name, "--oneliner")
	}
	at := func(d time.Duration) string { return time.Now().Add(d).In(zone).Format("2006-01-02T15:04:05") }

	client("scontrol", "create", "reservation", "ReservationName=byhand", "Users=root", "StartTime=now+100days", "Duration=60", "Nodes=w-0")
	class := v1alpha1.Reservation{Name: "class", Start: at(time.Hour), Duration: 7200, Nodes: "w-[0-1]", Users: []string{"root", "daemon"}, Flags: []string{"WEEKLY"}}
	keep(class, v1alpha1.Reservation{Name: "power", Start: "2030-01-01T06:00:00", Duration: 3600, Flags: []string{"MAINT", "IGNORE_JOBS"}})
	if got := show("power"); !strings.Contains(got, "StartTime=2030-01-01T04:00:00 EndTime=2030-01-01T05:00:00") || !strings.Contains(got, "ALL_NODES") {
		t.Errorf("a maintenance of all nodes at six, two hours east of Greenwich: %s", got)
	}
	// Every flag that a site can name is found again as it was asked for.
	for _, flag := range []string{"MAINT", "IGNORE_JOBS", "FLEX", "OVERLAP", "HOURLY", "DAILY", "WEEKLY", "WEEKDAY", "WEEKEND", "MAGNETIC", "PURGE_COMP", "NO_HOLD_JOBS_AFTER"} {
		// On a Monday: one that repeats on weekdays or weekends is moved to its first such day otherwise.
		r := v1alpha1.Reservation{Name: "flagged", Start: "2031-01-06T06:00:00", Duration: 3600, Nodes: "w-1", Users: []string{"root"}, Flags: []string{flag}}
		if flag == "WEEKEND" {
			r.Start = "2031-01-04T06:00:00"
		}
		keep(r)
	}
	keep(class)

	// Drift: somebody changes it, or deletes it.
	client("scontrol", "update", "ReservationName=class", "Users=root", "Nodes=w-0", "Duration=30")
	if did := keep(class); len(did) != 1 {
		t.Errorf("drift was mended by %q", did)
	}
	if got := show("class"); !strings.Contains(got, "Duration=02:00:00 Nodes=w-[0-1]") || !strings.Contains(got, "daemon") {
		t.Errorf("after the drift: %s", got)
	}
	client("scontrol", "delete", "ReservationName=class")
	keep(class)

	// One that should go while a job runs in it stays until the job has ended.
	s.Slurmd("w-0")
	now := v1alpha1.Reservation{Name: "now", Start: at(-30 * time.Minute), Duration: 3600, Nodes: "w-0", Users: []string{"root"}}
	keep(class, now)
	job := client("sbatch", "--parsable", "--reservation=now", "--chdir=/tmp", "--output=/dev/null", "--time=20", "--wrap", "sleep 600")
	s.Want(job, "RUNNING")
	if _, err := keeper.Reconcile(context.Background(), []v1alpha1.Reservation{class}); err == nil || !strings.Contains(err.Error(), "reservation now is not in the site any more") {
		t.Errorf("a reservation with a running job: %v", err)
	}
	if state := client("squeue", "-h", "-j", job, "-o", "%T"); state != "RUNNING" {
		t.Errorf("the job is %s", state)
	}
	client("scancel", job)
	slurmtest.Eventually(t, time.Minute, "the reservation is gone", func() (bool, string) {
		_, err := keeper.Reconcile(context.Background(), []v1alpha1.Reservation{class})
		return err == nil, fmt.Sprint(err)
	})

	keep()
	if got := client("scontrol", "show", "reservation"); strings.Count(got, "ReservationName=") != 1 || !strings.Contains(got, "ReservationName=byhand") {
		t.Errorf("in the end there is %s", got)
	}
	if _, err := keeper.Reconcile(context.Background(), []v1alpha1.Reservation{{Name: "byhand", Start: at(time.Hour), Duration: 60}}); err == nil || !strings.Contains(err.Error(), "by hand") {
		t.Errorf("one that somebody made by hand was taken over: %v", err)
	}
}
