package slurmconf

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/guard/slurmtest"
	"github.com/berth-hpc/berth/components/jobsubmit"
	"github.com/berth-hpc/berth/renderer/site"
)

// L13: what a job finds in its environment, on a real slurmd with the image's own hooks: as a user's, submitted with the user's shell's
// environment and with nothing of it.
func TestRealJobEnvironment(t *testing.T) {
	m := slurmtest.Start(t, "slurm-worker-cpu-0")
	installHooks(t, m, "prolog", "prolog.d/20-tmpdir", "epilog", "epilog.d/20-tmpdir", "task-prolog", "task-prolog.d/20-environment")
	m.Run("sh", "-ec", `mkdir -p /tmp/jobs; chmod 1777 /tmp; echo 'ada:x:2001:2001:Ada:/home/ada:/bin/bash' >> /etc/passwd; echo 'ada:x:2001:' >> /etc/group
install -d -o 2001 -g 2001 -m 700 /home/ada; chmod 755 `+m.Dir)
	parameters, err := hookParameters(site.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	file, err := hooks(site.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	without, files := withoutLoginShell(t, m)
	files[hooksFile] = file
	slurm, _ := startWorker(t, m, append(append(parameters, without...), parameter{"TaskProlog", programs + "/task-prolog"}), files)
	slurmtest.Eventually(t, time.Minute, "the node is idle", func() (bool, string) {
		out := slurm("sinfo", "-h", "-o", "%t")
		return out == "idle", out + m.Log("slurmd.log")
	})
	const ada = "setpriv --reuid=2001 --regid=2001 --clear-groups env -i HOME=/home/ada USER=ada LOGNAME=ada SHELL=/bin/bash PATH=/usr/bin:/bin SLURM_CONF="
	job := func(script string, options ...string) (id, output string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(m.Dir, "script"), []byte("#!/bin/bash\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		id = strings.TrimSpace(m.Run("sh", "-c", ada+m.Dir+"/slurm.conf sbatch --parsable --chdir=/tmp --output=/home/ada/%j "+strings.Join(options, " ")+" "+m.Dir+"/script"))
		slurmtest.Eventually(t, time.Minute, "the job ends, and its epilog", func() (bool, string) {
			state := slurm("squeue", "--noheader", "--states=all", "--format=%T", "--jobs="+id)
			return state == "COMPLETED" || state == "FAILED", state + m.Log("slurmd.log")
		})
		return id, strings.TrimSpace(m.Run("cat", "/home/ada/"+id))
	}
	const show = `echo $HOME $USER $LOGNAME $SHELL $LANG $(printenv PATH | grep -c /usr/bin) $TMPDIR $(stat --format='%U %a' $TMPDIR)`
	for _, options := range []string{"", "--export=NONE", "--export=NIL", "--export=ALL,TMPDIR=/var/tmp"} {
		id, got := job(show, options)
		if want := "/home/ada ada ada /bin/bash C.UTF-8 1 /tmp/jobs/" + id + " ada 700"; got != want {
			t.Errorf("a job with %q finds %q, want %q", options, got, want)
		}
	}
	// What a job brings along stays.
	if _, got := job("echo $LANG $PATH", "--export=LANG=de_DE.UTF-8,PATH=/opt/own/bin:/usr/bin:/bin"); got != "de_DE.UTF-8 /opt/own/bin:/usr/bin:/bin" {
		t.Errorf("a language and a PATH of its own became %q", got)
	}
	if _, got := job("echo $LANG-$LC_ALL", "--export=LC_ALL=C,PATH"); got != "-C" {
		t.Errorf("a job with a locale of its own has %q", got)
	}
	// Its steps have the same directory, and the directory goes with the job, whatever is in it.
	id, got := job(`mkdir -p $TMPDIR/a/b; touch $TMPDIR/a/b/c $TMPDIR/.hidden; chmod 500 $TMPDIR/a/b; chmod 0 $TMPDIR/a; srun bash -c 'echo $TMPDIR'`)
	if got != "/tmp/jobs/"+id {
		t.Errorf("a step has the directory %q", got)
	}
	if left := m.Run("ls", "-A", "/tmp/jobs"); strings.TrimSpace(left) != "" {
		t.Errorf("after the jobs' ends there is %q\n%s", left, m.Log("slurmd.log"))
	}
	// On a worker whose image makes none, a job has what everybody has.
	m.Run("rmdir", "/tmp/jobs")
	if _, got := job(`echo $TMPDIR`); got != "/tmp" {
		t.Errorf("where the image makes none, TMPDIR is %q", got)
	}
	if node := slurm("sinfo", "-h", "-N", "-o", "%t %E"); node != "idle none" {
		t.Errorf("the node is %s", node)
	}
}

// A job's directory of checkpoints: there before its script, its user's alone, the same after a requeue and for its steps, nobody else's
// of the same number, and gone with a job that wrote nothing.
func TestRealCheckpointDirectory(t *testing.T) {
	m := slurmtest.Start(t, "slurm-worker-cpu-0")
	installHooks(t, m, "prolog", "prolog.d/30-checkpoints", "epilog", "epilog.d/30-checkpoints", "task-prolog", "task-prolog.d/30-checkpoints")
	m.Run("sh", "-ec", `echo 'ada:x:2001:2001:Ada:/home/ada:/bin/bash' >> /etc/passwd; echo 'ada:x:2001:' >> /etc/group
install -d -o 2001 -g 2001 -m 700 /home/ada; chmod 755 `+m.Dir+`; mount -t tmpfs -o mode=1777 shared /shared; install -d -m 755 /shared/checkpoints`)
	parameters, err := hookParameters(site.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	file, err := hooks(site.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	without, files := withoutLoginShell(t, m)
	files[hooksFile] = file
	slurm, _ := startWorker(t, m, append(append(parameters, without...), parameter{"TaskProlog", programs + "/task-prolog"}), files)
	slurmtest.Eventually(t, time.Minute, "the node is idle", func() (bool, string) {
		out := slurm("sinfo", "-h", "-o", "%t")
		return out == "idle", out + m.Log("slurmd.log")
	})
	const ada = "setpriv --reuid=2001 --regid=2001 --clear-groups env -i HOME=/home/ada USER=ada PATH=/usr/bin:/bin SLURM_CONF="
	submit := func(script string, options ...string) string {
		t.Helper()
		if err := os.WriteFile(filepath.Join(m.Dir, "script"), []byte("#!/bin/bash\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(m.Run("sh", "-c", ada+m.Dir+"/slurm.conf sbatch --parsable --open-mode=append --chdir=/tmp --output=/home/ada/%A "+strings.Join(options, " ")+" "+m.Dir+"/script"))
	}
	is := func(id, want string) {
		t.Helper()
		slurmtest.Eventually(t, time.Minute, "job "+id+" is "+want, func() (bool, string) {
			state := slurm("squeue", "--noheader", "--states=all", "--format=%T", "--jobs="+id)
			return state == want, state + m.Log("slurmd.log")
		})
	}
	output := func(id string) string { return strings.TrimSpace(m.Run("cat", "/home/ada/"+id)) }

	const life = `d=$BERTH_CHECKPOINT_DIR; echo $d $(stat --format='%U %a' $d) $(cat $d/epoch 2>/dev/null); echo $((${SLURM_RESTART_COUNT:-0} + 1)) > $d/epoch
srun sh -c 'echo step $BERTH_CHECKPOINT_DIR $(cat $BERTH_CHECKPOINT_DIR/epoch)'
[ ${SLURM_RESTART_COUNT:-0} -gt 0 ] || { scontrol requeue $SLURM_JOB_ID; sleep 60; }`
	id := submit(life, "--requeue")
	slurmtest.Eventually(t, time.Minute, "the job waits again", func() (bool, string) {
		out := slurm("scontrol", "--oneliner", "show", "job", id)
		return strings.Contains(out, " Restarts=1 ") && strings.Contains(out, "JobState=PENDING "), out
	})
	slurm("scontrol", "update", "jobid="+id, "starttime=now") // Slurm holds a requeued job back for two minutes
	is(id, "COMPLETED")
	directory := "/shared/checkpoints/ada/" + id
	var lines []string
	for line := range strings.Lines(output(id)) {
		if strings.Contains(line, directory) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	want := []string{directory + " ada 700", "step " + directory + " 1", directory + " ada 700 1", "step " + directory + " 2"}
	if !slices.Equal(lines, want) {
		t.Errorf("the job wrote %q, want %q", lines, want)
	}

	// What a job has in its environment from another job's shell is that one's. A job that writes nothing leaves nothing.
	id = submit("echo $BERTH_CHECKPOINT_DIR", "--export=ALL,BERTH_CHECKPOINT_DIR="+directory)
	is(id, "COMPLETED")
	if got := output(id); got != "/shared/checkpoints/ada/"+id {
		t.Errorf("a job that another submitted has %q", got)
	}
	// Slurm lost its state and counts anew: the directory of that number is another job's.
	next, err := strconv.Atoi(id)
	if err != nil {
		t.Fatal(err)
	}
	old := "/shared/checkpoints/ada/" + strconv.Itoa(next+1)
	m.Run("sh", "-ec", "mkdir "+old+"; echo old > "+old+"/epoch; chown -R 2001:2001 "+old)
	id = submit("ls -A $BERTH_CHECKPOINT_DIR | wc -l")
	is(id, "COMPLETED")
	if got := output(id); got != "0" {
		t.Errorf("a job of a number that there was before finds %q files", got)
	}
	if left := strings.Fields(m.Run("sh", "-c", "cd /shared/checkpoints/ada; ls -d -- *")); len(left) != 2 || left[0] != filepath.Base(directory) || !strings.HasPrefix(left[1], filepath.Base(old)+".before-") {
		t.Errorf("in the end there are %q", left)
	}

	// Somebody else has taken the user's place, and root may not write: the home.
	m.Run("sh", "-ec", "rm -r /shared/checkpoints; install -d -o 2002 -g 2002 -m 777 /shared/checkpoints /shared/checkpoints/ada")
	id = submit("echo $BERTH_CHECKPOINT_DIR; touch $BERTH_CHECKPOINT_DIR/kept")
	is(id, "COMPLETED")
	if got := output(id); got != "/home/ada/checkpoints/"+id {
		t.Errorf("where it has none, %q", got)
	}
	m.Run("test", "-e", "/home/ada/checkpoints/"+id+"/kept")
	// The file server lets users alone write.
	m.Run("sh", "-ec", "rm -r /shared/checkpoints; install -d -o 65534 -m 1777 /shared/checkpoints")
	id = submit("stat --format='%n %U %a' $BERTH_CHECKPOINT_DIR")
	is(id, "COMPLETED")
	if got := output(id); got != "/shared/checkpoints/ada/"+id+" ada 700" {
		t.Errorf("where root may not write, %q", got)
	}
	if node := slurm("sinfo", "-h", "-N", "-o", "%t %E"); node != "idle none" {
		t.Errorf("the node is %s", node)
	}
}

// installHooks copies programs of the worker's image to where the image has them.
func installHooks(t *testing.T, m *slurmtest.Machine, names ...string) {
	t.Helper()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("../../../images/slurm-worker", name))
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(m.Dir, "hook")
		if err := os.WriteFile(copied, text, 0o755); err != nil {
			t.Fatal(err)
		}
		m.Run("install", "-D", "-m", "755", copied, programs+"/"+name)
	}
}

// withoutLoginShell is what the site's configuration has, for the Slurm of the machine, so that no job has a login shell started.
func withoutLoginShell(t *testing.T, m *slurmtest.Machine) (parameters []parameter, files map[string]string) {
	t.Helper()
	version := strings.Fields(m.Run("slurmctld", "-V"))[1]
	s := lab()
	s.Slurm.Version = version[:strings.LastIndex(version, ".")]
	all := build(t, s)
	files = map[string]string{}
	for line := range strings.Lines(all["slurm.conf"]) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key == "GetEnvTimeout" {
			parameters = append(parameters, parameter{key, value})
		}
	}
	if script := all[jobsubmit.FileName]; script != "" {
		files[jobsubmit.FileName] = script
		parameters = append(parameters, parameter{"JobSubmitPlugins", "lua"})
	}
	if len(parameters) == 0 {
		t.Fatalf("for Slurm %s nothing keeps slurmd from starting login shells", s.Slurm.Version)
	}
	return parameters, files
}

// A job that asks for the environment of a login shell, as every scrontab job does, ends no worker: in a pod slurmd may not make the
// namespaces that it would start the shell in, and ends where it tries. Held for the Slurm that the root file system has.
func TestRealLoginShell(t *testing.T) {
	m := slurmtest.Start(t, "slurm-worker-cpu-0")
	parameters, files := withoutLoginShell(t, m)
	lines := "ScronParameters=enable\n"
	for _, p := range parameters {
		lines += p.key + "=" + p.value + "\n"
	}
	slurm := m.Configure(lines+`SlurmctldParameters=enable_configless
PrologFlags=Alloc
NodeName=slurm-worker-cpu-0 NodeHostname=ctl CPUs=2 RealMemory=1000
PartitionName=cpu Nodes=slurm-worker-cpu-0 Default=YES State=UP
`, files)
	m.Run("sh", "-ec", `rm -f /etc/slurm/slurm.*; mkdir -p /run/slurm; echo 'ada:x:2001:2001:Ada:/home/ada:/bin/bash' >> /etc/passwd; echo 'ada:x:2001:' >> /etc/group
install -d -o 2001 -g 2001 -m 700 /home/ada; chmod 755 `+m.Dir)
	slurm.Slurmctld()
	m.Daemon("slurmd.log", "setpriv", "--bounding-set=-sys_admin", "env", "-u", "SLURM_CONF", "slurmd", "-D", "-N", "slurm-worker-cpu-0", "--conf-server", "ctl:6817")
	slurmtest.Eventually(t, time.Minute, "the node is idle", func() (bool, string) {
		out := slurm.Client("sinfo", "-h", "-o", "%t")
		return out == "idle", out + m.Log("slurmd.log")
	})
	ada := func(command string) string {
		t.Helper()
		return strings.TrimSpace(m.Run("setpriv", "--reuid=2001", "--regid=2001", "--clear-groups", "env", "-i", "HOME=/home/ada", "USER=ada", "PATH=/usr/bin:/bin",
			"OWN=brought", "SLURM_CONF="+slurm.File, "sh", "-c", "cd; "+command))
	}
	for options, want := range map[string]string{"--export=NONE": "ran", "--get-user-env": "ran brought", "--export=NONE --get-user-env": "ran"} {
		job := ada(`printf '#!/bin/sh\necho ran $OWN\n' > script; sbatch --parsable --output=%j ` + options + " script")
		slurm.Want(job, "COMPLETED")
		if got := ada("cat " + job); got != want {
			t.Errorf("a job with %s says %q, want %q", options, got, want)
		}
	}
	ada(`printf '* * * * * echo nightly >> /home/ada/nightly\n' > table; scrontab table`)
	slurmtest.Eventually(t, 150*time.Second, "the scrontab job has run", func() (bool, string) {
		out, _ := m.Command("cat", "/home/ada/nightly").Output()
		return strings.HasPrefix(string(out), "nightly\n"), slurm.Client("squeue", "--states=all") + m.Log("slurmd.log")
	})
	if log := m.Log("slurmd.log"); strings.Contains(log, "fatal") {
		t.Error(log)
	}
}

// L13: a worker gives its jobs the limits that the site declares, and does not start where its host allows less.
func TestRealUlimits(t *testing.T) {
	m := slurmtest.Start(t)
	installHooks(t, m, "start-slurmd")
	m.Run("sh", "-ec", "printf '#!/bin/sh\necho limits $(ulimit -n) $(ulimit -H -n) $(ulimit -c) $(ulimit -s) $(ulimit -l) $(grep -c ^Max.core.file.size.*1048576.*1048576 /proc/self/limits)\n' > /usr/local/bin/slurmd; printf '#!/bin/sh\n' > "+programs+"/module-directories; chmod 755 /usr/local/bin/slurmd "+programs+"/module-directories")
	start := func(runtime, limits string) (string, error) {
		out, err := m.Command("setpriv", "--bounding-set=-sys_resource", "env", "PATH=/usr/local/bin:/usr/bin:/bin", "BERTH_CONTROLLER=ctl", "BERTH_ULIMITS="+limits,
			"sh", "-c", runtime+"; exec "+programs+"/start-slurmd").CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	if got, err := start("ulimit -S -n 500", "core=0 memlock=64 nofile=600 stack=4096"); err != nil || got != "limits 600 600 0 4096 64 0" {
		t.Errorf("within what the runtime allows: %q %v", got, err)
	}
	if got, err := start("true", "core=2048"); err != nil || !strings.HasSuffix(got, " 1") { // blocks of 512 bytes
		t.Errorf("core dumps of 1 MiB: %q %v", got, err)
	}
	got, err := start("ulimit -n 300", "nofile=600")
	if err == nil || !strings.Contains(got, "the site declares nofile=600, and the host's container runtime allows nofile 300") || strings.Contains(got, "limits ") {
		t.Errorf("above what the runtime allows: %q %v", got, err)
	}
	if got, err := start("ulimit -n 300", ""); err != nil || !strings.HasPrefix(got, "limits 300 300 ") {
		t.Errorf("without any: %q %v", got, err)
	}
}
