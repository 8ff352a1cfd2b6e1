package e2e

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// A user is the same person in every pod: name, ids and home, and a file written in one is the user's in the other.
func TestUsers(t *testing.T) {
	r := begin(t, 5*time.Minute)
	for user, uid := range map[string]string{student: "2001", researcher: "2002"} {
		t.Run(user, func(t *testing.T) {
			want := fmt.Sprintf("%s %s %s", user, uid, "/home/"+user)
			const who = `echo $(id --user --name) $(id --user) $HOME`
			if got := r.mustAs(user, who); got != want {
				t.Errorf("in the login pod: %q, want %q", got, want)
			}
			id := r.submit(user, "--partition=cpu", who+"; stat --format='%U %a' $HOME; date > $HOME/e2e-mark")
			r.waitJob(id, "COMPLETED", workerStarts)
			if got := r.output(id); got != want+"\n"+user+" 700" {
				t.Errorf("in a job: %q, want %q and a home of mode 700 that is the user's", got, want)
			}
			if got := r.mustAs(user, "stat --format=%U $HOME/e2e-mark && rm $HOME/e2e-mark"); got != user {
				t.Errorf("in the login pod the job's file belongs to %q", got)
			}
			out, err := r.inController("getent passwd " + user)
			if err != nil || !strings.HasPrefix(out, user+":x:"+uid+":") {
				t.Errorf("in the controller: %q %v", out, err)
			}
		})
	}
	if out, err := r.as(student, "ls /home/"+researcher); err == nil {
		t.Errorf("one user lists another's home: %s", out)
	}
}

// A key in the site lets its user in by SSH, without a restart; a stranger's key does not, and neither does the key once
// it has left the site.
func TestSSH(t *testing.T) {
	r := begin(t, 8*time.Minute)
	mine, foreign := newKey(t), newKey(t)
	s := r.clone()
	s.declare(fmt.Sprintf("lab: users: %s: keys: [%q]", student, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(mine.PublicKey())))))
	login := r.pods(workers, labelRole+"=login")
	s.deliver("Add a key")

	address := r.kubectl("get", "service", "-n", workers, "slurm-login", "-o", "jsonpath={.spec.clusterIP}")
	var answer string
	// The kubelet brings a changed ConfigMap to its pods within a minute or so.
	r.eventually(150*time.Second, "the key lets its user in", func() (bool, string) {
		var err error
		answer, err = r.ssh(address, student, mine, "id --user --name; sinfo --noheader --format=%R | sort -u | head -1; pwd")
		return err == nil, fmt.Sprint(err)
	})
	if lines := strings.Split(answer, "\n"); len(lines) != 3 || lines[0] != student || lines[1] == "" || lines[2] != "/home/"+student {
		t.Errorf("by SSH: %q, want the user, a partition, and the home", answer)
	}
	if out, err := r.ssh(address, student, foreign, "id"); err == nil {
		t.Errorf("a key that is not in the site lets somebody in: %s", out)
	}
	if out, err := r.ssh(address, researcher, mine, "id"); err == nil {
		t.Errorf("a user's key opens another user's account: %s", out)
	}
	if out, err := r.ssh(address, "root", mine, "id"); err == nil {
		t.Errorf("a user's key opens root: %s", out)
	}
	if now := r.pods(workers, labelRole+"=login"); names(now) != names(login) {
		t.Errorf("the new key restarted the login pod: %s, now %s", names(login), names(now))
	}
	s.revertLast()
	s.converged()
	r.eventually(150*time.Second, "the key of the past does not let its user in", func() (bool, string) {
		_, err := r.ssh(address, student, mine, "true")
		return err != nil, "it does"
	})
}

// A user leaves the site while a job of theirs runs: the job ends as it would have, the platform says what it waits for, and then their
// association is gone, but for the record of the job.
func TestUserLeaves(t *testing.T) {
	r := begin(t, 15*time.Minute)
	const guest = "guest"
	s := r.clone()
	s.declare(`lab: users: guest: {uid: 2042, account: "vision"}`)
	s.deliver("A guest comes")
	r.eventually(150*time.Second, "the guest is known in the login pod, and may submit", func() (bool, string) {
		out, err := r.as(guest, "sbatch --test-only --partition=cpu --wrap true")
		return err == nil, fmt.Sprint(out, err)
	})
	j := r.runningJob(guest, "--partition=cpu --time=30")
	s.revertLast()
	s.converged()
	association := func() string {
		return r.mustController("sacctmgr --noheader --parsable2 show association user=" + guest + " format=account,user")
	}
	var config slurmConfig
	r.eventually(90*time.Second, "the SlurmConfig says what it waits for", func() (bool, string) {
		if err := r.get(&config, "slurmconfig", "-n", platform, "slurm"); err != nil {
			return false, err.Error()
		}
		return strings.Contains(config.Status.Message, "user guest left vision: not ended are its jobs "+j.id), config.Status.Message
	})
	if got := association(); got != "vision|guest" {
		t.Errorf("while the job runs the association is %q", got)
	}
	r.eventually(150*time.Second, "the guest is not known in the login pod any more", func() (bool, string) {
		out, err := r.inLogin("getent passwd guest")
		return err != nil, out
	})
	if now, err := r.lookJob(j.id); err != nil || now.state != "RUNNING" {
		t.Errorf("%v %v; want it RUNNING", now, err)
	}
	r.mustComplete(j)
	r.eventually(3*time.Minute, "the association is gone", func() (bool, string) { got := association(); return got == "", got })
	r.eventually(60*time.Second, "the record of the job stays", func() (bool, string) {
		out, err := r.inController("sacct --allusers --noheader --parsable2 --allocations --format=account,user,state --jobs=" + j.id)
		return err == nil && strings.TrimSpace(out) == "vision|guest|COMPLETED", fmt.Sprint(out, err)
	})
	if out, err := r.inLogin("rm -rf /home/guest"); err != nil {
		t.Logf("the guest's home stays: %v: %s", err, out)
	}
}

func newKey(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// ssh runs a command through the login service, from the node.
func (r *run) ssh(address, user string, key ssh.Signer, command string) (string, error) {
	ctx, cancel := context.WithTimeout(r.ctx, 15*time.Second)
	defer cancel()
	conn, err := r.node().dial(ctx, address, 22)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
		return "", err
	}
	c, channels, requests, err := ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		User: user,
		Auth: []ssh.AuthMethod{ssh.PublicKeys(key)},
		// The host key is the site's own secret; that it stays the same is what berth's tests of secrets show.
		HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		return "", err
	}
	client := ssh.NewClient(c, channels, requests)
	defer client.Close()
	session, err := client.NewSession()
	if err != nil {
		return "", err
	}
	defer session.Close()
	var out, messages bytes.Buffer
	session.Stdout, session.Stderr = &out, &messages
	if err := session.Run(command); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, messages.String())
	}
	return strings.TrimSpace(out.String()), nil
}
