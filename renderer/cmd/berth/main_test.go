package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-hpc/berth/renderer/command"
)

func TestMain(m *testing.M) {
	if os.Getenv("BERTH_TEST_RUN") == "1" {
		main()
	}
	os.Exit(m.Run())
}

// An interrupt ends a command that does not listen to it, such as one that reads a file which never ends.
func TestAnInterruptEndsWhatDoesNotListen(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "slurm.conf")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skipf("no pipes here: %v", err)
	}
	berth := exec.Command(os.Args[0], "import", "--site", "old", pipe)
	berth.Env = append(os.Environ(), "BERTH_TEST_RUN=1")
	var said strings.Builder
	berth.Stderr = &said
	if err := berth.Start(); err != nil {
		t.Fatal(err)
	}
	// Once the pipe has a reader, berth reads and listens to signals; a writer that stays open keeps the reader there.
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := berth.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- berth.Wait() }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		berth.Process.Kill()
		t.Fatal("it goes on after an interrupt")
	}
	if code := berth.ProcessState.ExitCode(); code != command.ExitError || !strings.Contains(said.String(), "berth: interrupted") {
		t.Errorf("exit code %d, said %q", code, said.String())
	}
}
