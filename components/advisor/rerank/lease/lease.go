// Package lease keeps the ranks that re-ranking gives to waiting jobs, with the time until which they hold. The ranker writes a
// change here before it makes it in slurmctld, and renews the lease as long as it stands by it; once the lease has run out,
// whoever reads it takes the ranks back. So no rank outlives the ranker, however that ends.
package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"
)

// File is the ledger's name in the advisor's state directory.
const File = "ranks.json"

// schema is the version of the file.
const schema = 1

// Ledger is what is in force, and until when.
type Ledger struct {
	Until time.Time      `json:"until"`
	Jobs  map[int64]Rank `json:"jobs"`
}

// Rank is what a job was given.
type Rank struct {
	// Factor is the job's site factor, in points of priority.
	Factor int `json:"factor"`
	// Comment is the job's administrator comment without the ranker's words in it.
	Comment string `json:"comment,omitempty"`
}

type file struct {
	Schema int `json:"schema"`
	Ledger
}

// Read reads a ledger. Without a file there are no ranks.
func Read(path string) (*Ledger, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Ledger{}, nil
	}
	var f file
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err == nil && f.Schema != schema {
		err = fmt.Errorf("schema is %d, this program reads %d", f.Schema, schema)
	}
	if err != nil {
		return nil, fmt.Errorf("read the ranks in %s: %w; delete the file, and set SiteFactor=0 of the jobs whose AdminComment says %q", path, err, "advisor: rank=")
	}
	return &f.Ledger, nil
}

// Write puts a ledger in the place of the one before, in one step. One without jobs removes the file.
func (l *Ledger) Write(path string) error {
	if len(l.Jobs) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the ranks: %w", err)
		}
		return nil
	}
	data, err := json.Marshal(file{schema, *l})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		// The guard reads and writes it too, in the same pod under the same user.
		err = renameio.WriteFile(path, append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the ranks: %w", err)
	}
	return nil
}

// Ended is what the administrator's comment of a job says whose rank was taken back; it begins as the ranker's own words do, by
// which job_submit.lua tells the change from a person's.
const Ended = "advisor: rank=0 (lease ended)"

// Set gives a job its site factor and its administrator comment; a job that does not wait any more is none of its errors.
type Set func(job int64, factor int, comment string) error

// End takes back all ranks of a ledger whose lease has run out and returns how many. What could not be taken back stays in
// the file, for the next call.
func End(path string, now time.Time, set Set) (ended int, err error) {
	l, err := Read(path)
	if err != nil {
		return 0, err
	}
	if len(l.Jobs) == 0 || now.Before(l.Until) {
		return 0, nil
	}
	var failed []error
	for _, job := range slices.Sorted(maps.Keys(l.Jobs)) {
		comment := Ended
		if before := l.Jobs[job].Comment; before != "" {
			comment = before + "; " + Ended
		}
		if err := set(job, 0, comment); err != nil {
			failed = append(failed, err)
			continue
		}
		delete(l.Jobs, job)
		ended++
	}
	failed = append(failed, l.Write(path))
	return ended, errors.Join(failed...)
}
