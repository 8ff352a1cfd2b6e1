package backup

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/renderer/site"
)

const dump = "CREATE DATABASE x;\nCREATE TABLE `acct_table` (\n);\nINSERT INTO `acct_table` VALUES (1);\nCREATE TABLE `qos_table` (\n);\n-- Dump completed on 2026-11-02 10:00:00\n"

// stateTar is a tar of files; a name that ends in "→ x" is a link to x.
func stateTar(t *testing.T, names ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range names {
		header := &tar.Header{Name: name, Mode: 0o600, Size: int64(len(name)), Typeflag: tar.TypeReg}
		if from, to, link := strings.Cut(name, " → "); link {
			header = &tar.Header{Name: from, Linkname: to, Typeflag: tar.TypeSymlink}
		} else if strings.HasSuffix(name, "/") {
			header = &tar.Header{Name: name, Mode: 0o700, Typeflag: tar.TypeDir}
		}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func wholeState(t *testing.T) []byte {
	return stateTar(t, "state/", "state/clustername", "state/job_state", "conf/", "conf/1e1c/", "conf/1e1c/slurm.conf", "conf/current → 1e1c", "advisor/", "advisor/log")
}

// made is a backup of the parts.
func made(state []byte, sql string) ([]byte, error) {
	var out bytes.Buffer
	w := newWriter(&out)
	for name, data := range map[string][]byte{statePart: state, databasePart: []byte(sql)} {
		err := w.part(name, func(to io.Writer) error {
			_, err := to.Write(data)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	m := &Manifest{Format: format, Site: "lab", Cluster: "lab", Slurm: "24.11.5", Jobs: map[string]int{"RUNNING": 2, "PENDING": 40}}
	err := w.close(m)
	return out.Bytes(), err
}

// What is not whole is no backup: neither when it is made nor when it is read.
func TestWhole(t *testing.T) {
	good, err := made(wholeState(t), dump)
	if err != nil {
		t.Fatal(err)
	}
	a, err := Open(bytes.NewReader(good), int64(len(good)))
	if err != nil || a.Tables != 2 || a.Queue() != "40 PENDING, 2 RUNNING" || len(a.Parts) != 2 {
		t.Fatalf("%+v, %v", a, err)
	}
	if _, err := made(wholeState(t), dump[:len(dump)-45]); err == nil || !strings.Contains(err.Error(), "database.sql is not whole: the dump does not end") {
		t.Errorf("a dump that was cut off: %v", err)
	}
	// Longer than what is read at once, with the last line after it.
	if _, err := made(wholeState(t), strings.Replace(dump, "(1)", "('"+strings.Repeat("x", 3<<20)+"')", 1)); err != nil {
		t.Errorf("a long line: %v", err)
	}
	whole := wholeState(t)
	for want, state := range map[string][]byte{
		"would lie outside":             stateTar(t, "state/clustername", "../x"),
		"leads to /etc/shadow":          stateTar(t, "state/clustername", "conf/current → /etc/shadow"),
		"leads to ../../x":              stateTar(t, "state/clustername", "conf/current → ../../x"),
		"there is no state/clustername": stateTar(t, "state/job_state"),
		"unexpected EOF":                whole[:700],
	} {
		if _, err := made(state, dump); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for cut := 0; cut < len(good); cut += 97 {
		if _, err := Open(bytes.NewReader(good[:cut]), int64(cut)); err == nil {
			t.Errorf("a backup of %d bytes of %d was taken", cut, len(good))
		}
	}
	// A byte in the data of a part: its checksum.
	bad := bytes.Clone(good)
	bad[bytes.Index(bad, []byte(databasePart))+len(databasePart)+20] ^= 1
	if _, err := Open(bytes.NewReader(bad), int64(len(bad))); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a changed byte: %v", err)
	}
	// A part that somebody replaced.
	var other bytes.Buffer
	z := zip.NewWriter(&other)
	for _, entry := range a.zip.File {
		to, _ := z.Create(entry.Name)
		from, _ := entry.Open()
		text, _ := io.ReadAll(from)
		_, _ = to.Write(bytes.ReplaceAll(text, []byte("VALUES (1)"), []byte("VALUES (2)")))
	}
	_ = z.Close()
	if _, err := Open(bytes.NewReader(other.Bytes()), int64(other.Len())); err == nil || !strings.Contains(err.Error(), "database.sql is not what manifest.json says") {
		t.Errorf("a replaced part: %v", err)
	}
}

func labSite() *site.Site {
	s := &site.Site{Name: "lab"}
	s.Cluster.Name, s.Slurm.Version = "lab", "24.11"
	s.Namespaces.Slurm, s.Namespaces.Flux = "slurm", "flux-system"
	return s
}

func archive(t *testing.T) *Archive {
	t.Helper()
	data, err := made(wholeState(t), dump)
	if err != nil {
		t.Fatal(err)
	}
	a, err := Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A backup of another cluster or release is refused before anything stops.
func TestRefused(t *testing.T) {
	for want, change := range map[string]func(*Archive, *site.Site){
		"the backup is of cluster lab (site lab), site lab is cluster other":                 func(_ *Archive, s *site.Site) { s.Cluster.Name = "other" },
		`the backup is of Slurm 24.11.5, site lab is at 26.05: push slurm: version: "24.11"`: func(_ *Archive, s *site.Site) { s.Slurm.Version = "26.05" },
		"the backup is of Slurm 26.05.1, site lab is at 24.11":                               func(a *Archive, _ *site.Site) { a.Slurm = "26.05.1" },
	} {
		w := newWorld(t)
		change(w.Archive, w.Site)
		if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) || len(w.did) > 0 {
			t.Errorf("%v after %v, want %s", err, w.did, want)
		}
	}
}

// world is a cluster of two folders, whose containers run the scripts here. MariaDB's part is played: its script is held against a
// real one in another test.
type world struct {
	Restoration
	t   *testing.T
	did []string
	// breaks names the step that fails, and how.
	breaks map[string]error
}

func newWorld(t *testing.T) *world {
	dir := t.TempDir()
	w := &world{t: t, breaks: map[string]error{}}
	w.Restoration = Restoration{Site: labSite(), Archive: archive(t), Services: w, Paths: Paths{State: dir + "/state", Database: dir + "/database"}, Patience: time.Minute, Say: t.Logf}
	w.Exec = w.exec
	w.put(w.Paths.State, "state/clustername", "before")
	w.put(w.Paths.State, "state/only-before", "before")
	w.put(w.Paths.State, "advisor/log", "before")
	w.put(w.Paths.Database, "data/table", "before")
	return w
}

func (w *world) put(volume, name, text string) {
	w.t.Helper()
	path := filepath.Join(volume, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		w.t.Fatal(err)
	}
}

// has is what is on the volumes.
func (w *world) has() string {
	w.t.Helper()
	out, err := exec.Command("sh", "-c", `cd "$1" && for f in $(find . -type f | sort); do echo "$f:$(cat "$f")"; done`, "has", filepath.Dir(w.Paths.State)).Output()
	if err != nil {
		w.t.Fatal(err)
	}
	return string(out)
}

func (w *world) step(name string) error {
	w.did = append(w.did, name)
	return w.breaks[name]
}

func (w *world) Stop(context.Context) error    { return w.step("stop") }
func (w *world) Stopped(context.Context) error { return w.step("stopped") }
func (w *world) Close(context.Context) error   { return w.step("close") }
func (w *world) Start(ctx context.Context) error {
	return errors.Join(w.step("start"), ctx.Err())
}
func (w *world) Open(context.Context) (Container, Container, error) {
	return Container{"state", "c"}, Container{"database", "c"}, w.step("open")
}

func (w *world) exec(ctx context.Context, at Container, stdin io.Reader, stdout io.Writer, argv ...string) error {
	switch {
	case argv[0] == "slurmctld":
		_, _ = io.WriteString(stdout, "slurm-wlm 24.11.9\n")
		return w.step("version")
	case len(argv) > 4 && argv[3] == "put-database":
		if err := w.step("put-database"); err != nil {
			return err
		}
		text, err := io.ReadAll(stdin)
		if err != nil || !strings.HasPrefix(string(text), dump) {
			w.t.Errorf("the database gets %q, %v", text, err)
		}
		w.put(argv[4], ".restored/data/table", "restored")
		_, _ = io.WriteString(stdout, "whole\t2\n")
		return nil
	case argv[0] == "sh":
		name := argv[3] + " " + at.Pod
		if argv[3] == "switch" {
			name += " " + argv[5]
		}
		if err := w.step(name); err != nil {
			return err
		}
	}
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	command.Stdin, command.Stdout = stdin, stdout
	var stderr bytes.Buffer
	command.Stderr = &stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, stderr.String())
	}
	return nil
}

const restored = `./database/data/table:restored
./state/advisor/log:before
./state/conf/1e1c/slurm.conf:conf/1e1c/slurm.conf
./state/state/clustername:state/clustername
./state/state/job_state:state/job_state
`

// All is replaced, but for the advisor's record; nothing else is left behind.
func TestRestored(t *testing.T) {
	w := newWorld(t)
	if err := w.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(w.did, ", "); got != "stop, open, version, put-state state, put-database, stopped, switch state there, switch database there, close, start" {
		t.Errorf("did %s", got)
	}
	if got := w.has(); got != restored {
		t.Errorf("has\n%s", got)
	}
	if target, err := os.Readlink(w.Paths.State + "/conf/current"); err != nil || target != "1e1c" {
		t.Errorf("conf/current leads to %s, %v", target, err)
	}
}

// Whatever fails before the data's place changes hands, or while it does, leaves the data as they were, and starts all again. Run
// once more, it succeeds.
func TestNeverHalf(t *testing.T) {
	for _, step := range []string{"stop", "open", "version", "put-state state", "put-database", "stopped", "switch state there", "switch database there"} {
		w := newWorld(t)
		before := w.has()
		w.breaks[step] = errors.New("the network is gone")
		err := w.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "nothing was restored, all is as it was: ") || !strings.Contains(err.Error(), "the network is gone") {
			t.Errorf("%s: %v", step, err)
		}
		if got := w.has(); got != before {
			t.Errorf("%s breaks: has\n%s", step, got)
		}
		if last := w.did[len(w.did)-2:]; last[0] != "close" || last[1] != "start" {
			t.Errorf("%s breaks: did %v", step, w.did)
		}
		delete(w.breaks, step)
		if err := w.Run(t.Context()); err != nil || w.has() != restored {
			t.Errorf("%s broke once; then: %v\n%s", step, err, w.has())
		}
	}
}

// Interrupted, it still starts what it stopped.
func TestInterrupted(t *testing.T) {
	w := newWorld(t)
	before := w.has()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(ctx); err == nil || !strings.Contains(err.Error(), "all is as it was") || w.has() != before || w.did[len(w.did)-1] != "start" {
		t.Errorf("%v after %v", err, w.did)
	}
	// What was there before stays where the restored does not start.
	w.breaks["start"] = errors.New("slurm-controller is not ready")
	if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "the backup is in its place, but: slurm-controller is not ready; what was there before lies in") || !strings.Contains(w.has(), ".before/data/table:before") {
		t.Errorf("%v\n%s", err, w.has())
	}
}

// The copy of a state that changes has each file whole, under its name, and leaves out what is being written.
func TestCopyState(t *testing.T) {
	volume := t.TempDir()
	w := &world{t: t}
	w.put(volume, "state/clustername", "lab|1")
	w.put(volume, "state/job_state.new", "half")
	w.put(volume, "state/job_state.old", "old")
	w.put(volume, "state/hash.1/job.1/script", "#!/bin/sh")
	w.put(volume, "conf/1e1c/slurm.conf", "conf")
	w.put(volume, "lost+found/x", "no part of it")
	copied := make(chan error, 1)
	var out bytes.Buffer
	go func() {
		command := exec.Command("sh", "-c", script("copy-state"), "copy-state", volume, "0")
		command.Stdout, command.Stderr = &out, os.Stderr
		copied <- command.Run()
	}()
	// slurmctld is between two moves: job_state has no name.
	select {
	case err := <-copied:
		t.Fatalf("without job_state: %v", err)
	case <-time.After(700 * time.Millisecond):
	}
	if err := os.Rename(volume+"/state/job_state.new", volume+"/state/job_state"); err != nil {
		t.Fatal(err)
	}
	if err := <-copied; err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(&out); ; {
		header, err := r.Next()
		if err != nil {
			break
		}
		if header.Typeflag == tar.TypeReg {
			names = append(names, header.Name)
		}
	}
	if got, want := strings.Join(names, " "), "state/clustername state/hash.1/job.1/script state/job_state state/job_state.old conf/1e1c/slurm.conf"; !sameWords(got, want) {
		t.Errorf("copied %s", got)
	}
	if left, _ := filepath.Glob(volume + "/.*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func sameWords(a, b string) bool {
	count := map[string]int{}
	for word := range strings.FieldsSeq(a) {
		count[word]++
	}
	for word := range strings.FieldsSeq(b) {
		count[word]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// A backup waits until slurmdbd has been told all, or says that it has not.
func TestAccounted(t *testing.T) {
	queue := 3
	s := &Source{Patience: 5 * time.Second, Exec: func(_ context.Context, _ Container, _ io.Reader, stdout io.Writer, argv ...string) error {
		fmt.Fprintf(stdout, "*****\nServer thread count:  3\nDBD Agent queue size: %d\n", queue)
		queue--
		return nil
	}}
	if err := s.accounted(t.Context()); err != nil || queue != -1 {
		t.Errorf("%v, %d", err, queue)
	}
	queue, s.Patience = 1000, 0
	if err := s.accounted(t.Context()); err == nil || !strings.Contains(err.Error(), "1000 messages for slurmdbd that it could not deliver") {
		t.Error(err)
	}
	if _, err := agentQueue("nothing"); err == nil {
		t.Error("words that are no sdiag were taken for it")
	}
}
