package slurmconf_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/chart"
	"github.com/berth-hpc/berth/renderer/compile/slurmconf"
	"github.com/berth-hpc/berth/renderer/load"
)

// slurmRoot is a root file system with Slurm in it, such as the slurm image's, unpacked, with /proc and /dev mounted.
func slurmRoot(t *testing.T) string {
	t.Helper()
	root := os.Getenv("BERTH_SLURM_ROOT")
	if root == "" {
		t.Skip("BERTH_SLURM_ROOT names no root file system with slurmctld (unpack the slurm image, mount /proc and /dev in it)")
	}
	if os.Geteuid() != 0 {
		t.Skip("chroot into BERTH_SLURM_ROOT needs root")
	}
	return root
}

func TestSlurmctldAcceptsShippedSites(t *testing.T) {
	root := slurmRoot(t)
	sites, err := load.Load("../../../clusters")
	if err != nil {
		t.Fatal(err)
	}
	version, err := exec.Command("chroot", root, "slurmctld", "-V").Output()
	if err != nil {
		t.Fatal(err)
	}
	release := strings.TrimSpace(strings.TrimPrefix(string(version), "slurm-wlm ")) // 24.11.5
	release = release[:strings.LastIndex(release, ".")]
	for _, s := range sites {
		t.Run(s.Name, func(t *testing.T) {
			s.Slurm.Version = release
			files, err := slurmconf.Files(s)
			if err != nil {
				t.Fatal(err)
			}
			profile, err := fs.ReadFile(chart.Files, chart.Dir+"/files/profiles/"+s.Slurm.Profile+".conf")
			if err != nil {
				t.Fatal(err)
			}
			files["slurm.conf"] += "\n" + string(profile)
			if files["job_submit.lua"] != "" {
				files["slurm.conf"] += "JobSubmitPlugins=lua\n" // as the chart does
			}
			said := trySlurmctld(t, root, files)
			if !strings.Contains(said, "Running as primary controller") {
				t.Errorf("slurmctld does not start:\n%s", said)
			}
			for _, line := range strings.Split(said, "\n") {
				if strings.Contains(line, "error:") && !expected(line) {
					t.Errorf("slurmctld complains: %s", line)
				}
			}
		})
	}
}

// expected are complaints about a trial that has neither accounting nor state, not about the configuration.
func expected(line string) bool {
	for _, known := range []string{
		"Job accounting information gathered, but not stored", "can only be used with SlurmDBD", "Trying backup state save file",
		"Could not open", "No last decay",
	} {
		if strings.Contains(line, known) {
			return true
		}
	}
	return false
}

// trySlurmctld starts a scratch slurmctld with the files, on ports of its own, with empty state and no accounting, and returns
// what it said until it was up or gave up.
func trySlurmctld(t *testing.T, root string, files map[string]string) string {
	t.Helper()
	work, err := os.MkdirTemp(filepath.Join(root, "tmp"), "trial-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(work) })
	inside := strings.TrimPrefix(work, root)
	files["slurm.conf"] = scratch(t, files["slurm.conf"], inside)
	key := make([]byte, 1024)
	if _, err := rand.Read(key); err != nil {
		t.Fatal(err)
	}
	files["slurm.key"] = string(key)
	files["jwt_hs256.key"] = string(key[:32])
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(work, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(root, "run/slurmctld") // where slurmctld keeps its authentication socket
	if err := os.MkdirAll(run, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("chown", "-R", "64030:64030", work, run).CombinedOutput(); err != nil {
		t.Fatalf("chown: %v %s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, "chroot", "--userspec=64030:64030", root, "/usr/sbin/slurmctld", "-D", "-c", "-f", inside+"/slurm.conf")
	command.Env = append(os.Environ(), "SLURM_SACK_KEY="+inside+"/slurm.key", "RUNTIME_DIRECTORY="+inside)
	said := &watched{until: "Running as primary controller", found: make(chan struct{})}
	command.Stdout, command.Stderr = said, said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	select {
	case <-said.found:
		time.Sleep(500 * time.Millisecond) // What it has to say about nodes and partitions comes with or just after that line.
		_ = command.Process.Kill()
		<-ended
	case <-ended:
	}
	return said.String()
}

var billing = regexp.MustCompile(` TRESBillingWeights="[^"]*"`)

// scratch makes a configuration startable beside a living cluster.
func scratch(t *testing.T, conf, inside string) string {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, line := range strings.Split(conf, "\n") {
		key, _, _ := strings.Cut(line, "=")
		switch {
		// Slurm knows gres/gpu as a TRES only with slurmdbd; without one every line that weighs it is fatal too.
		case strings.HasPrefix(key, "Accounting"), key == "PriorityWeightTRES", key == "SlurmctldHost", key == "SlurmctldPort", key == "StateSaveLocation",
			key == "AuthAltParameters", key == "PrologSlurmctld", strings.HasSuffix(key, "PidFile"), strings.HasSuffix(key, "Program"):
			continue
		}
		b.WriteString(billing.ReplaceAllString(line, "") + "\n")
	}
	fmt.Fprintf(&b, "SlurmctldHost=%s(127.0.0.1)\nSlurmctldPort=26817\nStateSaveLocation=%s/state\nSlurmctldPidFile=%s/pid\n", host, inside, inside)
	fmt.Fprintf(&b, "AuthAltParameters=jwt_key=%s/jwt_hs256.key\n", inside)
	for _, program := range []string{"SuspendProgram", "ResumeProgram", "ResumeFailProgram"} {
		b.WriteString(program + "=/bin/true\n")
	}
	return b.String()
}

// watched collects output and tells when a text appears in it.
type watched struct {
	lock  sync.Mutex
	text  bytes.Buffer
	until string
	found chan struct{}
	done  bool
}

func (w *watched) Write(p []byte) (int, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.text.Write(p)
	if !w.done && strings.Contains(w.text.String(), w.until) {
		w.done = true
		close(w.found)
	}
	return len(p), nil
}

func (w *watched) String() string {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.text.String()
}
