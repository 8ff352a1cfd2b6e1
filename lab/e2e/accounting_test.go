package e2e

import (
	"strings"
	"testing"
	"time"
)

// Every job leaves its row in the database, charged to its user's account, with what it used.
func TestAccounting(t *testing.T) {
	r := begin(t, 8*time.Minute)
	good := r.submit(student, "--partition=cpu", "true")
	bad := r.submit(researcher, "--partition=cpu", "exit 3")
	card := r.submit(researcher, "--partition=gpu-rtx4070 --gres=gpu:1", "true")
	r.waitJob(good, "COMPLETED", workerStarts)
	r.waitJob(bad, "FAILED", workerStarts)
	r.waitJob(card, "COMPLETED", workerStarts)

	for _, want := range []struct{ id, user, account, state, exit, tres string }{
		{good, student, "vision", "COMPLETED", "0:0", "cpu=1"},
		{bad, researcher, "language", "FAILED", "3:0", "cpu=1"},
		{card, researcher, "language", "COMPLETED", "0:0", "gres/gpu:rtx4070=1"},
	} {
		expected := strings.Join([]string{want.id, want.user, want.account, want.state, want.exit}, "|")
		r.eventually(60*time.Second, "the row of job "+want.id, func() (bool, string) {
			out, err := r.as(want.user, "sacct --noheader --parsable2 --allocations --format=jobid,user,account,state,exitcode,alloctres --jobs="+want.id)
			if err != nil {
				return false, err.Error()
			}
			row := strings.TrimSpace(out)
			return strings.HasPrefix(row, expected+"|") && strings.Contains(row, want.tres), row + "; want " + expected + " with " + want.tres
		})
	}

	if _, err := r.trySubmit(student, "--partition=cpu --account=language", "true"); err == nil {
		t.Error("a job on an account that is not its user's was accepted")
	} else if !strings.Contains(err.Error(), "Invalid account") {
		t.Errorf("a job on a foreign account was refused for another reason: %v", err)
	}
}
