package command

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/components/advisor/snapshot"
)

//go:embed reference.py
var reference string

// Size of the snapshot and load of the benchmark, and its goals.
const (
	benchJobs, benchNodes = 10_000, 1_000
	openLoop              = 1_000 // requests a second
	goalP99               = 300 * time.Microsecond
	goalRate              = 20_000.0
)

func newServeBench() *cobra.Command {
	var rounds int
	var seconds float64
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure the service beside the same policy served by Python",
		Long: `bench starts the service and a Python server of the same policy, each a process of its own on a unix socket with 10,000 jobs on 1,000
nodes, and loads them in turn: 1,000 requests a second, each on a connection of its own as slurmctld makes them, whatever the
answers take; and as many as eight clients can get on connections that stay. It prints lines of make bench.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return serveBench(c.Context(), c.OutOrStdout(), rounds, time.Duration(seconds*float64(time.Second)))
		},
	}
	c.Flags().IntVar(&rounds, "rounds", 5, "rounds; the figures are medians of them")
	c.Flags().Float64Var(&seconds, "seconds", 3, "length of each measurement")
	return c
}

// server is a process that serves /decide on a socket. What it logs is dropped.
type server struct {
	socket  string
	command *exec.Cmd
}

func serveBench(ctx context.Context, out io.Writer, rounds int, length time.Duration) error {
	dir, err := os.MkdirTemp("", "advisor-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := json.Marshal(benchSnapshot())
	if err != nil {
		return err
	}
	for name, content := range map[string]string{
		"snapshot.json": string(text), "reference.py": reference,
		"settings.json": `{"mode":"shadow","topology":"","maxBoost":1000,"snapshotTtlSeconds":3600,"budgetMilliseconds":1000,"decisionsPerSecond":1000000}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	ours := &server{socket: dir + "/a", command: exec.CommandContext(ctx, self, "serve", "--socket", dir+"/a", "--settings", dir+"/settings.json")}
	python := &server{socket: dir + "/p", command: exec.CommandContext(ctx, "python3", dir+"/reference.py", dir+"/p", dir+"/snapshot.json")}
	for _, s := range []*server{ours, python} {
		if err := s.start(); err != nil {
			return err
		}
		defer s.stop()
	}
	if err := ours.give(text); err != nil {
		return err
	}
	var p99, rate, pythonP99, pythonRate []float64
	for range rounds {
		for _, of := range []struct {
			s         *server
			p99, rate *[]float64
		}{{ours, &p99, &rate}, {python, &pythonP99, &pythonRate}} {
			latency, err := of.s.open(length)
			if err != nil {
				return err
			}
			*of.p99 = append(*of.p99, float64(latency)/float64(time.Microsecond))
			n, err := of.s.saturate(length)
			if err != nil {
				return err
			}
			*of.rate = append(*of.rate, n)
		}
	}
	for _, s := range [][]float64{p99, rate, pythonP99, pythonRate} {
		slices.Sort(s)
	}
	goal := float64(goalP99) / float64(time.Microsecond)
	// Of five rounds the second and the fourth must agree.
	inner := func(of []float64) (low, high float64) { return of[min(1, len(of)-1)], of[max(len(of)-2, 0)] }
	low, high := inner(p99)
	_, err = fmt.Fprintf(out, "advisor-decide-p99 %.0f us %.2f %.0f %s\n", p99[len(p99)/2], p99[len(p99)/2]/pythonP99[len(pythonP99)/2], goal, verdict(high <= goal, low > goal))
	if err != nil {
		return err
	}
	low, high = inner(rate)
	_, err = fmt.Fprintf(out, "advisor-decisions-per-second %.0f 1/s %.2f %.0f %s\n", rate[len(rate)/2], rate[len(rate)/2]/pythonRate[len(pythonRate)/2], goalRate, verdict(low >= goalRate, high < goalRate))
	return err
}

func verdict(ok, short bool) string {
	switch {
	case ok:
		return "ok"
	case short:
		return "short"
	}
	return "undecided"
}

func benchSnapshot() *snapshot.Delta {
	now := time.Now()
	d := &snapshot.Delta{Schema: snapshot.Schema, Cluster: "bench", Version: 1, TakenAt: now}
	for i := range benchNodes {
		d.Nodes = append(d.Nodes, snapshot.Node{Name: fmt.Sprintf("n%04d", i), State: []string{"MIXED"}, CPUs: 64, AllocCPUs: i % 64, MemoryMiB: 1 << 18, Gres: "gpu:a100:8", GresUsed: fmt.Sprintf("gpu:a100:%d(IDX:0)", i%9)})
	}
	for i := range benchJobs {
		d.Jobs = append(d.Jobs, snapshot.Job{
			ID: int64(i + 1), State: "PENDING", User: fmt.Sprint("u", i%200), Submit: now.Unix() - int64(i), LimitMinutes: int64(i*7919%1440 + 1),
			TRES: fmt.Sprintf("cpu=%d,mem=8G,node=1", i%32+1),
		})
	}
	return d
}

func (s *server) start() error {
	if err := s.command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.command.Path, err)
	}
	for range 400 {
		if conn, err := net.Dial("unix", s.socket); err == nil {
			return conn.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.stop()
	return fmt.Errorf("%s does not serve after 20 s", s.command.Path)
}

func (s *server) stop() {
	_ = s.command.Process.Kill()
	_ = s.command.Wait()
}

// give posts the snapshot.
func (s *server) give(text []byte) error {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.socket)
	}}}
	response, err := client.Post("http://advisor/snapshot", "application/json", strings.NewReader(string(text)))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the snapshot is refused: %s", response.Status)
	}
	return nil
}

const benchJob = `{"name":"train","partition":"gpu","account":"vision","user_id":2001,"limit_minutes":90,"cpus":4,"nodes":1,"tres_per_node":"gres/gpu:1"}`

var (
	benchOnce = []byte(fmt.Sprintf("POST /decide HTTP/1.1\r\nHost: advisor\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(benchJob), benchJob))
	benchMany = []byte(fmt.Sprintf("POST /decide HTTP/1.1\r\nHost: advisor\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(benchJob), benchJob))
)

// open sends requests at their times, each on its own connection, and gives the 99th percentile from the time at which one was due to
// the end of its answer.
func (s *server) open(length time.Duration) (time.Duration, error) {
	count := int(length.Seconds() * openLoop)
	took := make([]time.Duration, count)
	var failed atomic.Int64
	var why atomic.Pointer[error]
	var all sync.WaitGroup
	begin := time.Now()
	for i := range count {
		due := begin.Add(time.Duration(i) * time.Second / openLoop)
		time.Sleep(time.Until(due))
		all.Go(func() {
			if err := once(s.socket); err != nil {
				failed.Add(1)
				why.Store(&err)
			}
			took[i] = time.Since(due)
		})
	}
	all.Wait()
	if n := failed.Load(); n > int64(count/100) {
		return 0, fmt.Errorf("%s: %d of %d requests failed, the last with: %w", s.command.Path, n, count, *why.Load())
	}
	slices.Sort(took)
	return took[count*99/100], nil
}

func once(socket string) error {
	conn, err := net.Dial("unix", socket)
	// A full queue of connections counts as the wait that it is.
	for range 10_000 {
		if !errors.Is(err, syscall.EAGAIN) {
			break
		}
		time.Sleep(time.Millisecond)
		conn, err = net.Dial("unix", socket)
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(benchOnce); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if err == nil && !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
		err = fmt.Errorf("%.100s", answer)
	}
	return err
}

// saturate asks on eight connections that stay, one question after the other on each, and gives the answers a second.
func (s *server) saturate(length time.Duration) (float64, error) {
	var answers atomic.Int64
	errs := make(chan error, 8)
	end := time.Now().Add(length)
	for range 8 {
		go func() {
			conn, err := net.Dial("unix", s.socket)
			if err != nil {
				errs <- err
				return
			}
			defer conn.Close()
			reader := bufio.NewReader(conn)
			for time.Now().Before(end) {
				if _, err = conn.Write(benchMany); err != nil {
					break
				}
				var response *http.Response
				if response, err = http.ReadResponse(reader, nil); err != nil {
					break
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				answers.Add(1)
			}
			errs <- err
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			return 0, err
		}
	}
	return float64(answers.Load()) / length.Seconds(), nil
}
