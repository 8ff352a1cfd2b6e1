package box

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/berth-hpc/berth/lab/egress"
	"github.com/berth-hpc/berth/lab/supervisor"
)

// UnitStatus is a daemon and where it is on the machine.
type UnitStatus struct {
	supervisor.State
	// HostPid is the daemon's pid as the machine sees it, 0 while it does not run.
	HostPid int `json:"hostPid"`
	// MiB is its resident memory.
	MiB int `json:"mib"`
}

// Status is what the box does now.
type Status struct {
	Up     bool           `json:"up"`
	Units  []UnitStatus   `json:"units,omitempty"`
	Egress egress.Counter `json:"egress"`
	Layers []Layer        `json:"layers,omitempty"`
	Pods   string         `json:"-"`
}

// Status looks at the box. Parts that do not answer are left out: it is for
// looking at a box that is half up, too.
func (b *Box) Status(ctx context.Context) (Status, error) {
	pid, up := b.worldPid()
	if !up {
		return Status{}, nil
	}
	s := Status{Up: true}
	units, err := b.client.Units(ctx)
	if err != nil {
		return s, err
	}
	pids := hostPids(pid)
	for _, u := range units {
		st := UnitStatus{State: u, HostPid: pids[u.Pid]}
		st.MiB = residentMiB(st.HostPid)
		s.Units = append(s.Units, st)
	}
	if s.Egress, err = b.Egress(ctx); err != nil {
		return s, err
	}
	quick, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	s.Layers, _ = b.Layers(quick)
	s.Pods, _ = b.Kubectl(quick, "get", "pods", "--all-namespaces")
	return s, nil
}

// String is the status as text for a person.
func (s Status) String() string {
	if !s.Up {
		return "the box is down\n"
	}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DAEMON\tPID\tMIB\tUP\tRESTARTS\tLAST EXIT")
	for _, u := range s.Units {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%d\t%s\n", u.Name, u.HostPid, u.MiB, time.Since(u.Since).Round(time.Second), u.Restarts, u.LastExit)
	}
	w.Flush()
	if len(s.Layers) > 0 {
		fmt.Fprintln(&text)
		fmt.Fprintln(w, "LAYER\tREADY\tREVISION\tREASON\tMESSAGE")
		for _, l := range s.Layers {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", l.Name, l.Ready, l.Revision, l.Reason, strings.ReplaceAll(l.Message, "\n", " "))
		}
		w.Flush()
	}
	if s.Pods != "" {
		fmt.Fprintf(&text, "\n%s", s.Pods)
	}
	fmt.Fprintf(&text, "\npackets to an address outside the box: %d\n", s.Egress.Packets)
	return text.String()
}

// hostPids maps pids inside the box to pids on the machine: the lines NSpid of
// the processes in the pid namespace of the box's first process (proc(5)).
func hostPids(world int) map[int]int {
	namespace := func(pid int) string {
		id, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
		return id
	}
	inside := namespace(world)
	pids := map[int]int{}
	for _, pid := range processes() {
		if namespace(pid) != inside {
			continue
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(text), "\n") {
			if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
				fields := strings.Fields(rest)
				if n, err := strconv.Atoi(fields[len(fields)-1]); err == nil {
					pids[n] = pid
				}
			}
		}
	}
	return pids
}

func residentMiB(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return pages * os.Getpagesize() >> 20
}
