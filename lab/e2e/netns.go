package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-hpc/berth/lab/box"
)

// A place is somewhere that connections begin or end: a pod, or the node. The tests enter its network namespace and
// dial and listen there themselves, so that no image needs a tool and every measurement is made the same way.
type place struct {
	name string
	// netns is the path of its network namespace, address its own address.
	netns, address string
}

// The main thread stays at home: Go cannot end it, and /proc/self is its view of the world.
func init() { runtime.LockOSThread() }

// placeOf finds a pod's network namespace through the control group of its processes.
func (r *run) placeOf(name string, p pod) place {
	r.Helper()
	if p.Status.PodIP == "" || p.Metadata.UID == "" {
		r.Fatalf("%s has no address yet: %s", p.Metadata.Name, p.Status.Phase)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		r.Fatal(err)
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		groups, err := os.ReadFile("/proc/" + e.Name() + "/cgroup")
		if err != nil || !strings.Contains(string(groups), "/pod"+p.Metadata.UID) {
			continue
		}
		// Held open: the process may be a probe or a container that ends soon, the pod's network stays.
		ns, err := os.Open("/proc/" + e.Name() + "/ns/net")
		if err != nil {
			continue
		}
		r.Cleanup(func() { ns.Close() })
		return place{name: name, netns: fmt.Sprintf("/proc/self/fd/%d", ns.Fd()), address: p.Status.PodIP}
	}
	r.Fatalf("no process of pod %s (%s) is on this machine", p.Metadata.Name, p.Metadata.UID)
	return place{}
}

// within runs f in the place's network namespace. Sockets that f makes on its own goroutine stay there for good.
func (p place) within(f func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: a thread that has been in another namespace ends with its goroutine.
		runtime.LockOSThread()
		done <- func() error {
			ns, err := os.Open(p.netns)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("%s: enter its network: %w", p.name, err)
			}
			return f()
		}()
	}()
	return <-done
}

// dial connects from the place to an address and port.
func (p place) dial(ctx context.Context, address string, port int) (net.Conn, error) {
	var conn net.Conn
	err := p.within(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp4", net.JoinHostPort(address, strconv.Itoa(port)))
		return err
	})
	return conn, err
}

// reaches tells whether a connection from the place to an address and port comes about in time.
func (p place) reaches(ctx context.Context, address string, port int, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := p.dial(ctx, address, port)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// listen opens the ports at the place on which nothing listens yet, so that a connection fails for one reason only: it
// was not let through. What it opened accepts and closes until the returned function is called.
func (p place) listen(ports []int) (stop func(), err error) {
	var listeners []net.Listener
	stop = func() {
		for _, l := range listeners {
			l.Close()
		}
	}
	err = p.within(func() error {
		for _, port := range ports {
			l, err := net.Listen("tcp4", net.JoinHostPort(p.address, strconv.Itoa(port)))
			if errors.Is(err, unix.EADDRINUSE) {
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			listeners = append(listeners, l)
		}
		return nil
	})
	if err != nil {
		stop()
		return nil, err
	}
	for _, l := range listeners {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
	}
	return stop, nil
}

// node is the box's node, as a place to dial from.
func (r *run) node() place {
	r.Helper()
	pid, err := os.ReadFile(filepath.Join(r.box.Dir, "run", "init.pid"))
	if err != nil {
		r.Fatal(err)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(pid)), " ")
	return place{name: box.NodeName, netns: "/proc/" + first + "/ns/net", address: box.NodeIP}
}
