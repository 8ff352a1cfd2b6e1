package backup

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/guard/slurmtest"
	"github.com/berth-hpc/berth/renderer/site"
)

const mariadbConf = `[mariadbd]
innodb_buffer_pool_size = 64M
innodb_log_file_size = 16M
skip_name_resolve = ON
bind_address = 127.0.0.1
tmpdir = /tmp
`

// cluster is a real Slurm with a real MariaDB, whose data lie on volumes as the chart mounts them.
type cluster struct {
	*slurmtest.Slurm
	t     *testing.T
	paths Paths
	// cut ends what is sent to the database after so many bytes.
	cut int64
}

func newCluster(t *testing.T) *cluster {
	m := slurmtest.Start(t, "w-0", "w-1")
	c := &cluster{t: t, paths: Paths{State: m.Dir + "/state-volume", Database: m.Dir + "/database-volume"}}
	c.Slurm = m.Configure(slurmtest.Accounting+fmt.Sprintf(`ClusterName=lab
StateSaveLocation=%s/state
AccountingStorageEnforce=associations
NodeName=w-0 NodeHostname=ctl Port=7000 CPUs=4 RealMemory=1000
NodeName=w-1 NodeHostname=ctl Port=7001 CPUs=4 RealMemory=1000
PartitionName=cpu Nodes=ALL Default=YES State=UP
`, c.paths.State), nil)
	for _, name := range []string{"start-mariadb", "mariadb-answers"} {
		text, err := os.ReadFile("../../images/slurm-database/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(m.Dir, name), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.Write("mariadb.cnf", mariadbConf)
	c.Write("password", "test")
	// What else is on the state volume.
	m.Run("sh", "-c", `set -e; chmod 1777 /tmp; cd "$1"; mkdir -p state conf/1e1c advisor/log; chmod 0700 state; echo conf > conf/1e1c/slurm.conf; ln -s 1e1c conf/current; echo old > advisor/log/1`, "volume", m.Run("sh", "-c", "mkdir -p "+c.paths.State+"; printf %s "+c.paths.State))
	m.Run("sh", "-c", "mkdir -p /run/mysqld "+c.paths.Database+"; chown 64032:64032 /run/mysqld "+c.paths.Database)
	c.start()
	return c
}

// asMariaDB goes before what runs in the database's container.
func (c *cluster) asMariaDB(argv ...string) []string {
	return append([]string{"setpriv", "--reuid=64032", "--regid=64032", "--clear-groups", "env", "BERTH_DATA=" + c.paths.Database + "/data", "BERTH_RUN=/run/mysqld",
		"BERTH_MARIADB_CONF=" + c.Dir + "/mariadb.cnf", "BERTH_DATABASE_PASSWORD=" + c.Dir + "/password"}, argv...)
}

func (c *cluster) start() {
	c.t.Helper()
	argv := c.asMariaDB("sh", c.Dir+"/start-mariadb")
	c.Daemon("mariadbd.log", argv[0], argv[1:]...)
	slurmtest.Eventually(c.t, time.Minute, "MariaDB answers", func() (bool, string) {
		argv := c.asMariaDB("sh", c.Dir+"/mariadb-answers")
		out, err := c.Command(argv[0], argv[1:]...).CombinedOutput()
		return err == nil, string(out) + c.Log("mariadbd.log")
	})
	c.Slurmdbd()
	c.Slurmctld()
}

func (c *cluster) stop() {
	c.t.Helper()
	c.Stop("slurmctld.pid")
	c.Stop("slurmdbd.pid")
	c.Run("sh", "-c", `pid=$(cat /run/mysqld/mysqld.pid) && kill "$pid" && while [ -d "/proc/$pid" ]; do sleep 0.1; done`)
}

// exec is kubectl exec here.
func (c *cluster) exec(ctx context.Context, at Container, stdin io.Reader, stdout io.Writer, argv ...string) error {
	if strings.Contains(at.Pod, "database") {
		argv = c.asMariaDB(argv...)
		if c.cut > 0 && stdin != nil {
			stdin = io.LimitReader(stdin, c.cut)
		}
	}
	words := append(append(c.Prefix(), "env", "SLURM_CONF="+c.File, "TZ=UTC"), argv...)
	command := exec.CommandContext(ctx, words[0], words[1:]...)
	var stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = stdin, stdout, &stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("in pod %s: %w: %s", at.Pod, err, stderr.String())
	}
	return nil
}

type realServices struct{ *cluster }

func (s realServices) Stop(context.Context) error    { s.stop(); return nil }
func (s realServices) Stopped(context.Context) error { return nil }
func (s realServices) Close(context.Context) error   { return nil }
func (s realServices) Start(context.Context) error   { s.start(); return nil }
func (s realServices) Open(context.Context) (Container, Container, error) {
	return Container{"slurm-restore-state", "slurmctld"}, Container{"slurm-restore-database", "mariadb"}, nil
}

func (c *cluster) submit(options ...string) string {
	c.t.Helper()
	script := "until [ -e " + c.Dir + "/go-$SLURM_JOB_ID ]; do sleep 0.2; done"
	return c.Client("sbatch", append([]string{"--parsable", "--time=30", "--account=vision", "--chdir=/tmp", "--output=/dev/null", "--wrap", script}, options...)...)
}

func (c *cluster) letGo(job string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.Dir, "go-"+job), nil, 0o644); err != nil {
		c.t.Fatal(err)
	}
	c.Want(job, "COMPLETED")
}

// records is what accounting has of a job.
func (c *cluster) records(job string) string {
	c.t.Helper()
	return c.Client("sacct", "--allusers", "--allocations", "--duplicates", "--noheader", "--parsable2", "--format=state,account", "--jobs="+job)
}

// A backup of a cluster at work, then both the database and the state deleted, then the restore: what was accounted is, who waited
// waits with the script that was submitted, who ran runs, and what came after the backup is gone.
func TestRealBackupAndRestore(t *testing.T) {
	c := newCluster(t)
	for _, argv := range [][]string{{"add", "account", "vision"}, {"add", "user", "root", "account=vision"}, {"add", "qos", "urgent"}} {
		c.Client("sacctmgr", append([]string{"--immediate"}, argv...)...)
	}
	c.Slurmd("w-0", "w-1")
	c.Client("scontrol", "create", "reservation", "ReservationName=class", "Users=root", "StartTime=now+100days", "Duration=60", "Nodes=w-0")
	ended := c.submit("--comment=before")
	c.letGo(ended)
	runs, endsMeanwhile := c.submit("--nodelist=w-0"), c.submit("--nodelist=w-1")
	c.Want(runs, "RUNNING")
	c.Want(endsMeanwhile, "RUNNING")

	// While the backup is made, jobs come without a pause. Those that were there before it began are in it.
	var last string
	stop, storm := make(chan struct{}), sync.WaitGroup{}
	storm.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = c.Command("env", "SLURM_CONF="+c.File, "sbatch", "--hold", "--account=vision", "--chdir=/tmp", "--output=/dev/null", "--wrap", "true").Run()
			}
		}
	})
	held := c.submit("--hold", "--comment=just before")
	one := &site.Site{Name: "lab"}
	one.Cluster.Name, one.Slurm.Version = "lab", release(strings.Fields(c.Client("slurmctld", "-V"))[1])
	var file bytes.Buffer
	m, err := (&Source{Site: one, Exec: c.exec, Paths: c.paths, Settle: 8 * time.Second, Patience: time.Minute}).Save(t.Context(), &file)
	close(stop)
	storm.Wait()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes: %+v", file.Len(), m)
	if release(m.Slurm) != one.Slurm.Version || !strings.Contains(m.MariaDB, "-MariaDB") || m.Jobs["RUNNING"] != 2 || m.Jobs["PENDING"] < 1 || m.Tables < 20 {
		t.Errorf("the manifest says %+v", m)
	}
	if left := c.Run("sh", "-c", "ls -A "+c.paths.State); left != "advisor\nconf\nstate\n" {
		t.Errorf("on the volume after the backup: %q", left)
	}
	archive, err := Open(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	c.letGo(endsMeanwhile)
	last = c.submit("--comment=after", "--hold")
	c.Run("sh", "-c", "echo new >> "+c.paths.State+"/advisor/log/1")

	// Both are deleted; the cluster starts with nothing, as its pods do on new volumes.
	c.stop()
	c.Run("sh", "-c", "rm -rf "+c.paths.State+"/state/* "+c.paths.State+"/conf "+c.paths.Database+"/*")
	c.start()
	if out := c.Client("sacctmgr", "--noheader", "--parsable2", "show", "account", "format=account"); strings.Contains(out, "vision") {
		t.Fatalf("nothing was deleted: %s", out)
	}

	restore := func() error {
		return (&Restoration{Site: one, Archive: archive, Services: realServices{c}, Exec: c.exec, Paths: c.paths, Say: t.Logf, Patience: 5 * time.Minute}).Run(t.Context())
	}
	// The connection breaks while the dump is sent: nothing changes.
	c.cut = 20000
	if err := restore(); err == nil || !strings.Contains(err.Error(), "nothing was restored, all is as it was: load the database") {
		t.Fatalf("a dump that was cut off: %v", err)
	}
	if left := c.Run("sh", "-c", "ls -A "+c.paths.State+" "+c.paths.Database); strings.Contains(left, ".") {
		t.Errorf("after a restore that failed: %s", left)
	}
	c.cut = 0
	if err := restore(); err != nil {
		t.Fatal(err)
	}

	if got := c.records(ended); got != "COMPLETED|vision" {
		t.Errorf("of the job that had ended sacct has %q", got)
	}
	if out := c.Client("sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name"); !strings.Contains(out, "urgent") {
		t.Errorf("QOS: %s", out)
	}
	if out := c.Client("scontrol", "show", "reservation", "class"); !strings.Contains(out, "Nodes=w-0") {
		t.Errorf("the reservation: %s", out)
	}
	if out := c.Client("scontrol", "show", "job", held); !strings.Contains(out, "Reason=JobHeldUser") || !strings.Contains(out, "Comment=just before") {
		t.Errorf("the held job: %s", out)
	}
	if out := c.Client("scontrol", "write", "batch_script", held, "-"); !strings.Contains(out, "go-$SLURM_JOB_ID") {
		t.Errorf("its script: %s", out)
	}
	if out := c.Client("squeue", "--all", "--noheader", "--states=all", "--format=%i %k"); strings.Contains(out, " after") {
		t.Errorf("job %s of after the backup is in the queue: %s", last, out)
	}
	if got := c.Run("sh", "-c", "cd "+c.paths.State+"; cat conf/current/slurm.conf advisor/log/1; find . "+c.paths.Database+" -maxdepth 1 -name '.?*'"); got != "conf\nold\nnew\n" {
		t.Errorf("on the volumes: %q", got)
	}
	// Its slurmd has run it all the while.
	c.Want(runs, "RUNNING")
	c.letGo(runs)
	slurmtest.Eventually(t, time.Minute, "the job that ran has its record", func() (bool, string) {
		got := c.records(runs)
		return got == "COMPLETED|vision", got
	})
	c.Client("scontrol", "release", held)
	c.letGo(held)
	c.letGo(c.submit("--nodelist=w-0"))
}
