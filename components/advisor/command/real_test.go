package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/advisor/service"
	"github.com/berth-hpc/berth/components/guard/slurmtest"
	"github.com/berth-hpc/berth/components/jobsubmit"
)

// The whole path on a real Slurm: sbatch, slurmctld, job_submit.lua, the advisor's socket; the advisor's picture from slurmrestd; and
// the record of it all. Shadow changes nothing but the record, live adds a bounded boost.
func TestRealSlurm(t *testing.T) {
	m := slurmtest.Start(t, "slurm-worker-cpu-0")
	conf := filepath.Join(m.Dir, "conf")
	socket := filepath.Join(m.Dir, "a.sock")
	settings := func(mode service.Mode) string {
		return fmt.Sprintf(`{"mode":%q,"topology":"","maxBoost":500,"snapshotTtlSeconds":60,"budgetMilliseconds":1000}`, mode)
	}
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(m.Dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(m.Dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	script := func(mode string) {
		t.Helper()
		// A second: what is tested here is what is said, on a machine that may be busy.
		text, err := jobsubmit.Script(jobsubmit.Settings{Mode: mode, Deadline: time.Second, MaxBoost: 500, Socket: socket})
		if err != nil {
			t.Fatal(err)
		}
		put("conf/job_submit.lua", text)
	}
	put("conf/cgroup.conf", "CgroupPlugin=disabled\n")
	put("conf/plugstack.conf", "\n")
	put("conf/slurm.conf", fmt.Sprintf(`ClusterName=berth
SlurmctldHost=ctl
SlurmUser=root
AuthType=auth/slurm
CredType=cred/slurm
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=%[1]s/keys/jwt_hs256.key
AuthInfo=use_client_ids
StateSaveLocation=%[1]s/state
SlurmctldPidFile=%[1]s/run/slurmctld.pid
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
MailProg=/bin/true
PriorityType=priority/multifactor
JobSubmitPlugins=lua
NodeName=slurm-worker-cpu-0 CPUs=2 RealMemory=1000 State=CLOUD
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=600
PartitionName=cpu Nodes=slurm-worker-cpu-0 Default=YES State=DOWN
`, m.Dir))
	script(jobsubmit.Shadow)
	slurm := func(name string, args ...string) string {
		t.Helper()
		return strings.TrimSpace(m.Run("env", append([]string{"SLURM_CONF=" + conf + "/slurm.conf", name}, args...)...))
	}
	m.Daemon("slurmctld.log", "slurmctld", "-D", "-f", conf+"/slurm.conf")
	slurmtest.Eventually(t, time.Minute, "slurmctld answers", func() (bool, string) {
		out, _ := m.Command("env", "SLURM_CONF="+conf+"/slurm.conf", "scontrol", "ping").CombinedOutput()
		return strings.Contains(string(out), "is UP"), string(out) + m.Log("slurmctld.log")
	})
	rest := filepath.Join(m.Dir, "rest")
	if err := exec.Command("install", "-d", "-o", "64031", rest).Run(); err != nil {
		t.Fatal(err)
	}
	// slurmrestd holds no key, as in its own pod.
	put("restconf/slurm.conf", "ClusterName=berth\nSlurmctldHost=ctl\nAuthType=auth/slurm\nCredType=cred/slurm\nAuthAltTypes=auth/jwt\n")
	put("restconf/plugstack.conf", "\n")
	m.Daemon("slurmrestd.log", "setpriv", "--reuid=64031", "--regid=64031", "--clear-groups", "env", "-u", "SLURM_SACK_KEY",
		"SLURM_JWT=daemon", "SLURM_CONF="+m.Dir+"/restconf/slurm.conf", "slurmrestd", "-a", "rest_auth/jwt", "-s", "openapi/slurmctld", "unix:"+rest+"/s")

	put("settings.json", settings(service.Shadow))
	record := filepath.Join(m.Dir, "record")
	ctx, cancel := context.WithCancel(context.Background())
	var log buffer
	done := make(chan int, 1)
	go func() {
		done <- Run(ctx, io.Discard, &log, []string{"serve", "--socket", socket, "--settings", filepath.Join(m.Dir, "settings.json"),
			"--state", filepath.Join(m.Dir, "advisor"), "--slurmrestd", "unix:" + rest + "/s", "--jwt-key", m.Key("jwt_hs256.key"), "--slurm-user", "root",
			"--snapshot-every", "1s", "--log", record})
	}()
	defer func() { cancel(); <-done }()
	asked := func() string {
		var out bytes.Buffer
		_ = Run(context.Background(), &out, io.Discard, []string{"serve", "health", "--socket", socket})
		return out.String()
	}
	eventually := func(what string, holds func() bool) {
		t.Helper()
		slurmtest.Eventually(t, 90*time.Second, what, func() (bool, string) {
			return holds(), asked() + log.String() + m.Log("slurmrestd.log") + m.Log("slurmctld.log")
		})
	}
	submit := func(minutes int) string {
		t.Helper()
		return slurm("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", fmt.Sprintf("--time=%d", minutes), "--wrap", "true")
	}
	eventually("a first snapshot", func() bool { return strings.Contains(asked(), `"cluster":"berth"`) })
	for _, minutes := range []int{10, 20, 30, 40} {
		submit(minutes)
	}
	eventually("four jobs are seen waiting", func() bool { return strings.Contains(asked(), `"waiting":4,`) })

	shadow := submit(15)
	if shown := slurm("scontrol", "show", "job", shadow); strings.Contains(shown, "advisor") || slurm("sprio", "-h", "-j", shadow, "-o", "%S") != "0" {
		t.Errorf("shadow changed the job: %s", shown)
	}
	// 15 minutes pass three of the four: 375 of 500 points.
	if !strings.Contains(m.Log("slurmctld.log"), "mode=shadow advice=375 boost=0") {
		t.Errorf("shadow's advice is not in the log: %s", m.Log("slurmctld.log"))
	}

	put("settings.json", settings(service.Live))
	script(jobsubmit.Live)
	slurm("scontrol", "reconfigure")
	eventually("live", func() bool {
		return strings.Contains(asked(), `"mode":"live"`) && strings.Contains(asked(), `"waiting":5,`)
	})
	live := submit(5)
	if site := slurm("sprio", "-h", "-j", live, "-o", "%S"); site != "500" {
		t.Errorf("the site factor is %q: %s", site, m.Log("slurmctld.log"))
	}
	if shown := slurm("scontrol", "show", "job", live); !strings.Contains(shown, "AdminComment=advisor: boost=500 value=1 checkpoint=builtin:saf took=") {
		t.Error(shown)
	}

	slurm("scancel", live, shadow)
	eventually("the record has their ends", func() bool {
		var out bytes.Buffer
		_ = Run(context.Background(), &out, io.Discard, []string{"log", "stats", record})
		return strings.Contains(out.String(), "ended      2\n") && strings.Contains(out.String(), "jobs       6\n")
	})
	for _, args := range [][]string{{"log", "verify", record}, {"log", "stats", record}, {"log", "export", record, "--out", filepath.Join(m.Dir, "jobs.parquet")}} {
		var out bytes.Buffer
		if code := Run(context.Background(), &out, &out, args); code != ExitOK {
			t.Errorf("%v: %d %s", args, code, out.String())
		}
		t.Log(strings.Join(args[:2], " "), "\n"+out.String())
	}
}
