package await

import (
	"io"
	"net"
	"os"
	"time"
)

// Wait returns when the server at the socket says that the nodes of the host list are up, or has no say in it any more. It
// never fails: whatever is wrong, the job is left to slurmctld's own check of nodes that power up. It returns as well when
// the process's parent ends.
func Wait(socket, hosts string) {
	connection, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, hosts+"\n"); err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = connection.Read(make([]byte, 1))
	}()
	parent := os.Getppid()
	orphaned := time.NewTicker(time.Second)
	defer orphaned.Stop()
	for {
		select {
		case <-done:
			return
		case <-orphaned.C:
			if os.Getppid() != parent {
				return
			}
		}
	}
}
