package jobsubmit

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-hpc/berth/components/guard/slurmtest"
)

// controllers are two real slurmctlds on one machine, alike but for the plugin, so that what the plugin adds is measured by
// submitting to the one and the other in turn.
type controllers struct {
	t       *testing.T
	machine *slurmtest.Machine
	socket  string
	service string
	serve   atomic.Pointer[func(net.Conn)]
}

const (
	withPlugin = "with"
	without    = "without"
)

func newControllers(t *testing.T) *controllers {
	c := &controllers{t: t, machine: slurmtest.Start(t, "slurm-worker-cpu-0", "slurm-worker-cpu-1")}
	c.socket, c.service = filepath.Join(c.machine.Dir, "a.sock"), filepath.Join(c.machine.Dir, "service")
	for i, name := range []string{withPlugin, without} {
		for _, dir := range []string{"conf", "state", "runtime"} {
			if err := os.MkdirAll(filepath.Join(c.machine.Dir, name, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		conf := fmt.Sprintf(`ClusterName=berth
SlurmctldHost=ctl
SlurmctldPort=%[2]d
SlurmdPort=6818
SlurmUser=root
AuthType=auth/slurm
CredType=cred/slurm
AuthInfo=use_client_ids
StateSaveLocation=%[1]s/state
SlurmdSpoolDir=%[1]s/spool
SlurmctldPidFile=%[1]s/slurmctld.pid
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
MailProg=/bin/true
MaxJobCount=100000
PriorityType=priority/multifactor
PriorityWeightJobSize=1000
NodeName=slurm-worker-cpu-[0-1] CPUs=2 RealMemory=1000 State=CLOUD
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=600
PartitionName=cpu Nodes=slurm-worker-cpu-[0-1] Default=YES State=DOWN
`, filepath.Join(c.machine.Dir, name), 6817+10*i)
		if name == withPlugin {
			conf += "JobSubmitPlugins=lua\nSlurmctldDebug=debug\n"
		}
		c.write(name, "slurm.conf", conf)
		c.write(name, "cgroup.conf", "CgroupPlugin=disabled\n")
		c.write(name, "plugstack.conf", "\n")
	}
	return c
}

func (c *controllers) write(which, name, text string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.machine.Dir, which, "conf", name), []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// script gives the plugin its script. slurmctld takes it up at its next call, with the breakers closed.
func (c *controllers) script(s Settings) {
	c.t.Helper()
	text, err := Script(s)
	if err != nil {
		c.t.Fatal(err)
	}
	// slurmctld looks at the file's time in whole seconds.
	path := filepath.Join(c.machine.Dir, withPlugin, "conf", FileName)
	stamp := time.Now()
	if info, err := os.Stat(path); err == nil && !stamp.After(info.ModTime().Add(time.Second)) {
		stamp = info.ModTime().Add(2 * time.Second)
	}
	c.write(withPlugin, FileName, text)
	if err := os.Chtimes(path, stamp, stamp); err != nil {
		c.t.Fatal(err)
	}
}

func (c *controllers) conf(which string) string {
	return filepath.Join(c.machine.Dir, which, "conf", "slurm.conf")
}

func (c *controllers) start() {
	c.t.Helper()
	for _, which := range []string{withPlugin, without} {
		c.machine.Daemon(which+".log", "env", "RUNTIME_DIRECTORY="+filepath.Join(c.machine.Dir, which, "runtime"), "slurmctld", "-D", "-f", c.conf(which))
		slurmtest.Eventually(c.t, time.Minute, "slurmctld answers", func() (bool, string) {
			out, _ := c.command(which, "scontrol", "ping").CombinedOutput()
			return strings.Contains(string(out), "is UP"), string(out) + c.machine.Log(which+".log")
		})
	}
}

// command runs one of Slurm's commands; clients find the credential socket of the one that they speak to.
func (c *controllers) command(which, name string, args ...string) *exec.Cmd {
	return c.machine.Command("env", append([]string{
		"SLURM_CONF=" + c.conf(which), "SLURM_SACK_SOCKET=" + filepath.Join(c.machine.Dir, which, "runtime", "sack.socket"), name,
	}, args...)...)
}

func (c *controllers) run(which, name string, args ...string) string {
	c.t.Helper()
	out, err := c.command(which, name, args...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s %s: %v\n%s\n%s", name, strings.Join(args, " "), err, out, c.machine.Log(which+".log"))
	}
	return strings.TrimSpace(string(out))
}

// listen serves the socket, with whatever serve is at the time of a connection.
func (c *controllers) listen() net.Listener {
	c.t.Helper()
	listener, err := net.Listen("unix", c.socket)
	if err != nil {
		c.t.Fatal(err)
	}
	go accept(listener, func(conn net.Conn) { (*c.serve.Load())(conn) })
	return listener
}

func (c *controllers) serving(f func(net.Conn)) { c.serve.Store(&f) }

// listenTCP listens inside the machine's network namespace.
func (c *controllers) listenTCP() net.Listener {
	c.t.Helper()
	pid, err := strconv.Atoi(c.machine.Prefix()[2])
	if err != nil {
		c.t.Fatal(err)
	}
	made := make(chan net.Listener)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err == nil {
			err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET)
		}
		if err != nil {
			c.t.Error(err)
			close(made)
			return
		}
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			c.t.Error(err)
		}
		made <- listener
	}()
	listener := <-made
	if listener == nil {
		c.t.FailNow()
	}
	c.t.Cleanup(func() { listener.Close() })
	return listener
}

// submissions submits n jobs to each of the two in turn from one shell, and returns how long each sbatch took.
func (c *controllers) submissions(n int) (with, base []time.Duration) {
	c.t.Helper()
	script := filepath.Join(c.machine.Dir, "submit.sh")
	text := `cd /tmp
for i in $(seq "$1"); do
  for which in with without; do
    export SLURM_CONF=` + c.machine.Dir + `/$which/conf/slurm.conf SLURM_SACK_SOCKET=` + c.machine.Dir + `/$which/runtime/sack.socket
    from=${EPOCHREALTIME/[.,]/}
    sbatch --parsable --job-name=train --time=10 --output=/dev/null --wrap true >/dev/null || echo failed $which
    echo $which $((${EPOCHREALTIME/[.,]/} - from))
  done
done
`
	if err := os.WriteFile(script, []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
	out, err := c.machine.Command("bash", script, strconv.Itoa(n)).CombinedOutput()
	if err != nil || strings.Contains(string(out), "failed") {
		c.t.Fatalf("a submission failed: %v\n%s", err, out)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		which, number, _ := strings.Cut(line, " ")
		micro, err := strconv.Atoi(number)
		if err != nil {
			c.t.Fatalf("%q: %v", line, err)
		}
		if which == withPlugin {
			with = append(with, time.Duration(micro)*time.Microsecond)
		} else {
			base = append(base, time.Duration(micro)*time.Microsecond)
		}
	}
	return with, base
}

var tookPattern = regexp.MustCompile(`advisor: .*took=([0-9.]+)ms`)

// inside are the times that the script logged, from an offset of the log on.
func (c *controllers) inside(from int) []time.Duration {
	var times []time.Duration
	for _, match := range tookPattern.FindAllStringSubmatch(c.machine.Log(withPlugin + ".log")[from:], -1) {
		ms, err := strconv.ParseFloat(match[1], 64)
		if err != nil {
			c.t.Fatal(err)
		}
		times = append(times, time.Duration(ms*float64(time.Millisecond)))
	}
	return times
}

func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := append([]time.Duration(nil), times...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i] < sorted[j] })
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond)) }

// real is the shipped deadline; a starved machine may exceed it by what the kernel's scheduler takes.
const (
	real  = 20 * time.Millisecond
	slack = 300 * time.Millisecond
)

func (c *controllers) settings(mode string) Settings {
	return Settings{Mode: mode, Deadline: real, MaxBoost: 1000, Socket: c.socket, Service: c.service}
}

// rounds is how many submissions a row of the table has: few to see that it works, many to measure.
func rounds() int {
	if n, err := strconv.Atoi(os.Getenv("BERTH_FAULT_ROUNDS")); err == nil && n > 0 {
		return n
	}
	return 8
}

// Every way in which an advisor can be broken, against a real slurmctld: each submission succeeds, and none waits longer than
// the deadline. With BERTH_FAULT_ROUNDS=200 the table that it logs is a measurement.
func TestFaults(t *testing.T) {
	c := newControllers(t)
	c.script(c.settings(Shadow))
	c.start()
	hole := c.blackHole()
	tcp := c.listenTCP()
	go accept(tcp, func(conn net.Conn) { (*c.serve.Load())(conn) })
	var listener net.Listener
	stop := make(chan struct{})
	hang := func(net.Conn) {
		select {
		case <-time.After(10 * time.Second):
		case <-stop:
		}
	}
	defer close(stop)
	service := func(text string) {
		if err := os.WriteFile(c.service, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, tcpPort, _ := net.SplitHostPort(tcp.Addr().String())
	healthy := answering(liveAnswer)
	rows := []struct {
		name   string
		listen bool
		serve  func(net.Conn)
		tcp    string
		during func() func()
	}{
		{name: "healthy", listen: true, serve: healthy},
		{name: "healthy over TCP", serve: healthy, tcp: "127.0.0.1 " + tcpPort + " token\n"},
		{name: "hung for 10 s", listen: true, serve: hang},
		{name: "hung over TCP", serve: hang, tcp: "127.0.0.1 " + tcpPort + " token\n"},
		{name: "refused", serve: healthy},
		{name: "refused over TCP", serve: healthy, tcp: "127.0.0.1 1 token\n"},
		{name: "black-holed", serve: healthy, tcp: hole + " 80 token\n"},
		{name: "100 MB answer", listen: true, serve: func(conn net.Conn) {
			readRequest(conn)
			block := make([]byte, 1<<20)
			for range 100 {
				if _, err := conn.Write(block); err != nil {
					return
				}
			}
		}},
		{name: "garbage", listen: true, serve: func(conn net.Conn) { readRequest(conn); _, _ = conn.Write([]byte("\x00\xffgarbage\n")) }},
		{name: "half-closed", listen: true, serve: func(conn net.Conn) {
			readRequest(conn)
			_ = conn.(interface{ CloseWrite() error }).CloseWrite()
			hang(conn)
		}},
		{name: "trickle of a byte a second", listen: true, serve: func(conn net.Conn) {
			readRequest(conn)
			for _, b := range []byte("HTTP/1.1 200") {
				if _, err := conn.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}},
		// A name instead of an address is not looked up, whether DNS answers or not.
		{name: "DNS gone", serve: healthy, tcp: "advisor.advisor.svc 8080 token\n"},
		{name: "socket file replaced", listen: true, serve: healthy, during: func() func() {
			return c.repeat(150*time.Millisecond, func() {
				listener.Close()
				listener = c.listen()
			})
		}},
		{name: "restarts meanwhile", listen: true, serve: healthy, during: func() func() {
			return c.repeat(300*time.Millisecond, func() {
				listener.Close()
				time.Sleep(300 * time.Millisecond)
				listener = c.listen()
			})
		}},
	}
	table := []string{fmt.Sprintf("%-28s %27s %18s %27s %8s", "sbatch and plugin, ms", "added to sbatch p50/p99", "sbatch alone p50", "in the plugin p50/p99/max", "answers")}
	for _, row := range rows {
		c.script(c.settings(Shadow)) // closes the breakers
		service(row.tcp)
		c.serving(row.serve)
		if row.listen {
			listener = c.listen()
		}
		from := len(c.machine.Log(withPlugin + ".log"))
		end := func() {}
		if row.during != nil {
			end = row.during()
		}
		with, base := c.submissions(rounds())
		end()
		if row.listen {
			listener.Close()
		}
		inside := c.inside(from)
		if len(inside) != rounds() {
			t.Errorf("%s: %d submissions and %d times in the log", row.name, rounds(), len(inside))
		}
		if worst := quantile(inside, 1); worst > real+slack {
			t.Errorf("%s: slurmctld was held for %s", row.name, worst)
		}
		answers := strings.Count(c.machine.Log(withPlugin + ".log")[from:], "advisor: user=")
		if (row.name == "healthy" || row.name == "healthy over TCP") && answers == 0 {
			t.Errorf("%s: nobody answered; the row shows nothing\n%s", row.name, c.machine.Log(withPlugin + ".log")[from:])
		}
		table = append(table, fmt.Sprintf("%-28s %27s %18s %27s %8d", row.name,
			ms(quantile(with, .5)-quantile(base, .5))+" / "+ms(quantile(with, .99)-quantile(base, .99)), ms(quantile(base, .5)),
			ms(quantile(inside, .5))+" / "+ms(quantile(inside, .99))+" / "+ms(quantile(inside, 1)), answers))
	}
	for _, which := range []string{withPlugin, without} {
		table = append(table, fmt.Sprintf("sdiag %-7s %s", which, strings.Join(strings.Fields(grep(c.run(which, "sdiag"), "REQUEST_SUBMIT_BATCH_JOB")), " ")))
	}
	t.Log("\n" + strings.Join(table, "\n"))
}

// While the advisor hangs and jobs are submitted, slurmctld's other callers are answered.
func TestOthersAreAnsweredMeanwhile(t *testing.T) {
	c := newControllers(t)
	s := c.settings(Shadow)
	s.Failures = 1 << 30 // the breaker never opens, so that every submission waits
	c.script(s)
	c.start()
	stop := make(chan struct{})
	c.serving(func(net.Conn) { <-stop })
	listener := c.listen()
	defer listener.Close()
	defer close(stop)
	measure := func() (ping, queue time.Duration) {
		from := time.Now()
		if out := c.run(withPlugin, "scontrol", "ping"); !strings.Contains(out, "is UP") {
			t.Error(out)
		}
		ping = time.Since(from)
		from = time.Now()
		c.run(withPlugin, "squeue", "-h")
		return ping, time.Since(from)
	}
	var quietPing, quietQueue, busyPing, busyQueue []time.Duration
	for range 5 {
		p, q := measure()
		quietPing, quietQueue = append(quietPing, p), append(quietQueue, q)
	}
	done := make(chan struct{})
	go func() { defer close(done); c.submissions(20) }()
	for submitting := true; submitting; {
		p, q := measure()
		busyPing, busyQueue = append(busyPing, p), append(busyQueue, q)
		select {
		case <-done:
			submitting = false
		default:
		}
	}
	for what, times := range map[string][2][]time.Duration{"scontrol ping": {quietPing, busyPing}, "squeue": {quietQueue, busyQueue}} {
		t.Logf("%s: p50 %s ms alone, p50 %s max %s ms while each submission hangs", what, ms(quantile(times[0], .5)), ms(quantile(times[1], .5)), ms(quantile(times[1], 1)))
		if worst := quantile(times[1], 1); worst > 5*time.Second { // a broken deadline is 10 s a submission
			t.Errorf("%s took %s", what, worst)
		}
	}
	// LuaSocket waits whole milliseconds, so that a wait ends up to one before the deadline.
	if inside := c.inside(0); quantile(inside, .5) < real-2*time.Millisecond {
		t.Errorf("the advisor did not hang: %v", inside)
	}
}

// Live, on a real slurmctld: the boost is the site factor and adds to the others, which go on; arrays and components of
// heterogeneous jobs are advised each by one call; changes of jobs go through.
func TestLiveOnRealSlurmctld(t *testing.T) {
	c := newControllers(t)
	s := c.settings(Live)
	s.RequireTimeLimit = true
	s.Before = `if job_desc.name == "broken" then error("a bug") end`
	c.script(s)
	c.start()
	var asked atomic.Int32
	c.serving(func(conn net.Conn) { asked.Add(1); answering(liveAnswer)(conn) })
	defer c.listen().Close()
	submit := func(args ...string) string {
		t.Helper()
		return c.run(withPlugin, "sbatch", append([]string{"--parsable", "--chdir=/tmp", "--output=/dev/null"}, args...)...)
	}
	site := func(job string) string { return c.run(withPlugin, "sprio", "-h", "-j", job, "-o", "%S") }

	first := submit("--time=10", "--wrap", "true")
	if got := site(first); got != "120" {
		t.Fatalf("the site factor is %q\n%s", got, c.machine.Log(withPlugin+".log"))
	}
	shown := c.run(withPlugin, "scontrol", "show", "job", first)
	if !strings.Contains(shown, "AdminComment=advisor: boost=120 value=0.83 checkpoint=sha256:abc took=") {
		t.Error(shown)
	}
	for name, args := range map[string][]string{
		"a user's nice": {"--nice=100"}, "a user's priority": {"--priority=77"}, "a held job": {"-H"},
	} {
		before := asked.Load()
		job := submit(append(args, "--time=10", "--wrap", "true")...)
		if asked.Load() != before || strings.Contains(c.run(withPlugin, "scontrol", "show", "job", job), "AdminComment=advisor") {
			t.Errorf("%s is not respected", name)
		}
	}
	for name, c := range map[string]struct {
		calls int32
		args  []string
	}{
		"an array":            {1, []string{"--time=10", "--array=0-999", "--wrap", "true"}},
		"a heterogeneous job": {2, []string{"--time=10", "-n1", ":", "-n1", "--wrap", "true"}},
		"a name with JSON":    {1, []string{"--time=10", "--job-name", `"},{"boost":9`, "--comment", strings.Repeat("x", 1024), "--wrap", `echo '{"a": "b"}' #` + strings.Repeat("x", 65536)}},
		"another name":        {1, []string{"--time=10", "--job-name", "zwei\nZeilen é☃\xff", "--wrap", "true"}},
		"a failing rule":      {1, []string{"--time=10", "--job-name", "broken", "--wrap", "true"}},
	} {
		before := asked.Load()
		submit(c.args...)
		if calls := asked.Load() - before; calls != c.calls {
			t.Errorf("%s: the advisor was asked %d times, want %d", name, calls, c.calls)
		}
	}
	out, err := c.command(withPlugin, "sbatch", "--chdir=/tmp", "--wrap", "true").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "This site wants every job to name a time limit") {
		t.Errorf("a job without the required time limit: %v %s", err, out)
	}
	before := asked.Load()
	c.run(withPlugin, "scontrol", "update", "jobid="+first, "TimeLimit=5")
	if asked.Load() != before || site(first) != "120" {
		t.Error("a change of a job asked the advisor, or lost the boost")
	}

	// Case D1: the other factors go on counting. In a job with a set priority they would all be 0.
	if size := c.run(withPlugin, "sprio", "-h", "-j", first, "-o", "%J"); size == "0" {
		t.Error("the job's size does not count any more")
	}
	c.run(withPlugin, "scontrol", "update", "jobid="+first, "Nice=30")
	if nice := c.run(withPlugin, "sprio", "-h", "-j", first, "-o", "%N"); nice != "30" {
		t.Errorf("nice is %s", nice)
	}
	if strings.Contains(c.machine.Log(withPlugin+".log"), "an error of job_submit.lua itself") {
		t.Error(c.machine.Log(withPlugin + ".log"))
	}
}

// blackHole is an address to which packets go and vanish.
func (c *controllers) blackHole() string {
	c.t.Helper()
	pid := c.machine.Prefix()[2]
	out, err := exec.Command("nsenter", "-t", pid, "-n", "--", "ip", "neigh", "add", "10.99.0.66", "lladdr", "02:00:00:00:00:66", "dev", "berth0").CombinedOutput()
	if err != nil {
		c.t.Fatalf("%v %s", err, out)
	}
	return "10.99.0.66"
}

// repeat does something again and again, until the returned function is called.
func (c *controllers) repeat(every time.Duration, do func()) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(every):
				do()
			}
		}
	}()
	return func() { close(stop); <-done }
}

func grep(text, what string) string {
	for _, line := range strings.Split(text, "\n") {
		if strings.Contains(line, what) {
			return line
		}
	}
	return "-"
}
