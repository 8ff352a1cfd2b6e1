// Package await lets a job start as soon as its nodes are up.
//
// slurmctld looks at jobs whose nodes power up every 30 s only, but it goes on at once when a job's PrologSlurmctld ends.
// So the prolog waits: a small program asks the Server, beside slurmctld, on a local socket, and the Server asks slurmctld
// one question for all that wait. Many waiting prologs wedge slurmctld (with 150 a reconfigure times out, with 60 it does
// not), so at most Limit wait; the others return at once and are left to slurmctld's own check.
package await

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/berth-hpc/berth/components/slurmrest/hostlist"
)

const (
	// Limit is how many prologs may wait at once.
	Limit = 50
	// pace is how long after one question the next one is asked.
	pace = 200 * time.Millisecond
	// maxRequest bounds a job's host list, in bytes.
	maxRequest = 64 << 10
	// requestTimeout bounds how long a client may take to say its host list.
	requestTimeout = time.Second
)

// Server answers prologs that wait for their nodes.
type Server struct {
	// Pending returns those of the nodes that are still powering up. A node that is up, down or unknown is not pending.
	Pending func(ctx context.Context, nodes []string) (map[string]bool, error)
	// Patience says how long a prolog that comes now may wait. It must be less than ResumeTimeout, after which slurmctld
	// gives the job's nodes up.
	Patience func() time.Duration
	Log      *slog.Logger

	mu      sync.Mutex
	waiting map[*waiter]struct{}
	open    int           // how many Release are not done
	kick    chan struct{} // buffered: somebody waits anew
}

type waiter struct {
	nodes []string
	until time.Time
	done  chan struct{} // closed when the prolog may go
}

// Serve answers on the listener until ctx ends; then everybody who waits is let go.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	s.mu.Lock()
	if s.waiting == nil {
		s.waiting, s.kick = map[*waiter]struct{}{}, make(chan struct{}, 1)
	}
	s.mu.Unlock()
	var all sync.WaitGroup
	defer all.Wait()
	defer func() { s.Release() }()
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	all.Go(func() { s.look(ctx) })
	for {
		connection, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		all.Go(func() { s.answer(ctx, connection) })
	}
}

// Release lets everybody go who waits, and everybody who comes, until the function that it returns is called: slurmctld
// neither reconfigures nor stops well while prologs wait.
func (s *Server) Release() (resume func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	for w := range s.waiting {
		s.letGo(w)
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
	})
}

// letGo needs the lock.
func (s *Server) letGo(w *waiter) {
	delete(s.waiting, w)
	close(w.done)
}

// answer reads one host list and closes the connection when the job may start.
func (s *Server) answer(ctx context.Context, connection net.Conn) {
	defer connection.Close()
	if err := connection.SetReadDeadline(time.Now().Add(requestTimeout)); err != nil {
		return
	}
	line, err := bufio.NewReader(io.LimitReader(connection, maxRequest)).ReadString('\n')
	if err != nil {
		s.Log.Warn("a prolog said no host list", "error", err)
		return
	}
	nodes, err := hostlist.Expand(strings.TrimSpace(line))
	if err != nil || len(nodes) == 0 {
		s.Log.Warn("a prolog said no host list", "said", line, "error", err)
		return
	}
	w := s.enter(nodes)
	if w == nil {
		return
	}
	// The client says nothing more: its end of the connection ends when it does, killed with its job or with slurmctld.
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if err := connection.SetReadDeadline(time.Time{}); err == nil {
			_, _ = connection.Read(make([]byte, 1))
		}
	}()
	select {
	case <-w.done:
	case <-gone:
		s.leave(w)
	case <-ctx.Done():
		s.leave(w)
	}
}

// enter puts somebody on the list of those who wait; nil: there is no waiting now.
func (s *Server) enter(nodes []string) *waiter {
	patience := s.Patience()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open > 0 || len(s.waiting) >= Limit {
		return nil
	}
	w := &waiter{nodes: nodes, until: time.Now().Add(patience), done: make(chan struct{})}
	s.waiting[w] = struct{}{}
	select {
	case s.kick <- struct{}{}:
	default:
	}
	return w
}

func (s *Server) leave(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, waits := s.waiting[w]; waits {
		s.letGo(w)
	}
}

// look asks about the nodes of all who wait, as long as anybody does, and lets go those whose nodes are up.
func (s *Server) look(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		}
		for asked := s.snapshot(); len(asked) > 0; asked = s.snapshot() {
			pending, err := s.Pending(ctx, union(asked))
			if err != nil && ctx.Err() == nil {
				s.Log.Warn("cannot ask for nodes that jobs wait for", "error", err)
			}
			s.decide(asked, pending, err)
			select {
			case <-ctx.Done():
				return
			case <-s.kick: // a job on nodes that are up must not wait for the pace
			case <-time.After(pace):
			}
		}
	}
}

func (s *Server) snapshot() []*waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := make([]*waiter, 0, len(s.waiting))
	for w := range s.waiting {
		asked = append(asked, w)
	}
	return asked
}

// decide lets those of asked go whose nodes are up, or whose time is.
func (s *Server) decide(asked []*waiter, pending map[string]bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, w := range asked {
		if _, waits := s.waiting[w]; waits && (now.After(w.until) || err == nil && !anyOf(w.nodes, pending)) {
			s.letGo(w)
		}
	}
}

func anyOf(nodes []string, set map[string]bool) bool {
	for _, node := range nodes {
		if set[node] {
			return true
		}
	}
	return false
}

func union(waiters []*waiter) []string {
	set := map[string]bool{}
	var nodes []string
	for _, w := range waiters {
		for _, node := range w.nodes {
			if !set[node] {
				set[node] = true
				nodes = append(nodes, node)
			}
		}
	}
	return nodes
}
