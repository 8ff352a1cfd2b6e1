package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Features of Slurm that need limits, qualities of service, reservations or licences: declared in the site, in force by a
// push.

const oneCard = "--partition=gpu --gres=gpu:1 --time=10"

// reason waits until a job waits for the reason.
func (r *run) waitReason(id, reason string) {
	r.Helper()
	r.eventually(90*time.Second, "job "+id+" waits: "+reason, func() (bool, string) {
		j, err := r.lookJob(id)
		if err != nil {
			return false, err.Error()
		}
		if j.state != "PENDING" {
			r.Fatalf("%s; want it PENDING for %s", j, reason)
		}
		return j.reason == reason, j.String()
	})
}

// F2: an account's limit on cards keeps its second job waiting, says which limit, and goes with a push.
func TestF2Limits(t *testing.T) {
	r := begin(t, 10*time.Minute)
	s := r.clone()
	s.declare(`lab: accounts: limited: grpTRES: {"gres/gpu": 1}
lab: users: student: accounts: ["limited"]`)
	s.deliver("One card for an account")
	r.waitJob(r.submit(student, oneCard+" --account=limited", "sleep 600"), "RUNNING", workerStarts)
	second := r.submit(student, oneCard+" --account=limited", "sleep 30")
	r.waitReason(second, "AssocGrpGRES")
	// The other card is free, and it is the limit of one account alone.
	r.waitJob(r.submit(researcher, oneCard, "true"), "COMPLETED", workerStarts)
	if j, err := r.lookJob(second); err != nil || j.reason != "AssocGrpGRES" {
		t.Errorf("%v %v; want it to wait still", j, err)
	}
	s.edit("lab: accounts: limited:", `"gres/gpu": 1`, `"gres/gpu": 2`)
	s.deliver("Two cards for the account")
	r.waitJob(second, "RUNNING", workerStarts)
}

// F3: an urgent job takes the card of a low one, which is requeued and ends well later.
func TestF3Preemption(t *testing.T) {
	r := begin(t, 15*time.Minute)
	s := r.clone()
	s.declare(`lab: slurm: {
	preemption: {type: "qos", mode: "requeue"}
	qos: {scavenger: priority: 0, urgent: {priority: 100, preempt: ["scavenger"]}}
}
lab: accounts: {vision: qos: ["normal", "scavenger"], language: qos: ["normal", "urgent"]}`)
	s.deliver("Urgent jobs before scavengers")
	const card = "--partition=gpu-rtx3080 --gres=gpu:1 --time=10"
	if _, err := r.trySubmit(student, card+" --qos=urgent", "true"); err == nil {
		t.Error("a job of a QOS that its account has not was accepted")
	} else if !strings.Contains(err.Error(), "Invalid qos") {
		t.Errorf("a job of a QOS that its account has not was refused with %v", err)
	}
	low := r.waitJob(r.submit(student, card+" --qos=scavenger", "echo run $SLURM_RESTART_COUNT; sleep 20"), "RUNNING", workerStarts)
	urgent := r.submit(researcher, card+" --qos=urgent", "sleep 5")
	r.waitJob(urgent, "COMPLETED", workerStarts)
	if j, err := r.lookJob(low.id); err != nil || j.state == "COMPLETED" {
		t.Errorf("%v %v; want it to have made room", j, err)
	}
	// Slurm lets a requeued job rest for two minutes; its user need not wait for that.
	if _, err := r.as(student, "scontrol update jobid="+low.id+" starttime=now"); err != nil {
		t.Logf("start the requeued job at once: %v", err)
	}
	r.waitJob(low.id, "COMPLETED", workerStarts)
	r.eventually(60*time.Second, "PREEMPTED, then COMPLETED", func() (bool, string) {
		out, err := r.as(student, "sacct --noheader --parsable2 --allocations --duplicates --format=state --jobs="+low.id)
		if err != nil {
			return false, err.Error()
		}
		return strings.Join(strings.Fields(out), " ") == "PREEMPTED COMPLETED", out
	})
}

// F10: a class window of the site: who is in it runs in it, others wait, and when it goes from the site it goes from Slurm,
// after the jobs that run in it.
func TestF10Reservation(t *testing.T) {
	r := begin(t, 12*time.Minute)
	at, err := r.inController("date -d '+20 seconds' +%Y-%m-%dT%H:%M:%S")
	if err != nil {
		t.Fatal(err)
	}
	s := r.clone()
	s.declare(fmt.Sprintf(`lab: reservations: class: {start: %q, duration: "1:00:00", pools: ["gpu-rtx3080"], users: [%q]}`, strings.TrimSpace(at), researcher))
	s.deliver("A class on one card")
	var shown string
	r.eventually(90*time.Second, "the class has begun", func() (bool, string) {
		out, err := r.as(student, "scontrol show reservation class --oneliner")
		shown = out
		return err == nil && strings.Contains(out, "State=ACTIVE"), out
	})
	for _, want := range []string{"Nodes=slurm-worker-gpu-rtx3080-0", "Users=" + researcher} {
		if !strings.Contains(shown, want) {
			t.Errorf("the reservation has no %s: %s", want, shown)
		}
	}
	const card = "--partition=gpu-rtx3080 --gres=gpu:1 --time=10"
	outside := r.submit(student, card, "true")
	if _, err := r.trySubmit(student, card+" --reservation=class", "true"); err == nil {
		t.Error("a user who is not in the class runs in it")
	} else if !strings.Contains(err.Error(), "reservation") {
		t.Errorf("a job of a stranger in the class was refused with %v", err)
	}
	inside := r.waitJob(r.submit(researcher, card+" --reservation=class", "sleep 20"), "RUNNING", workerStarts)
	j, err := r.lookJob(outside)
	if err != nil || j.state != "PENDING" {
		t.Errorf("%v %v; want it PENDING while the class has the card", j, err)
	}
	t.Logf("outside the class: %s", j)

	s.revertLast()
	s.converged()
	r.waitJob(inside.id, "COMPLETED", 120*time.Second)
	r.waitJob(outside, "COMPLETED", workerStarts)
	r.eventually(60*time.Second, "the reservation is gone", func() (bool, string) {
		out, err := r.as(student, "scontrol show reservation")
		return err == nil && strings.Contains(out, "No reservations"), out
	})
}

// F21: one licence, two jobs: the second waits for it.
func TestF21Licences(t *testing.T) {
	r := begin(t, 8*time.Minute)
	s := r.clone()
	s.declare(`lab: slurm: licenses: matlab: 1`)
	s.deliver("One licence")
	if got := r.mustAs(student, "scontrol show licenses --oneliner"); !strings.Contains(got, "LicenseName=matlab Total=1 Used=0 Free=1") {
		t.Errorf("the licences are %s", got)
	}
	first := r.waitJob(r.submit(student, "--partition=cpu --licenses=matlab:1", "sleep 600"), "RUNNING", workerStarts)
	second := r.submit(researcher, "--partition=cpu --licenses=matlab:1", "true")
	r.waitReason(second, "Licenses")
	r.waitJob(r.submit(researcher, "--partition=cpu", "true"), "COMPLETED", workerStarts)
	r.mustAs(student, "scancel "+first.id)
	r.waitJob(second, "COMPLETED", workerStarts)
}
