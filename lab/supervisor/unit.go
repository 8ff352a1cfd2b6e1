// Package supervisor is the first process of the box: process 1 of its own pid,
// mount, network, IPC and host-name namespaces. It starts the box's daemons,
// reaps every orphan, and when it ends the kernel ends everything that ever ran
// in the box: that is why nothing of a box can be left behind. It knows nothing
// of Kubernetes.
package supervisor

import (
	"fmt"
	"regexp"
	"time"
)

// Unit is a daemon of the box.
type Unit struct {
	// Name is unique in the box; it names the log file (<name>.log) and the pid
	// file (<name>.pid, the pid inside the box).
	Name string `json:"name"`
	// Argv is the command; Argv[0] is an absolute path inside the box, which
	// shares the machine's file system. Arg0, when set, is what the program sees
	// as its own name (hyperkube chooses its component by it).
	Argv []string `json:"argv"`
	Arg0 string   `json:"arg0,omitempty"`
	// Env is the whole environment, nothing is inherited.
	Env []string `json:"env,omitempty"`
	Dir string   `json:"dir,omitempty"`
}

// State is what a unit does now.
type State struct {
	Unit
	// Pid is the pid inside the box, 0 while the unit does not run.
	Pid int `json:"pid"`
	// Restarts counts how often the unit ended by itself and was started again.
	Restarts int `json:"restarts"`
	// LastExit describes how the unit last ended; empty if it never did.
	LastExit string    `json:"lastExit,omitempty"`
	Since    time.Time `json:"since"`
}

var unitName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

func (u Unit) validate() error {
	if !unitName.MatchString(u.Name) {
		return fmt.Errorf("unit name %q: want lower-case letters, digits and dashes", u.Name)
	}
	if len(u.Argv) == 0 || u.Argv[0] == "" || u.Argv[0][0] != '/' {
		return fmt.Errorf("unit %s: the command must start with an absolute path, got %q", u.Name, u.Argv)
	}
	return nil
}

// restartDelay is how long a unit that ended by itself stays down: short at
// first, because components that start side by side wait for each other, and at
// most five seconds.
func restartDelay(quickFailures int) time.Duration {
	d := 200 * time.Millisecond
	for range quickFailures {
		if d *= 2; d >= 5*time.Second {
			return 5 * time.Second
		}
	}
	return d
}
