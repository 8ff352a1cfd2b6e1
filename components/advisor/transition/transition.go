// Package transition is the record of what happened to jobs beside what was advised: lines of JSON in files that are only
// appended to, each with its schema and a checksum. It writes, reads, checks and exports them; the Observer makes them of
// snapshots. Nothing here advises.
package transition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Schema is the version of Record's JSON that this program writes, and the only one so far.
const Schema = 1

// Event is a step of a job's life.
type Event string

// Events. Seen has the job's features and the advice, Start where Slurm put it, End how it went.
const (
	Seen  Event = "seen"
	Start Event = "start"
	End   Event = "end"
)

// Record is one line. Times are Unix seconds.
type Record struct {
	Schema  int    `json:"schema"`
	Event   Event  `json:"event"`
	At      int64  `json:"at"` // when the observer saw it
	Cluster string `json:"cluster"`
	Job     int64  `json:"job"`
	Submit  int64  `json:"submit"` // with the number, names a job for ever: Slurm's numbers come round again

	Features *Features `json:"features,omitempty"` // seen
	Advice   *Advice   `json:"advice,omitempty"`   // seen

	Nodes   string `json:"nodes,omitempty"`   // start, end
	Started int64  `json:"started,omitempty"` // start, end; 0: it never started

	State string `json:"state,omitempty"` // end
	Exit  string `json:"exit,omitempty"`  // end: the exit status, or the name of the signal
	Ended int64  `json:"ended,omitempty"` // end
}

// Features are what a job asked for.
type Features struct {
	Name         string `json:"name,omitempty"`
	User         string `json:"user,omitempty"`
	Account      string `json:"account,omitempty"`
	Partition    string `json:"partition,omitempty"`
	QOS          string `json:"qos,omitempty"`
	LimitMinutes int64  `json:"limit_minutes,omitempty"`
	TRES         string `json:"tres,omitempty"`
	Tasks        string `json:"tasks,omitempty"`
	Waiting      int    `json:"waiting"` // jobs pending when it was seen
}

// Advice is what the advisor says of the job when it is first seen.
type Advice struct {
	Boost      int     `json:"boost"`
	Advice     int     `json:"advice"`
	Value      float64 `json:"value"`
	Mode       string  `json:"mode"`
	Checkpoint string  `json:"checkpoint"`
	Abstain    string  `json:"abstain,omitempty"`
}

const (
	prefix = "transitions-"
	suffix = ".jsonl"
	// longest bounds a line: what is longer is no record of ours.
	longest = 64 << 10
)

// mark precedes a line's checksum: the CRC-32 (IEEE) of all that is before it.
var mark = []byte(`,"crc":"`)

// encode writes a line, its end included.
func encode(r *Record) ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(text) > longest-32 {
		return nil, fmt.Errorf("a record of %d bytes is too long", len(text))
	}
	text = text[:len(text)-1]
	return fmt.Appendf(text, `%s%08x"}`+"\n", mark, crc32.ChecksumIEEE(text)), nil
}

// Decode reads one line, without its end.
func Decode(line []byte) (*Record, error) {
	i := bytes.LastIndex(line, mark)
	if i < 0 || len(line) != i+len(mark)+10 || string(line[len(line)-2:]) != `"}` {
		return nil, errors.New("the line has no checksum at its end")
	}
	if want := fmt.Sprintf("%08x", crc32.ChecksumIEEE(line[:i])); string(line[i+len(mark):len(line)-2]) != want {
		return nil, fmt.Errorf("the line's checksum is not %s", want)
	}
	var r Record
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, err
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("the line is of schema %d, this program reads %d", r.Schema, Schema)
	}
	if r.Event != Seen && r.Event != Start && r.Event != End {
		return nil, fmt.Errorf("no event is called %q", r.Event)
	}
	return &r, nil
}

// Log appends records to the newest file of a directory and begins another when it is full. It is safe for concurrent use.
type Log struct {
	dir  string
	size int64 // of a file
	keep int   // files; 0: all

	mu      sync.Mutex
	file    *os.File
	written int64
}

// Open opens the log of a directory, which it makes if it is missing. A line that a crash left unfinished is cut off.
func Open(dir string, size int64, keep int) (*Log, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the log's directory: %w", err)
	}
	l := &Log{dir: dir, size: size, keep: keep}
	files, err := Files(dir)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return l, l.begin()
	}
	return l, l.resume(files[len(files)-1])
}

// Files are a log's files, oldest first.
func Files(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, prefix+"*"+suffix))
	if err != nil {
		return nil, fmt.Errorf("list the log's files: %w", err)
	}
	slices.Sort(files)
	return files, nil
}

// resume goes on with a file after its last whole line.
func (l *Log) resume(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	end, err := wholeLines(file)
	if err == nil {
		err = file.Truncate(end)
	}
	if err == nil {
		_, err = file.Seek(end, 0)
	}
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("mend the end of %s: %w", path, err)
	}
	l.file, l.written = file, end
	return nil
}

// wholeLines is the offset after the last line end.
func wholeLines(file *os.File) (int64, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	block := make([]byte, longest)
	for at := info.Size(); at > 0; {
		n := min(int64(len(block)), at)
		if _, err := file.ReadAt(block[:n], at-n); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(block[:n], '\n'); i >= 0 {
			return at - n + int64(i) + 1, nil
		}
		at -= n
	}
	return 0, nil
}

// begin starts a new file and removes the oldest that are too many.
func (l *Log) begin() error {
	var file *os.File
	for {
		var err error
		name := prefix + time.Now().UTC().Format("20060102T150405.000000000") + suffix
		file, err = os.OpenFile(filepath.Join(l.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("begin a file of the log: %w", err)
		}
		break
	}
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file, l.written = file, 0
	if l.keep <= 0 {
		return nil
	}
	files, err := Files(l.dir)
	if err != nil {
		return err
	}
	for ; len(files) > l.keep; files = files[1:] {
		if err := os.Remove(files[0]); err != nil {
			return fmt.Errorf("remove the oldest file of the log: %w", err)
		}
	}
	return nil
}

// Append writes records, all of them on disk when it returns.
func (l *Log) Append(records ...*Record) error {
	if len(records) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var text []byte
	for _, r := range records {
		line, err := encode(r)
		if err != nil {
			return fmt.Errorf("write job %d to the log: %w", r.Job, err)
		}
		text = append(text, line...)
	}
	if l.written > 0 && l.written+int64(len(text)) > l.size {
		if err := l.begin(); err != nil {
			return err
		}
	}
	n, err := l.file.Write(text)
	if err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		// Half a line must not have another one behind it.
		if cut := l.file.Truncate(l.written); cut == nil {
			_, _ = l.file.Seek(l.written, 0)
		} else {
			l.written += int64(n)
		}
		return fmt.Errorf("write to the log: %w", err)
	}
	l.written += int64(n)
	return nil
}

// Close closes the log.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}

// Problem is something wrong with a line.
type Problem struct {
	File string
	Line int
	Why  error
}

func (p Problem) Error() string { return fmt.Sprintf("%s:%d: %v", p.File, p.Line, p.Why) }

// ErrTorn is a last line without an end: a crash, or a writer at work.
var ErrTorn = errors.New("the last line is not finished (a crash, or it is just being written)")

// Read hands every good line to use, in order, and every bad one to bad; either may end it with an error.
func Read(dir string, use func(*Record) error, bad func(Problem) error) error {
	files, err := Files(dir)
	if err != nil {
		return err
	}
	for _, path := range files {
		if err := readFile(path, use, bad); err != nil {
			return err
		}
	}
	return nil
}

func readFile(path string, use func(*Record) error, bad func(Problem) error) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	for number := 1; len(data) > 0; number++ {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		data = rest
		var record *Record
		why := ErrTorn
		if whole {
			record, why = Decode(line)
		}
		if why != nil {
			err = bad(Problem{filepath.Base(path), number, why})
		} else {
			err = use(record)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// terminal are the states in which a job has ended.
func terminal(state string) bool {
	switch state {
	case "PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "REQUEUED", "STOPPED", "SIGNALING", "STAGE_OUT":
		return false
	}
	return !strings.HasPrefix(state, "REQUEUE")
}
