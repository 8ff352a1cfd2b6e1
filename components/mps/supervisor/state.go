package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
)

// state survives the supervisor. It lies in memory (/run), so it ends with the pod, as daemon and jobs do.
type state struct {
	Daemon *process       `json:"daemon,omitempty"`
	Jobs   map[string]Job `json:"jobs"`
	// Drained says that a drain of ours may stand.
	Drained bool `json:"drained,omitempty"`
}

// process is one process and no later one with its number.
type process struct {
	PID int `json:"pid"`
	// Start is field 22 of /proc/<pid>/stat, in clock ticks since the host's start (proc(5)).
	Start string `json:"start"`
}

func (p *process) String() string {
	if p == nil {
		return "none"
	}
	return fmt.Sprint(p.PID)
}

func (p *process) alive() bool {
	start, zombie, err := processStart(p.PID)
	return err == nil && !zombie && start == p.Start
}

func processStart(pid int) (start string, zombie bool, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false, err
	}
	// The name, field 2, is in parentheses and may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return "", false, fmt.Errorf("/proc/%d/stat: not understood: %q", pid, text)
	}
	return fields[19], fields[0] == "Z", nil
}

func (s *Supervisor) file() string { return filepath.Join(s.Root, "state.json") }

func (s *Supervisor) load() error {
	s.state.Jobs = map[string]Job{}
	text, err := os.ReadFile(s.file())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("mps: state: %w", err)
	}
	if err := json.Unmarshal(text, &s.state); err != nil {
		return fmt.Errorf("mps: %s: %w", s.file(), err)
	}
	if s.state.Jobs == nil {
		s.state.Jobs = map[string]Job{}
	}
	return nil
}

// update changes the state where its file can be written, and else not at all.
func (s *Supervisor) update(change func(*state)) error {
	s.data.Lock()
	defer s.data.Unlock()
	next := s.state
	next.Jobs = maps.Clone(s.state.Jobs)
	change(&next)
	text, err := json.Marshal(next)
	if err == nil {
		err = renameio.WriteFile(s.file(), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("mps: state: %w", err)
	}
	s.state = next
	return nil
}

func (s *Supervisor) daemon() *process {
	s.data.Lock()
	defer s.data.Unlock()
	return s.state.Daemon
}
