package secrets

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/guard/slurmtest"
)

// rotation is a Slurm of one slurmctld and two slurmds, each with a key file of its own, as pods have: a new version of the Secret
// reaches one node early, then slurmctld, and the other node late.
type rotation struct {
	*slurmtest.Slurm
	t *testing.T
}

func (r *rotation) keyFile(daemon string) string {
	return filepath.Join(r.Dir, "keys", daemon+".jwks")
}

// deliver gives a daemon the set and makes all daemons read theirs, as the guard does.
func (r *rotation) deliver(daemon string, set keySet) {
	r.t.Helper()
	data, err := set.data()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(r.keyFile(daemon), data[keySetFile], 0o600); err != nil {
		r.t.Fatal(err)
	}
	before := strings.Count(r.Log(daemon), " version ")
	r.Client("scontrol", "reconfigure")
	slurmtest.Eventually(r.t, 30*time.Second, daemon+" starts itself anew", func() (bool, string) {
		return strings.Count(r.Log(daemon), " version ") > before, r.Log(daemon)
	})
	r.idle()
}

func (r *rotation) idle() {
	r.t.Helper()
	slurmtest.Eventually(r.t, 30*time.Second, "both nodes answer", func() (bool, string) {
		out := r.Client("sinfo", "-h", "-N", "-o", "%N %T")
		return !strings.ContainsAny(out, "*") && !strings.Contains(out, "down") && !strings.Contains(out, "drain"), out + r.Log("slurmctld")
	})
}

// long starts a job on a node that runs until it is let go.
func (r *rotation) long(node string) (id string) {
	r.t.Helper()
	id = r.Client("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--nodelist="+node, "--wrap",
		"until [ -e "+r.Dir+"/go-$SLURM_JOB_ID ]; do sleep 0.2; done")
	r.Want(id, "RUNNING")
	return id
}

func (r *rotation) letGo(id string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.Dir, "go-"+id), nil, 0o644); err != nil {
		r.t.Fatal(err)
	}
	r.Want(id, "COMPLETED")
}

// short runs a whole job on each node: launched, run, and its end reported.
func (r *rotation) short() {
	r.t.Helper()
	for _, node := range []string{"late", "early"} {
		r.Want(r.Client("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--nodelist="+node, "--wrap", "true"), "COMPLETED")
	}
}

func (r *rotation) refused() []string {
	var lines []string
	for _, log := range []string{"slurmctld", "late", "early"} {
		for line := range strings.Lines(r.Log(log)) {
			if strings.Contains(line, "could not find kid") || strings.Contains(line, "jwt_decode (with key") || strings.Contains(line, "expired") {
				lines = append(lines, log+": "+line)
			}
		}
	}
	return lines
}

// A rotation on a real Slurm, from the single key of an old site to the second rotation's end: a job that was started before each
// step goes on and its end arrives, whichever daemon has read which version, and no message is refused.
func TestRotationLosesNoJob(t *testing.T) {
	r := &rotation{t: t, Slurm: slurmtest.Start(t, "late", "early").Configure(`SlurmctldDebug=debug
SlurmdDebug=debug
NodeName=late NodeHostname=ctl Port=7000 CPUs=8 RealMemory=1000
NodeName=early NodeHostname=ctl Port=7001 CPUs=8 RealMemory=1000
PartitionName=cpu Nodes=ALL Default=YES State=UP
`, nil)}
	daemon := func(log string, words ...string) {
		r.Daemon(log, "env", append([]string{"SLURM_SACK_JWKS=" + r.keyFile(log), "SLURM_CONF=" + r.File}, words...)...)
	}
	daemon("slurmctld", "slurmctld", "-D")
	daemon("late", "slurmd", "-D", "-N", "late")
	daemon("early", "slurmd", "-D", "-N", "early")
	slurmtest.Eventually(t, time.Minute, "slurmctld answers", func() (bool, string) {
		out, _ := r.Command("env", "SLURM_CONF="+r.File, "scontrol", "ping").CombinedOutput()
		return strings.Contains(string(out), "is UP"), string(out) + r.Log("slurmctld")
	})
	r.idle()

	single, err := os.ReadFile(r.Key("slurm.key"))
	if err != nil {
		t.Fatal(err)
	}
	old, err := readKeySet(map[string][]byte{singleKeyFile: single})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	published, only, err := old.rotate(now)
	if err != nil || !only {
		t.Fatalf("the first rotation of a single key: published %v, %v", only, err)
	}
	rotated, only, err := published.rotate(now.Add(time.Hour))
	if err != nil || only {
		t.Fatalf("the second: published %v, %v", only, err)
	}
	steps := []struct {
		what string
		set  keySet
	}{{"the next key is published", published}, {"it signs", rotated}, {"the old one is dropped", rotated.finish()}}

	onEarly, onLate := r.long("early"), r.long("late")
	for _, step := range steps {
		t.Log(step.what)
		for _, daemon := range []string{"early", "slurmctld", "late"} {
			r.deliver(daemon, step.set)
			r.short()
		}
		// Those that ran through the step end, and others take their place. Before the old key is dropped nothing may run that
		// began under it.
		r.letGo(onEarly)
		r.letGo(onLate)
		onEarly, onLate = r.long("early"), r.long("late")
	}
	r.letGo(onEarly)
	r.letGo(onLate)
	if lines := r.refused(); len(lines) > 0 {
		t.Errorf("messages were refused:\n%s", strings.Join(lines, ""))
	}

	// The other way round it would go wrong: a key that signs before all know it. This is what the order is for.
	unknown := keySet{Keys: []slurmKey{encodeKey("unknown", single[:512])}}
	unknown.Keys[0].Use = signs
	text, err := json.Marshal(unknown)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.keyFile("early"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	r.Client("scontrol", "reconfigure")
	slurmtest.Eventually(t, 30*time.Second, "slurmctld refuses an unknown key", func() (bool, string) {
		return strings.Contains(strings.Join(r.refused(), ""), "kid=unknown"), r.Log("slurmctld")
	})
}
