// Package custody is what placement promises of held jobs: which ones it takes, and when each goes back to Slurm's own rules, with or
// without a place. The placement controller keeps the promise, and renews it in a file as long as it does; once it is not
// renewed, whoever reads it keeps it in the controller's place (Keep). So no job stays held, or bound to a node, because the
// controller has ended. What was done to a job stands in its administrator comment and nowhere else.
package custody

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/berth-hpc/berth/components/advisor/snapshot"
)

// File is the promise's name in the advisor's state directory.
const File = "placement.json"

const (
	// schema is the version of the file.
	schema = 1
	// Lease is how long a promise holds that is not renewed.
	Lease = time.Minute
	// succession is for how long after the last renewal new jobs are still given back by who succeeds the controller: a controller that
	// is away for longer has been taken away, and held jobs are their users' again.
	succession = 7 * 24 * time.Hour
)

// Terms say which held jobs are placed, and for how long that is tried.
type Terms struct {
	// A job is chosen by the beginning of its name, by its account, by its QOS or by its comment; what is empty chooses none.
	JobNamePrefix string   `json:"jobNamePrefix,omitempty"`
	Accounts      []string `json:"accounts,omitempty"`
	QOS           []string `json:"qos,omitempty"`
	Comments      []string `json:"comments,omitempty"`
	// GiveUpSeconds since its submission a job that has no place is released without one.
	GiveUpSeconds int `json:"giveUpSeconds"`
	// StartSeconds after its placement a job that has not started may run anywhere.
	StartSeconds int `json:"startSeconds"`
}

// Check says what no site means.
func (t *Terms) Check() error {
	if t.GiveUpSeconds <= 0 || t.StartSeconds <= 0 {
		return fmt.Errorf("the times to give up after (%d s) and to start within (%d s) must be above 0", t.GiveUpSeconds, t.StartSeconds)
	}
	if t.JobNamePrefix == "" && len(t.Accounts)+len(t.QOS)+len(t.Comments) == 0 {
		return errors.New("no jobs are chosen: give a prefix of their names, an account, a QOS or a comment")
	}
	return nil
}

func (t *Terms) matches(j *snapshot.Job) bool {
	return t.JobNamePrefix != "" && strings.HasPrefix(j.Name, t.JobNamePrefix) || slices.Contains(t.Accounts, j.Account) && j.Account != "" ||
		slices.Contains(t.QOS, j.QOS) && j.QOS != "" || slices.Contains(t.Comments, j.Comment) && j.Comment != ""
}

// heldByUser is Slurm's reason of a job that its user holds; those that an administrator holds are nobody else's.
const heldByUser = "JobHeldUser"

// Takes says whether a job is placement's to deal with: one job on one node that its user holds, chosen by the terms, and of which
// nothing was decided yet.
func (t *Terms) Takes(j *snapshot.Job) bool {
	return j.Pending() && j.Held && j.Reason == heldByUser && j.Tasks == "" && oneNode(j.TRES) && !strings.Contains(j.Note, word) && t.matches(j)
}

// oneNode says whether a job of these resources asks for one node.
func oneNode(tres string) bool { return slices.Contains(strings.Split(tres, ","), "node=1") }

// Unplaceable says why no place can be chosen for a job that Takes; "" where one can.
func Unplaceable(j *snapshot.Job) string {
	if j.Required != "" {
		return "it names its nodes"
	}
	return j.Bound
}

// Return is how a job goes back to Slurm's own rules.
type Return struct {
	// Release ends its hold, AnyNode lets it run anywhere.
	Release, AnyNode bool
	// Comment is its new administrator comment, Why the part of it that is of this.
	Comment, Why string
}

// Back releases a job without a place.
func Back(j *snapshot.Job, why string) Return {
	return Return{Release: true, Comment: join(j.Note, None(why)), Why: why}
}

// Due says whether a job is to go back now, and how.
func (t *Terms) Due(j *snapshot.Job, now time.Time) (Return, bool) {
	if t.Takes(j) {
		why := Unplaceable(j)
		if limit := seconds(t.GiveUpSeconds); why == "" && now.Sub(time.Unix(j.Submit, 0)) >= limit {
			why = fmt.Sprintf("no place within %s", limit)
		}
		if why == "" {
			return Return{}, false
		}
		return Back(j, why), true
	}
	node, at := placed(j.Note)
	if node == "" || !j.Pending() || j.RequiredNode() != node {
		return Return{}, false
	}
	limit := seconds(t.StartSeconds)
	why := fmt.Sprintf("not started on %s within %s", node, limit)
	// slurmctld holds a job that it finds impossible.
	impossible := j.Held && j.Reason == "BadConstraints"
	if impossible {
		why = fmt.Sprintf("impossible on %s (%s)", node, j.Reason)
	} else if now.Sub(at) < limit {
		return Return{}, false
	}
	return Return{Release: impossible, AnyNode: true, Comment: join(without(j.Note), None(why)), Why: why}, true
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// What placement writes into an administrator's comment; other parts, between "; ", are other people's.
const (
	word     = "placement: "
	nodeWord = word + "node="
)

// Placed is the administrator comment of a job that is given a place.
func Placed(j *snapshot.Job, node, checkpoint string, at time.Time) string {
	return join(j.Note, fmt.Sprintf("%s%s at=%s checkpoint=%s", nodeWord, node, at.UTC().Format(time.RFC3339), checkpoint))
}

// None is the part of an administrator comment that says why a job has no place.
func None(why string) string { return word + "none (" + strings.ReplaceAll(why, "; ", ", ") + ")" }

// placed reads where and when a job was placed; "" if it was not, or not by these words.
func placed(note string) (node string, at time.Time) {
	for part := range strings.SplitSeq(note, "; ") {
		text, is := strings.CutPrefix(part, nodeWord)
		words := strings.Fields(text)
		if !is || len(words) < 2 {
			continue
		}
		if when, has := strings.CutPrefix(words[1], "at="); has {
			if at, err := time.Parse(time.RFC3339, when); err == nil {
				return words[0], at
			}
		}
	}
	return "", time.Time{}
}

// without is the comment without where a job was placed.
func without(note string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(note, "; "), func(part string) bool { return part == "" || strings.HasPrefix(part, nodeWord) }), "; ")
}

func join(note, part string) string {
	if note == "" {
		return part
	}
	return note + "; " + part
}

// Promise is the file: the terms, and until when their controller is believed to be there.
type Promise struct {
	Until time.Time `json:"until"`
	// Ended says that the site ended placement at Until: jobs that came later are their users' own.
	Ended bool  `json:"ended,omitempty"`
	Terms Terms `json:"terms"`
}

type file struct {
	Schema int `json:"schema"`
	Promise
}

// Read reads the promise; nil where there is none.
func Read(path string) (*Promise, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var f file
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err == nil && f.Schema != schema {
		err = fmt.Errorf("schema is %d, this program reads %d", f.Schema, schema)
	}
	if err == nil {
		err = f.Terms.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("read what placement promises in %s: %w; delete the file, and release the held jobs that it should have placed", path, err)
	}
	return &f.Promise, nil
}

// Write puts the promise in the place of the one before, in one step.
func (p *Promise) Write(path string) error {
	data, err := json.Marshal(file{schema, *p})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = renameio.WriteFile(path, append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write what placement promises: %w", err)
	}
	return nil
}

// Slurm is what Keep asks and changes.
type Slurm interface {
	// Pending lists the jobs that wait.
	Pending() ([]snapshot.Job, error)
	// Give gives a job back; one that does not wait any more is none of its errors.
	Give(job *snapshot.Job, how Return) error
}

// Keep keeps a promise that its controller has not renewed: it gives back what is due, and says how many. It does nothing while the
// promise is renewed.
func Keep(path string, now time.Time, slurm Slurm) (given int, err error) {
	p, err := Read(path)
	if err != nil || p == nil || now.Before(p.Until) {
		return 0, err
	}
	last := p.Until
	if !p.Ended {
		last = last.Add(succession)
	}
	jobs, err := slurm.Pending()
	if err != nil {
		return 0, err
	}
	left := 0
	var failed []error
	for i := range jobs {
		j := &jobs[i]
		if j.Submit > last.Unix() {
			continue
		}
		how, due := p.Terms.Due(j, now)
		if node, _ := placed(j.Note); !due {
			if p.Terms.Takes(j) || node != "" && j.RequiredNode() == node {
				left++
			}
			continue
		}
		if err := slurm.Give(j, how); err != nil {
			failed = append(failed, err)
			left++
			continue
		}
		given++
	}
	if left == 0 && now.After(last) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, fmt.Errorf("remove what placement promised: %w", err))
		}
	}
	return given, errors.Join(failed...)
}
