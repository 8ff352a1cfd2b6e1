package slurm

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// programs puts stand-ins for Slurm's commands first in PATH; each writes its arguments to the returned file and prints what the
// test says.
func programs(t *testing.T, scontrol, squeue string) (called func() string) {
	t.Helper()
	dir := t.TempDir()
	for name, body := range map[string]string{"scontrol": scontrol, "squeue": squeue} {
		text := "#!/bin/sh\necho \"" + name + " $*\" >> " + dir + "/calls\n" + body + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() string {
		text, _ := os.ReadFile(dir + "/calls")
		_ = os.Remove(dir + "/calls")
		return string(text)
	}
}

func commands() Commands { return Commands{Node: "gpu-0", Timeout: 5 * time.Second} }

func TestDrainKeepsAnothersReason(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct{ name, node, drain, undrain string }{
		{"takes jobs", "NodeName=gpu-0 State=MIXED+CLOUD Owner=N/A", "state=drain reason=mps: ill", ""},
		{"drained by us", "NodeName=gpu-0 State=IDLE+DRAIN Owner=N/A Reason=mps: ill [root@now]", "", "state=resume"},
		{"drained by a person", "NodeName=gpu-0 State=IDLE+DRAIN Reason=mps broken, says Kim [root@now]", "", ""},
	} {
		called := programs(t, "[ $1 = --oneliner ] && echo '"+c.node+"'; exit 0", "")
		if err := commands().Drain(ctx, "mps: ill"); err != nil {
			t.Fatal(err)
		}
		if got := called(); strings.Contains(got, "update") != (c.drain != "") || !strings.Contains(got, c.drain) {
			t.Errorf("%s: drain called\n%s", c.name, got)
		}
		if err := commands().Undrain(ctx, "mps: "); err != nil {
			t.Fatal(err)
		}
		if got := called(); strings.Contains(got, "update") != (c.undrain != "") || !strings.Contains(got, c.undrain) {
			t.Errorf("%s: undrain called\n%s", c.name, got)
		}
	}
}

func TestCommentKeepsTheUsersOwn(t *testing.T) {
	for _, c := range []struct{ old, want string }{
		{"(null)", "update jobid=7 comment=mps: fault\n"},
		{"my run", "update jobid=7 comment=my run; mps: fault\n"},
		{"my run; mps: fault", ""},
	} {
		called := programs(t, "", "echo '"+c.old+"'")
		if err := commands().Comment(context.Background(), "7", "mps: fault"); err != nil {
			t.Fatal(err)
		}
		_, update, _ := strings.Cut(called(), "scontrol ")
		if update != c.want {
			t.Errorf("comment %q: %q, want %q", c.old, update, c.want)
		}
	}
}

func TestStates(t *testing.T) {
	programs(t, "", "echo '7 RUNNING'; echo '9 COMPLETING'")
	got, err := commands().States(context.Background(), []string{"7", "8", "9"})
	if err != nil || len(got) != 2 || got["7"] != "RUNNING" || got["9"] != "COMPLETING" {
		t.Errorf("%v, %v", got, err)
	}
	programs(t, "", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
	if got, err := commands().States(context.Background(), []string{"7"}); err != nil || len(got) != 0 {
		t.Errorf("unknown jobs: %v, %v", got, err)
	}
	programs(t, "", "echo 'Unable to contact slurm controller' >&2; exit 1")
	if got, err := commands().States(context.Background(), []string{"7"}); err == nil {
		t.Errorf("no slurmctld is taken for no jobs: %v", got)
	}
}

func TestKillWait(t *testing.T) {
	file := filepath.Join(t.TempDir(), "slurm.conf")
	c := Commands{Conf: file}
	if got := c.KillWait(); got != 30*time.Second {
		t.Errorf("without a file %s", got)
	}
	if err := os.WriteFile(file, []byte("# KillWait=5\nClusterName=x\nkillwait = 90\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := c.KillWait(); got != 90*time.Second {
		t.Errorf("%s, want 90s", got)
	}
}

// A process is its slurmstepd's job's, through whatever it was started by, and a daemon of the pod is nobody's.
func TestJobOf(t *testing.T) {
	proc := t.TempDir()
	put := func(pid, title, stat string) {
		if err := os.MkdirAll(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"cmdline": title, "stat": stat} {
			if err := os.WriteFile(filepath.Join(proc, pid, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	put("1", "tini", "1 (tini) S 0")
	put("20", "slurmstepd: [345.batch]", "20 (slurmstepd) S 1")
	put("21", "bash\x00script", "21 (bash) S 20")
	put("22", "python", "22 (a) S 1 (b) S 21 21")
	put("30", "python", "30 (python) S 1")
	put("40", "bash\x00slurmstepd: [9.0]", "40 (bash) S 1")
	for pid, want := range map[int]string{22: "345", 20: "345", 30: "", 40: "", 99: ""} {
		if got, ok := JobOf(proc, pid); got != want || ok != (want != "") {
			t.Errorf("process %d is job %q, %v; want %q", pid, got, ok, want)
		}
	}
}
