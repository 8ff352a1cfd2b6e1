package transition

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/berth-hpc/berth/components/advisor/snapshot"
)

func open(t testing.TB, dir string, size int64, keep int) *Log {
	t.Helper()
	l, err := Open(dir, size, keep)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func record(job int64) *Record {
	return &Record{Schema: Schema, Event: Seen, At: 100, Cluster: "lab", Job: job, Submit: 50, Features: &Features{Name: "train\n\"x\"", Waiting: 3}}
}

// jobs are the good lines' jobs, and the problems.
func jobs(t testing.TB, dir string) (string, []Problem) {
	t.Helper()
	var out []string
	var problems []Problem
	err := Read(dir, func(r *Record) error { out = append(out, fmt.Sprint(r.Job)); return nil }, func(p Problem) error { problems = append(problems, p); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, " "), problems
}

// However a crash cuts the file, what was whole stays, the rest is cut off, and writing goes on behind it.
func TestCrashAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, 1<<20, 0)
	for job := range int64(3) {
		if err := l.Append(record(job + 1)); err != nil {
			t.Fatal(err)
		}
	}
	files, _ := Files(dir)
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	ends := []int{0}
	for i, c := range whole {
		if c == '\n' {
			ends = append(ends, i+1)
		}
	}
	for cut := range len(whole) + 1 {
		crashed := t.TempDir()
		if err := os.WriteFile(filepath.Join(crashed, filepath.Base(files[0])), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		want := ""
		for n, end := range ends {
			if cut >= end {
				want = strings.Join(strings.Fields("1 2 3")[:n], " ")
			}
		}
		if got, _ := jobs(t, crashed); got != want {
			t.Fatalf("cut at %d: read %q, want %q", cut, got, want)
		}
		again, err := Open(crashed, 1<<20, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Append(record(9)); err != nil {
			t.Fatal(err)
		}
		again.Close()
		if got, problems := jobs(t, crashed); got != strings.TrimSpace(want+" 9") || len(problems) > 0 {
			t.Fatalf("cut at %d, then written to: %q %v", cut, got, problems)
		}
	}
}

// A changed byte anywhere is found.
func TestChecksum(t *testing.T) {
	line, err := encode(record(7))
	if err != nil {
		t.Fatal(err)
	}
	line = bytes.TrimSuffix(line, []byte("\n"))
	if r, err := Decode(line); err != nil || r.Job != 7 || r.Features.Name != "train\n\"x\"" {
		t.Fatalf("%+v %v", r, err)
	}
	for i := range line {
		bad := bytes.Clone(line)
		bad[i] ^= 1
		if _, err := Decode(bad); err == nil {
			t.Errorf("byte %d of %s changed unseen", i, line)
		}
	}
}

// Files are begun anew when they are full, and the oldest go.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, 600, 3)
	for job := range int64(20) {
		if err := l.Append(record(job)); err != nil {
			t.Fatal(err)
		}
	}
	files, _ := Files(dir)
	if len(files) != 3 {
		t.Fatalf("%d files", len(files))
	}
	for _, file := range files {
		if info, _ := os.Stat(file); info.Size() > 600 {
			t.Errorf("%s has %d bytes", file, info.Size())
		}
	}
	if got, problems := jobs(t, dir); !strings.HasSuffix(got, "17 18 19") || len(problems) > 0 {
		t.Errorf("%s %v", got, problems)
	}
}

func events(t testing.TB, dir string) string {
	t.Helper()
	var out []string
	if err := Read(dir, func(r *Record) error {
		text := fmt.Sprintf("%d:%s", r.Job, r.Event)
		if r.Event == End {
			text += ":" + r.State
		}
		if r.Advice != nil {
			text += fmt.Sprintf(":%d", r.Advice.Advice)
		}
		out = append(out, text)
		return nil
	}, func(p Problem) error { return p }); err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, " ")
}

// Each job's life is written once, whatever is looked at twice and whoever restarts between.
func TestObserver(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(10_000, 0)
	var o *Observer
	restart := func() {
		t.Helper()
		o = &Observer{Log: open(t, dir, 1<<20, 0), Errors: slog.New(slog.DiscardHandler), Advise: func(*snapshot.Job) Advice { return Advice{Advice: 77, Mode: "shadow"} }}
		if err := o.Restore(); err != nil {
			t.Fatal(err)
		}
	}
	restart()
	see := func(jobs ...snapshot.Job) {
		now = now.Add(10 * time.Second)
		o.Observe(&snapshot.Delta{Cluster: "lab", TakenAt: now, Jobs: jobs})
	}
	waits := snapshot.Job{ID: 1, State: "PENDING", Submit: 9_990, Name: "train"}
	runs := snapshot.Job{ID: 1, State: "RUNNING", Submit: 9_990, Start: 10_015, Nodes: "n0"}
	done := snapshot.Job{ID: 1, State: "COMPLETED", Submit: 9_990, Start: 10_015, End: 10_035, Nodes: "n0", Exit: "0"}
	see(waits)
	see(waits, snapshot.Job{ID: 2, State: "PENDING", Submit: 9_995})
	see(runs)
	restart()
	see(runs, snapshot.Job{ID: 2, State: "CANCELLED", Submit: 9_995, End: 10_030})
	see(done)
	see(done)
	see(snapshot.Job{ID: 3, State: "COMPLETED", Submit: 10_040, Start: 10_041, End: 10_050, Nodes: "n1"}) // between two looks
	see(snapshot.Job{ID: 4, State: "RUNNING", Submit: 10_040, Start: 10_041, Nodes: "n1"})
	o.Observe(&snapshot.Delta{Cluster: "lab", TakenAt: now, Gone: []int64{1, 4}})
	want := "1:seen:77 2:seen:77 1:start 2:end:CANCELLED 1:end:COMPLETED 3:seen 3:start 3:end:COMPLETED 4:seen 4:start 4:end:UNKNOWN"
	if got := events(t, dir); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}

	rows, err := Rows(dir, func(p Problem) error { return p })
	if err != nil || len(rows) != 4 {
		t.Fatal(len(rows), err)
	}
	if r := rows[0]; r.Wait != 25 || r.JCT != 45 || r.Name != "train" || r.Advice != 77 || r.Exit != "0" {
		t.Errorf("%+v", r)
	}
	if r := rows[1]; r.Wait != -1 || r.JCT != 35 || r.State != "CANCELLED" {
		t.Errorf("%+v", r)
	}
	if s := Summarize(rows); s.Jobs != 4 || s.Started != 3 || s.Ended != 4 || s.Advised != 2 || s.Wait[0] != 1 {
		t.Errorf("%+v", s)
	}
	var file bytes.Buffer
	if err := Export(&file, rows); err != nil {
		t.Fatal(err)
	}
	back, err := parquet.Read[Row](bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil || len(back) != len(rows) || back[0] != rows[0] {
		t.Errorf("%v %+v", err, back)
	}
}

// FuzzLog: no file breaks the reader, and what it takes was written by the writer.
func FuzzLog(f *testing.F) {
	line, err := encode(record(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(line)
	f.Add([]byte("{}\n\n" + `{"schema":1,"crc":"00000000"}` + "\n"))
	f.Add(line[:20])
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, prefix+"1"+suffix)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		lines := 0
		if err := Read(dir, func(*Record) error { lines++; return nil }, func(p Problem) error {
			if p.Why == nil || p.Line < 1 {
				return errors.New("a problem without a reason")
			}
			lines++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		l, err := Open(dir, 1<<20, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := l.Append(record(2)); err != nil {
			t.Fatal(err)
		}
		last := int64(0)
		_ = Read(dir, func(r *Record) error { last = r.Job; return nil }, func(Problem) error { return nil })
		if last != 2 {
			t.Fatal("a record written behind it can't be read")
		}
	})
}
