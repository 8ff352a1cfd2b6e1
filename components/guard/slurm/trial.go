package slurm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/berth-hpc/berth/components/guard/slurmconf"
)

// trialTimeout bounds a trial. On an idle machine slurmctld has an answer within a second; a starved one takes longer.
const trialTimeout = 90 * time.Second

// Verdict is what a scratch slurmctld says of a configuration.
type Verdict struct {
	Accepted bool
	// Words are Slurm's own, where it refuses.
	Words string
}

// Try starts a scratch slurmctld with the files in a directory of its own below scratch, with other ports, an empty state
// and no accounting, and says whether it comes up. It has no way to check a configuration without starting. An error
// means that the trial itself failed, and says nothing about the files.
func (p *Programs) Try(ctx context.Context, scratch string, files map[string]string) (Verdict, error) {
	if err := CheckNames(files); err != nil {
		return Verdict{Words: err.Error()}, nil
	}
	dir, err := os.MkdirTemp(scratch, "trial-")
	if err != nil {
		return Verdict{}, fmt.Errorf("make a directory for the trial: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := prepareTrial(dir, files); err != nil {
		return Verdict{}, fmt.Errorf("prepare the trial: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	conf := filepath.Join(dir, "etc", "slurm.conf")
	up, words, err := p.startScratch(ctx, conf)
	if err != nil {
		return Verdict{}, err
	}
	return Verdict{Accepted: up, Words: strings.ReplaceAll(strings.ReplaceAll(words, filepath.Join(dir, "etc")+"/", ""), dir, "")}, nil
}

// startScratch runs slurmctld until it is up or has ended.
func (p *Programs) startScratch(ctx context.Context, conf string) (up bool, words string, err error) {
	command := p.command(ctx, conf, "slurmctld", "-D", "-c", "-f", conf)
	output, err := command.StderrPipe()
	if err != nil {
		return false, "", err
	}
	if err := command.Start(); err != nil {
		return false, "", fmt.Errorf("start a scratch slurmctld: %w", err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(io.LimitReader(output, 1<<20))
		for scanner.Scan() {
			lines <- scanner.Text()
		}
		_, _ = io.Copy(io.Discard, output)
	}()
	var said []string
	for line := range lines {
		line = leader.ReplaceAllString(line, "")
		said = append(said, line)
		if strings.HasPrefix(line, "Running as primary controller") {
			up = true
			break
		}
	}
	kill := stop(command.Process.Pid)
	for range lines { // until it has ended
	}
	waitErr := command.Wait()
	kill.Stop() // the number may soon be another process's
	switch {
	case up:
		return true, "", nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return false, "", fmt.Errorf("a scratch slurmctld said neither yes nor no within %s", trialTimeout)
	case ctx.Err() != nil:
		return false, "", ctx.Err()
	}
	if words = complaints(said); words == "" {
		words = fmt.Sprintf("slurmctld ended without a word (%v)", waitErr)
	}
	return false, words, nil
}

// leader is what slurmctld puts before each of its words: its name, and since 26.05 the time instead.
var leader = regexp.MustCompile(`^(slurmctld: )?(\[[0-9T:.-]+\] )?`)

// stop asks a process group to end, and makes it end unless the timer is stopped first.
func stop(pid int) *time.Timer {
	_ = syscall.Kill(-pid, syscall.SIGTERM)
	return time.AfterFunc(3*time.Second, func() { _ = syscall.Kill(-pid, syscall.SIGKILL) })
}

// prepareTrial writes the files for the trial.
func prepareTrial(dir string, files map[string]string) error {
	for _, sub := range []string{"etc", "state"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			return err
		}
	}
	for name, text := range files {
		if name == "slurm.conf" {
			ports, err := freePorts(2)
			if err != nil {
				return err
			}
			text = trialConf(text, dir, ports[0], ports[1])
		}
		if err := os.WriteFile(filepath.Join(dir, "etc", name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// replaced are the settings that a trial must not share with the living slurmctld, or cannot have.
var replaced = regexp.MustCompile(`(?i)^(StateSaveLocation|SlurmctldPort|SlurmdPort|SlurmctldPidFile|SlurmctldLogFile|SlurmctldSyslogDebug|SlurmSchedLogFile|AccountingStorage\w+|JobComp\w+|SuspendProgram|ResumeProgram|ResumeFailProgram|RebootProgram|PrologSlurmctld|EpilogSlurmctld|SlurmctldPrimaryOnProg|SlurmctldPrimaryOffProg|HealthCheckProgram|HealthCheckInterval|MailProg|PriorityWeightFairshare|PriorityWeightTRES)\s*=`)

// billing needs TRES that only slurmdbd can define, which the trial has not.
var billing = regexp.MustCompile(`(?i)\sTRESBillingWeights\s*=\s*("[^"]*"|\S+)`)

// noFairTree has Slurm's older way of sharing look at the root association, which only slurmdbd can give: slurmctld 24.11 then ends by
// a segmentation fault now and then.
var noFairTree = regexp.MustCompile(`(?i)(=)\s*NO_FAIR_TREE\s*,?|\s*,\s*NO_FAIR_TREE\b`)

// nodePort is a node's own port: the scratch slurmctld must not reach a living slurmd.
var nodePort = regexp.MustCompile(`(?i)(\s)Port\s*=\s*\S+`)

// trialConf is a slurm.conf for the trial. Lines keep their numbers' order but not their numbers; slurmctld's messages
// name keys, not lines.
func trialConf(text, dir string, port, nodesPort int) string {
	var out strings.Builder
	for _, line := range slurmconf.Lines(text) {
		switch {
		case replaced.MatchString(line.Text):
			continue
		case strings.HasPrefix(strings.ToLower(line.Text), "priorityflags"):
			if flags := noFairTree.ReplaceAllString(line.Text, "$1"); !strings.HasSuffix(flags, "=") {
				fmt.Fprintln(&out, flags)
			}
		case strings.HasPrefix(strings.ToLower(line.Text), "nodename"):
			fmt.Fprintln(&out, nodePort.ReplaceAllString(line.Text, ""))
		case strings.HasPrefix(strings.ToLower(line.Text), "partitionname"):
			fmt.Fprintln(&out, billing.ReplaceAllString(line.Text, ""))
		default:
			fmt.Fprintln(&out, line.Text)
		}
	}
	fmt.Fprintf(&out, "StateSaveLocation=%s/state\nSlurmctldPidFile=%s/slurmctld.pid\nSlurmctldPort=%d\nSlurmdPort=%d\n", dir, dir, port, nodesPort)
	// Power saving stays on, or its node states and parameters would be refused; there is nothing to power here.
	fmt.Fprint(&out, "SuspendProgram=/bin/true\nResumeProgram=/bin/true\nMailProg=/bin/true\n")
	return out.String()
}

// complaints are the lines of slurmctld's that say why it ended: fatal ones, and the errors that led to them.
func complaints(said []string) string {
	var errors, fatals []string
	for _, line := range said {
		switch {
		case strings.HasPrefix(line, "fatal: "):
			fatals = append(fatals, line)
		case noise.MatchString(line):
		case strings.HasPrefix(line, "error: "):
			errors = append(errors, line)
		}
	}
	if len(errors) > 4 {
		errors = errors[len(errors)-4:]
	}
	return strings.Join(append(errors, fatals...), "; ")
}

// noise are errors that come from the trial's empty state and missing accounting, not from the files.
var noise = regexp.MustCompile(`state file|backup state save|Job accounting information|only be used with SlurmDBD|slurmscriptd|is defunct`)

// CheckNames says which file names cannot be files of a configuration directory.
func CheckNames(files map[string]string) error {
	for name := range files {
		if name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") {
			return fmt.Errorf("files: %q is no plain file name", name)
		}
	}
	if files["slurm.conf"] == "" {
		return errors.New("files: slurm.conf is missing or empty")
	}
	return nil
}

// freePorts finds ports that nobody listens on now.
func freePorts(count int) ([]int, error) {
	var ports []int
	for range count {
		listener, err := net.Listen("tcp", ":0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
