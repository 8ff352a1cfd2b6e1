package lease

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A lease that has run out takes every rank back, and keeps what could not be taken back for the next time.
func TestEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "advisor", File)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l := &Ledger{Until: now.Add(time.Minute), Jobs: map[int64]Rank{7: {Factor: 100, Comment: "a person's words"}, 8: {Factor: 50}}}
	if err := l.Write(path); err != nil {
		t.Fatal(err)
	}

	type change struct {
		job     int64
		factor  int
		comment string
	}
	var made []change
	set := func(job int64, factor int, comment string) error {
		if job == 8 && len(made) == 1 {
			made = append(made, change{})
			return errors.New("slurmctld does not answer")
		}
		made = append(made, change{job, factor, comment})
		return nil
	}
	if n, err := End(path, now, set); n != 0 || err != nil || made != nil {
		t.Fatalf("a lease that holds: %d ended, %v, %v", n, err, made)
	}
	n, err := End(path, now.Add(time.Minute), set)
	if n != 1 || err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Fatalf("%d ended, %v", n, err)
	}
	if n, err = End(path, now.Add(time.Minute), set); n != 1 || err != nil {
		t.Fatalf("%d ended, %v", n, err)
	}
	if want := []change{{7, 0, "a person's words; " + Ended}, {}, {8, 0, Ended}}; len(made) != 3 || made[0] != want[0] || made[2] != want[2] {
		t.Errorf("the changes: %v", made)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
}

// What is no ledger is an error that names the file, and is left alone.
func TestBadLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	for _, text := range []string{"{", `{"schema":2}`, "", `{"schema":1,"jobs":{"x":1}}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := End(path, time.Now(), func(int64, int, string) error { t.Error("a job was changed"); return nil })
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A file that is no ledger stays as it is: nobody knows any more what it was, but who reads it is told how to go on.
func TestBrokenLedger(t *testing.T) {
	for _, content := range []string{"", `{"schema":1,"jobs":{"7":`, `{"schema":2,"jobs":{}}`, `{"schema":1,"jobs":{"seven":{}}}`} {
		path := filepath.Join(t.TempDir(), File)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		set := func(int64, int, string) error { t.Error("a rank was taken back"); return nil }
		if _, err := End(path, time.Now(), set); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "delete the file, and set SiteFactor=0") {
			t.Errorf("%q: %v", content, err)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != content {
			t.Errorf("%q became %q, %v", content, now, err)
		}
	}
}
