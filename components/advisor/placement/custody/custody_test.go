package custody

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/advisor/snapshot"
)

var (
	noon  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	terms = Terms{JobNamePrefix: "placed-", Accounts: []string{"lattice"}, QOS: []string{"urgent"}, Comments: []string{"place me"}, GiveUpSeconds: 600, StartSeconds: 300}
)

// held is a job that its user submitted held at noon, with changes.
func held(changes ...func(*snapshot.Job)) *snapshot.Job {
	j := &snapshot.Job{ID: 1, Name: "placed-x", State: "PENDING", Held: true, Reason: "JobHeldUser", TRES: "cpu=1,mem=100M,node=1,billing=1", Submit: noon.Unix()}
	for _, change := range changes {
		change(j)
	}
	return j
}

// Only single jobs that their users hold are taken, and only those that the terms choose.
func TestTakes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*snapshot.Job)
		want   bool
	}{
		"by name":                 {func(*snapshot.Job) {}, true},
		"another name":            {func(j *snapshot.Job) { j.Name = "replaced-x" }, false},
		"by account":              {func(j *snapshot.Job) { j.Name, j.Account = "x", "lattice" }, true},
		"by QOS":                  {func(j *snapshot.Job) { j.Name, j.QOS = "x", "urgent" }, true},
		"by comment":              {func(j *snapshot.Job) { j.Name, j.Comment = "x", "place me" }, true},
		"by a part of a comment":  {func(j *snapshot.Job) { j.Name, j.Comment = "x", "do not place me" }, false},
		"held by administrator":   {func(j *snapshot.Job) { j.Reason = "JobHeldAdmin" }, false},
		"not held":                {func(j *snapshot.Job) { j.Held = false }, false},
		"running":                 {func(j *snapshot.Job) { j.State = "RUNNING" }, false},
		"an array":                {func(j *snapshot.Job) { j.Tasks = "0-3" }, false},
		"several nodes":           {func(j *snapshot.Job) { j.TRES = "cpu=2,node=2" }, false},
		"twelve nodes":            {func(j *snapshot.Job) { j.TRES = "cpu=12,node=12" }, false},
		"placed before":           {func(j *snapshot.Job) { j.Note = Placed(j, "n0", "c", noon) }, false},
		"given back before":       {func(j *snapshot.Job) { j.Note = "a word; " + None("x") }, false},
		"another's comment on it": {func(j *snapshot.Job) { j.Note = "a word" }, true},
	} {
		if got := terms.Takes(held(c.change)); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	none := Terms{}
	if none.Takes(held(func(j *snapshot.Job) { j.Account, j.QOS, j.Comment = "", "", "" })) {
		t.Error("empty terms choose a job")
	}
}

// Jobs go back when their time is over, or at once where there is nothing to wait for.
func TestDue(t *testing.T) {
	placedAt := func(at time.Time) func(*snapshot.Job) {
		return func(j *snapshot.Job) {
			j.Held, j.Reason, j.Required, j.Note = false, "Resources", "n0", "by a person; "+Placed(&snapshot.Job{}, "n0", "sha256:abc", at)
		}
	}
	for name, c := range map[string]struct {
		job  *snapshot.Job
		at   time.Duration
		want Return
		due  bool
	}{
		"still time":     {held(), 599 * time.Second, Return{}, false},
		"no place":       {held(), 600 * time.Second, Return{Release: true, Comment: "placement: none (no place within 10m0s)"}, true},
		"bound":          {held(func(j *snapshot.Job) { j.Bound, j.Note = "it asks for features", "a word" }), 0, Return{Release: true, Comment: "a word; placement: none (it asks for features)"}, true},
		"names nodes":    {held(func(j *snapshot.Job) { j.Required = "n7" }), 0, Return{Release: true, Comment: "placement: none (it names its nodes)"}, true},
		"not ours":       {held(func(j *snapshot.Job) { j.Name = "x" }), time.Hour, Return{}, false},
		"placed":         {held(placedAt(noon)), 299 * time.Second, Return{}, false},
		"not started":    {held(placedAt(noon)), 300 * time.Second, Return{AnyNode: true, Comment: "by a person; placement: none (not started on n0 within 5m0s)"}, true},
		"held again":     {held(placedAt(noon), func(j *snapshot.Job) { j.Held, j.Reason = true, "JobHeldUser" }), 300 * time.Second, Return{AnyNode: true, Comment: "by a person; placement: none (not started on n0 within 5m0s)"}, true},
		"impossible":     {held(placedAt(noon), func(j *snapshot.Job) { j.Held, j.Reason = true, "BadConstraints" }), time.Second, Return{Release: true, AnyNode: true, Comment: "by a person; placement: none (impossible on n0 (BadConstraints))"}, true},
		"another's node": {held(placedAt(noon), func(j *snapshot.Job) { j.Required = "n1" }), time.Hour, Return{}, false},
		"another's hold": {held(placedAt(noon), func(j *snapshot.Job) { j.Held, j.Reason = true, "JobHoldMaxRequeue" }), time.Second, Return{}, false},
		"started":        {held(placedAt(noon), func(j *snapshot.Job) { j.State = "RUNNING" }), time.Hour, Return{}, false},
	} {
		got, due := terms.Due(c.job, noon.Add(c.at))
		why := got.Why
		got.Why = ""
		if got != c.want || due != c.due || due && !strings.Contains(got.Comment, why) {
			t.Errorf("%s: %+v %v %q", name, got, due, why)
		}
	}
}

// slurm is what waits, and what was given back.
type slurm struct {
	jobs  []snapshot.Job
	given []int64
	fail  error
}

func (s *slurm) Pending() ([]snapshot.Job, error) { return s.jobs, nil }
func (s *slurm) Give(j *snapshot.Job, _ Return) error {
	s.given = append(s.given, j.ID)
	return s.fail
}

// A promise that is not renewed is kept by whoever finds it, for jobs that came under it; then it ends.
func TestKeep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "advisor", File)
	if n, err := Keep(path, noon, &slurm{jobs: []snapshot.Job{*held()}}); n != 0 || err != nil {
		t.Errorf("without a promise: %d %v", n, err)
	}
	write := func(p Promise) {
		t.Helper()
		p.Terms = terms
		if err := p.Write(path); err != nil {
			t.Fatal(err)
		}
	}
	there := func() bool { _, err := os.Stat(path); return err == nil }
	old := *held(func(j *snapshot.Job) { j.Submit -= 3600 })
	fresh := *held(func(j *snapshot.Job) { j.ID, j.Submit = 2, noon.Unix()+1000 })

	write(Promise{Until: noon.Add(time.Second)})
	s := &slurm{jobs: []snapshot.Job{old, fresh}}
	if n, err := Keep(path, noon, s); n != 0 || err != nil || s.given != nil {
		t.Errorf("while it is renewed: %d %v", n, err)
	}
	if n, err := Keep(path, noon.Add(1200*time.Second), s); n != 1 || err != nil || s.given[0] != 1 || !there() {
		t.Errorf("%d %v, given %v", n, err, s.given)
	}
	s = &slurm{jobs: []snapshot.Job{fresh}}
	if n, err := Keep(path, noon.Add(1600*time.Second), s); n != 1 || err != nil || !there() {
		t.Errorf("a job that came after: %d %v", n, err)
	}
	if n, err := Keep(path, noon.Add(8*24*time.Hour), &slurm{}); n != 0 || err != nil || there() {
		t.Errorf("after the succession: %d %v", n, err)
	}

	write(Promise{Until: noon, Ended: true})
	s = &slurm{jobs: []snapshot.Job{old, fresh}, fail: errors.New("no route")}
	if n, err := Keep(path, noon.Add(time.Hour), s); n != 0 || err == nil || len(s.given) != 1 || !there() {
		t.Errorf("ended, and slurmctld away: %d %v, given %v", n, err, s.given)
	}
	s.fail = nil
	if n, err := Keep(path, noon.Add(time.Hour), s); n != 1 || err != nil || there() {
		t.Errorf("ended: %d %v", n, err)
	}
}

func TestReadRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	for text, want := range map[string]string{
		"{": "unexpected end", `{"schema":2}`: "schema is 2", `{"schema":1,"terms":{"jobNamePrefix":"x"}}`: "above 0",
		`{"schema":1,"terms":{"giveUpSeconds":1,"startSeconds":1}}`: "no jobs are chosen",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "delete the file") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
