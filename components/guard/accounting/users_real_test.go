package accounting_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/guard/accounting"
	"github.com/berth-hpc/berth/components/guard/slurmtest"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// people is a real Slurm with a database and a node, to which people come and go.
type people struct {
	*slurmtest.Slurm
	t *testing.T
}

func startPeople(t *testing.T) *people {
	m := slurmtest.Start(t)
	s := m.Configure(slurmtest.Accounting+fmt.Sprintf(`AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=%s
AccountingStorageEnforce=associations,limits,qos,safe
NodeName=w-0 NodeHostname=ctl Port=7000 CPUs=2 RealMemory=1000
PartitionName=cpu Nodes=ALL Default=YES State=UP
`, m.Key("jwt_hs256.key")), nil)
	m.Database()
	s.Slurmctld()
	s.Slurmd("w-0")
	return &people{s, t}
}

// known gives a name to a uid, as the site's users are known in each pod.
func (p *people) known(name string, uid int) {
	p.Run("sh", "-c", fmt.Sprintf("echo '%s:x:%d:%[2]d::/tmp:/bin/sh' >> /etc/passwd; echo '%[1]s:x:%[2]d:' >> /etc/group", name, uid))
}

func (p *people) forgotten(name string) {
	p.Run("sed", "-i", "/^"+name+":/d", "/etc/passwd", "/etc/group")
}

// submit submits a job as a uid.
func (p *people) submit(uid int, command string) (string, error) {
	out, err := p.Command("setpriv", fmt.Sprintf("--reuid=%d", uid), fmt.Sprintf("--regid=%d", uid), "--clear-groups", "env", "SLURM_CONF="+p.File,
		"sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--wrap", command).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// L7, L8: a job of somebody whom slurmctld cannot resolve is refused when it is submitted, by sbatch and through slurmrestd, and is never
// held as nobody's. A user whose association was there before the name resolves is taken as soon as it does.
func TestRealUnknownUsers(t *testing.T) {
	p := startPeople(t)
	p.known("ada", 2001)
	database := &accounting.Database{Programs: p.Programs()}
	if _, err := database.Reconcile(t.Context(), "berth", v1alpha1.Accounts{
		Accounts: []v1alpha1.Account{{Name: "vision"}},
		Users:    []v1alpha1.User{{Name: "ada", DefaultAccount: "vision"}, {Name: "late", DefaultAccount: "vision"}},
	}); err != nil {
		t.Fatal(err)
	}
	if out, err := p.submit(2001, "true"); err != nil {
		t.Fatalf("a known user's job: %s %v", out, err)
	}
	if out, err := p.submit(2002, "true"); err == nil || !strings.Contains(out, "Invalid account or account/partition combination specified") {
		t.Errorf("a job of a uid without a name: %q %v", out, err)
	}

	socket := p.Slurmrestd()
	rest := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	post := func(user string) (status int, answer string) {
		t.Helper()
		tokens := slurmrest.TokenSource{KeyFile: p.Key("jwt_hs256.key"), User: user}
		token, err := tokens.Token()
		if err != nil {
			t.Fatal(err)
		}
		slurmtest.Eventually(t, 30*time.Second, "slurmrestd answers", func() (bool, string) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://rest/slurm/v0.0.42/job/submit",
				bytes.NewBufferString(`{"script": "#!/bin/sh\ntrue\n", "job": {"current_working_directory": "/tmp", "environment": ["PATH=/usr/bin:/bin"]}}`))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("X-SLURM-USER-NAME", user)
			request.Header.Set("X-SLURM-USER-TOKEN", token)
			response, err := rest.Do(request)
			if err != nil {
				return false, err.Error() + p.Log("slurmrestd.log")
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			status, answer = response.StatusCode, string(text)
			return err == nil, fmt.Sprint(err)
		})
		return status, answer
	}
	if status, answer := post("ada"); status != http.StatusOK || strings.Contains(answer, `"job_id": 0,`) {
		t.Errorf("a known user's job through slurmrestd: %d %s", status, answer)
	}
	for _, nobody := range []string{"ghost", "late"} {
		status, answer := post(nobody)
		if status == http.StatusOK {
			t.Errorf("a job of %s, whom nobody knows, was taken through slurmrestd: %s", nobody, answer)
		}
		t.Logf("through slurmrestd %s is told %d: %.200s", nobody, status, strings.Join(strings.Fields(answer), " "))
	}
	if jobs := p.Client("squeue", "--all", "--noheader", "--states=all", "--format=%u"); strings.Trim(strings.ReplaceAll(jobs, "ada", ""), "\n") != "" {
		t.Errorf("there are jobs of %q, want ada's alone", jobs)
	}

	p.known("late", 2002)
	if out, err := p.submit(2002, "true"); err != nil {
		t.Errorf("the name resolves now, and the job is refused: %s %v", out, err)
	} else {
		p.Want(out, "COMPLETED")
	}
}

// Users and accounts that leave the site: while a job of theirs waits or runs nothing is deleted, and the job ends as it would have. Then
// they are gone, but for the records of what they ran, and what people made by hand stays.
func TestRealUsersLeave(t *testing.T) {
	p := startPeople(t)
	p.known("ada", 2001)
	p.known("bob", 2002)
	database := &accounting.Database{Programs: p.Programs()}
	before := v1alpha1.Accounts{
		Accounts: []v1alpha1.Account{{Name: "vision"}, {Name: "Lattice", Parent: "vision"}, {Name: "language"}},
		Users:    []v1alpha1.User{{Name: "ada", DefaultAccount: "Lattice", Accounts: []string{"vision"}}, {Name: "bob", DefaultAccount: "language", Accounts: []string{"vision"}}},
	}
	after := v1alpha1.Accounts{Accounts: before.Accounts[2:], Users: []v1alpha1.User{{Name: "bob", DefaultAccount: "language"}}}
	reconcile := func(wanted v1alpha1.Accounts) {
		t.Helper()
		if did, err := database.Reconcile(t.Context(), "berth", wanted); err != nil {
			t.Fatalf("%v; did %q", err, did)
		}
	}
	reconcile(before)
	p.Client("sacctmgr", "-i", "add", "account", "byhand")
	p.Client("sacctmgr", "-i", "add", "user", "name=bob", "account=byhand")
	running, err := p.submit(2001, "until [ -e "+p.Dir+"/go ]; do sleep 0.2; done")
	if err != nil {
		t.Fatal(running)
	}
	p.Want(running, "RUNNING")
	waiting, err := p.submit(2001, "true") // one after the other: a job takes the node's memory
	if err != nil {
		t.Fatal(waiting)
	}

	reconcile(after)
	p.forgotten("ada") // the users' files follow the same push
	gone := accounting.OwnedBy(before).Without(accounting.OwnedBy(after))
	did, stays, why := database.Leave(t.Context(), "berth", gone)
	if got := strings.Join(why, "; "); !strings.HasPrefix(got, "user ada left lattice, vision: not ended are its jobs "+running) ||
		!strings.Contains(got, "account lattice left: it goes after user ada") || !strings.Contains(got, "account vision left: it goes after account lattice, user ada") {
		t.Errorf("did %q, and says %q; want job %s named", did, why, running)
	}
	if len(stays.Users) != 1 || len(stays.Users["ada"]) != 2 || len(stays.Accounts) != 2 {
		t.Errorf("%v stays, want ada and the two accounts", stays)
	}
	associations := func() string {
		return strings.Join(strings.Fields(p.Client("sacctmgr", "--noheader", "--parsable2", "show", "assoc", "format=account,user")), " ")
	}
	if got := associations(); !strings.Contains(got, "lattice|ada") || !strings.Contains(got, "byhand|bob") || strings.Contains(got, "vision|bob") {
		t.Errorf("while ada's jobs run the associations are %s", got)
	}

	p.Run("touch", p.Dir+"/go")
	p.Want(running, "COMPLETED")
	p.Want(waiting, "COMPLETED")
	slurmtest.Eventually(t, time.Minute, "who left is gone", func() (bool, string) {
		did, stays, why = database.Leave(t.Context(), "berth", stays)
		return stays.Empty(), fmt.Sprint(did, why)
	})
	if got := associations(); got != "root| root|root byhand| byhand|bob language| language|bob" {
		t.Errorf("in the end the associations are %s", got)
	}
	if again, stays, why := database.Leave(t.Context(), "berth", gone); len(again) > 0 || !stays.Empty() || len(why) > 0 {
		t.Errorf("once more: did %q, %v stays: %q", again, stays, why)
	}
	if got := p.Client("sacct", "--allusers", "--noheader", "--parsable2", "--allocations", "--format=account,state", "--jobs="+running+","+waiting); got != "lattice|COMPLETED\nlattice|COMPLETED" {
		t.Errorf("the records of the one who left are %q", got)
	}
	// Somebody who comes back is as new.
	p.known("ada", 2001)
	reconcile(before)
	back, err := p.submit(2001, "true")
	if err != nil {
		t.Fatalf("ada is back, and her job is refused: %s", back)
	}
	p.Want(back, "COMPLETED")
}
