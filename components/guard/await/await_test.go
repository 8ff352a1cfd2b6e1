package await_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/guard/await"
)

// A cluster stands for slurmctld: which nodes power up, and how often it was asked.
type cluster struct {
	mu      sync.Mutex
	pending map[string]bool
	err     error
	asked   int
}

func (c *cluster) set(err error, pending ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.pending = err, map[string]bool{}
	for _, node := range pending {
		c.pending[node] = true
	}
}

func (c *cluster) Pending(_ context.Context, nodes []string) (map[string]bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	answer := map[string]bool{}
	for _, node := range nodes {
		answer[node] = c.pending[node]
	}
	return answer, c.err
}

// serve runs a server and returns its socket.
func serve(t *testing.T, c *cluster, patience time.Duration) (*await.Server, string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "await.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &await.Server{Pending: c.Pending, Patience: func() time.Duration { return patience }, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, socket
}

// prolog starts a prolog; the channel is closed when it has ended.
func prolog(socket, hosts string) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		await.Wait(socket, hosts)
		close(ended)
	}()
	return ended
}

func mustEnd(t *testing.T, what string, ended <-chan struct{}) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s still waits", what)
	}
}

func mustWait(t *testing.T, what string, ended <-chan struct{}) {
	t.Helper()
	select {
	case <-ended:
		t.Fatalf("%s does not wait", what)
	case <-time.After(500 * time.Millisecond):
	}
}

func TestWaitsForEveryNode(t *testing.T) {
	c := new(cluster)
	c.set(nil, "w-0", "w-1")
	_, socket := serve(t, c, time.Minute)
	gang := prolog(socket, "w-[0-1]")
	mustWait(t, "a job whose nodes both power up", gang)
	mustEnd(t, "a job on a node that is up, beside it,", prolog(socket, "w-7"))
	c.set(nil, "w-1")
	mustWait(t, "a job with one of two nodes up", gang)
	c.set(nil)
	mustEnd(t, "a job whose nodes are up", gang)
}

// What cannot be known is not a reason to start a job, nor to wait for ever.
func TestErrorsAreWaitedOut(t *testing.T) {
	c := new(cluster)
	c.set(errors.New("slurmctld does not answer"))
	_, socket := serve(t, c, 2*time.Second)
	ended := prolog(socket, "w-0")
	mustWait(t, "a job while slurmctld does not answer", ended)
	mustEnd(t, "a job whose patience is over", ended)
}

func TestReleaseLetsEverybodyGo(t *testing.T) {
	c := new(cluster)
	c.set(nil, "w-0")
	s, socket := serve(t, c, time.Minute)
	before := prolog(socket, "w-0")
	mustWait(t, "a job whose node powers up", before)
	resume := s.Release()
	mustEnd(t, "a job that waited when a reconfigure began", before)
	mustEnd(t, "a job that came during a reconfigure", prolog(socket, "w-0"))
	resume()
	after := prolog(socket, "w-0")
	mustWait(t, "a job after the reconfigure", after)
}

func TestOnlySoManyWait(t *testing.T) {
	c := new(cluster)
	c.set(nil, "w-0")
	_, socket := serve(t, c, time.Minute)
	var waiting []<-chan struct{}
	for range await.Limit {
		waiting = append(waiting, prolog(socket, "w-0"))
	}
	for i, ended := range waiting {
		select {
		case <-ended:
			t.Fatalf("prolog %d does not wait", i)
		case <-time.After(20 * time.Millisecond):
		}
	}
	mustEnd(t, "one more than may wait", prolog(socket, "w-0"))
	c.set(nil)
	for i, ended := range waiting {
		mustEnd(t, fmt.Sprintf("prolog %d", i), ended)
	}
}

// A prolog that is killed gives its place to another.
func TestKilledPrologLeaves(t *testing.T) {
	c := new(cluster)
	c.set(nil, "w-0")
	_, socket := serve(t, c, time.Minute)
	var connections []net.Conn
	for range await.Limit {
		connection, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := connection.Write([]byte("w-0\n")); err != nil {
			t.Fatal(err)
		}
		connections = append(connections, connection)
	}
	time.Sleep(200 * time.Millisecond)
	for _, connection := range connections {
		connection.Close()
	}
	time.Sleep(200 * time.Millisecond)
	mustWait(t, "a job after the others were killed", prolog(socket, "w-0"))
}

func TestNonsenseIsAnsweredAtOnce(t *testing.T) {
	c := new(cluster)
	c.set(nil, "w-0")
	_, socket := serve(t, c, time.Minute)
	for _, hosts := range []string{"", "w-[0", "w-[9-1]"} {
		mustEnd(t, fmt.Sprintf("%q", hosts), prolog(socket, hosts))
	}
	mustEnd(t, "a prolog without a server", prolog(filepath.Join(t.TempDir(), "none.sock"), "w-0"))
}
